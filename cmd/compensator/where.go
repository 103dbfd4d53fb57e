package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

var whereKeys = []string{"type", "state", "batch", "business", "ext", "user", "error", "ended_by", "from", "to", "ended_from", "ended_to", "due_from", "due_to", "prefix", "running", "failure"}

const whereHelp = "type=refund,state=dead. You can also compare batch=, business=, ext=, user=, error= (part of the text), ended_by= and failure= (from cases list --groups). With running=yes, only entries that a process holds now: of all types, or of the given type. With prefix=yes, the beginning of business=, ext= or batch= is enough. A time is 2h ago or 2026-01-31T10:00:00Z: from= and to= (when recorded), ended_from=, ended_to=, due_from= and due_to="

type conditions struct {
	admin.Filter
	failure admin.Fingerprint // zero: any failure
	keys    []string          // keys in the text of --where, such as "type", in their order
}

// parseWhere splits each text into conditions at the commas. If the text after a comma does not begin with a key, the
// comma and this text belong to the value before the comma.
func parseWhere(texts []string) (w conditions, err error) {
	for _, text := range texts {
		var conditions []string
		for _, part := range strings.Split(text, ",") {
			key, _, ok := strings.Cut(part, "=")
			if ok = ok && slices.Contains(whereKeys, strings.TrimSpace(key)); !ok && len(conditions) > 0 {
				conditions[len(conditions)-1] += "," + part
				continue
			}
			conditions = append(conditions, part)
		}
		for _, condition := range conditions {
			if err := w.addCondition(condition); err != nil {
				return w, err
			}
		}
	}
	if others := w.Filter; w.failure != (admin.Fingerprint{}) {
		others.BusinessType, others.States = "", nil
		if !reflect.DeepEqual(others, admin.Filter{}) {
			return w, newUsageError("--where failure=… can be combined with type and state only")
		}
	}
	return w, nil
}

// check refuses conditions that cannot be combined. The Admin would refuse them too, but its error would name fields of
// admin.Filter. The error of check names the keys of --where instead.
func (w conditions) check() error {
	if _, err := w.Narrowed(); err != nil {
		return newUsageError("--where: %s", whereNames.Replace(plainText(err)))
	}
	return nil
}

// whereNames replaces the names of the fields of admin.Filter by the keys of --where.
var whereNames = strings.NewReplacer("LastError", "error", "EndedBy", "ended_by", "UserID", "user", "EndedFrom", "ended_from", "EndedTo", "ended_to", "DueFrom", "due_from", "DueTo", "due_to",
	"Leased", "running", "Prefix", "prefix", "a created range", "from or to")

func (w *conditions) addCondition(condition string) (err error) {
	key, value, ok := strings.Cut(condition, "=")
	key = strings.TrimSpace(key)
	if !ok || value == "" {
		return newUsageError("--where %q: give key=value, with one of the keys %s", condition, strings.Join(whereKeys, ", "))
	}
	if slices.Contains(w.keys, key) && key != "state" {
		return newUsageError("--where %q: %s is given twice, and an entry has only one: run the command once for each", condition, key)
	}
	w.keys = append(w.keys, key)
	switch key {
	case "type":
		w.BusinessType = value
	case "state":
		for _, word := range strings.Split(value, "|") {
			state, err := processlog.ParseState(word)
			if err != nil {
				return newUsageError("--where: %v", err)
			}
			w.States = append(w.States, state)
		}
	case "batch":
		w.BatchID = value
	case "business":
		w.BusinessID = value
	case "ext":
		w.BusinessExtID = value
	case "user":
		w.UserID = value
	case "error":
		w.LastError = value
	case "ended_by":
		w.EndedBy = compensator.EndedBy(value)
	case "from":
		w.CreatedFrom, err = parseTime(value)
	case "to":
		w.CreatedTo, err = parseTime(value)
	case "ended_from":
		w.EndedFrom, err = parseTime(value)
	case "ended_to":
		w.EndedTo, err = parseTime(value)
	case "due_from":
		w.DueFrom, err = parseTime(value)
	case "due_to":
		w.DueTo, err = parseTime(value)
	case "prefix":
		if w.Prefix = value == "yes"; !w.Prefix {
			err = errors.New("give yes, or leave it out")
		}
	case "running":
		if w.Leased = value == "yes"; !w.Leased {
			err = errors.New("give yes, or leave it out")
		}
	case "failure":
		if err = w.failure.UnmarshalText([]byte(value)); err == nil && w.failure == (admin.Fingerprint{}) {
			err = errors.New("no failure has this number")
		}
	default:
		return newUsageError("--where %q: there is no %q, only %s", condition, key, strings.Join(whereKeys, ", "))
	}
	if err != nil {
		return newUsageError("--where %q: %v", condition, err)
	}
	return nil
}

// parseTime parses a point in time. The text 2h or "2h ago" means two hours before now.
func parseTime(text string) (time.Time, error) {
	if age, err := time.ParseDuration(strings.TrimSuffix(text, " ago")); err == nil && age > 0 {
		return time.Now().Add(-age), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q: give 2h, or 2026-01-31T10:00:00Z", text)
	}
	return at, nil
}

func (p *program) whereFlag(cmd *cobra.Command, conditions *[]string) {
	cmd.Flags().StringArrayVar(conditions, "where", nil, whereHelp)
	_ = cmd.RegisterFlagCompletionFunc("where", func(cmd *cobra.Command, _ []string, input string) ([]string, cobra.ShellCompDirective) {
		return p.completeWhere(cmd.Context(), input)
	})
}

func (p *program) completeWhere(ctx context.Context, input string) ([]string, cobra.ShellCompDirective) {
	const as = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	startAt := strings.LastIndex(input, ",") + 1
	prefix, condition := input[:startAt], input[startAt:]
	key, _, hasValue := strings.Cut(condition, "=")
	var completions []string
	switch {
	case !hasValue:
		for _, key := range whereKeys {
			completions = append(completions, prefix+key+"=")
		}
	case key == "type":
		for _, name := range p.typeNames(ctx) {
			completions = append(completions, prefix+"type="+name)
		}
	case key == "state":
		for _, state := range processlog.States {
			completions = append(completions, prefix+"state="+state.String())
		}
	}
	return slices.DeleteFunc(completions, func(f string) bool { return !strings.HasPrefix(f, input) }), as
}

func (p *program) completeType(cmd *cobra.Command, args []string, input string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(p.typeNames(cmd.Context()), func(name string) bool { return !strings.HasPrefix(name, input) }), cobra.ShellCompDirectiveNoFileComp
}

const completionLimit = 2 * time.Second

// typeNames returns none if the log does not answer.
func (p *program) typeNames(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	s, err := p.openSession(ctx, readAccess)
	if err != nil {
		return nil
	}
	defer s.Close()
	counts, _ := s.counts(ctx, 1)
	for _, count := range counts {
		if printable(count.BusinessType) == count.BusinessType {
			names = append(names, count.BusinessType)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
