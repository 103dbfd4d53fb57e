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

// whereKeys are the keys of --where.
var whereKeys = []string{"type", "state", "batch", "business", "ext", "user", "error", "ended_by", "from", "to", "failure"}

const whereHelp = "type=refund,state=dead; also batch, business, ext, user, error (a part of it), ended_by, from and to (when recorded: 2h ago, or 2026-01-31T10:00:00Z), failure (from cases list --groups)"

// A where is the parsed filter of --where.
type where struct {
	admin.Filter
	failure admin.Fingerprint // zero: any failure
	keys    []string          // keys that were given
}

// parseWhere parses all --where flags. If no key follows a comma, the comma belongs to the value before it.
func parseWhere(texts []string) (w where, err error) {
	for _, text := range texts {
		var conditions []string
		for _, part := range strings.Split(text, ",") {
			key, _, is := strings.Cut(part, "=")
			if is = is && slices.Contains(whereKeys, strings.TrimSpace(key)); !is && len(conditions) > 0 {
				conditions[len(conditions)-1] += "," + part
				continue
			}
			conditions = append(conditions, part)
		}
		for _, condition := range conditions {
			if err := w.add(condition); err != nil {
				return w, err
			}
		}
	}
	if beside := w.Filter; w.failure != (admin.Fingerprint{}) {
		beside.BusinessType, beside.States = "", nil
		if !reflect.DeepEqual(beside, admin.Filter{}) {
			return w, usage("--where failure=… can be combined with type and state only")
		}
	}
	return w, nil
}

func (w *where) add(condition string) (err error) {
	key, value, is := strings.Cut(condition, "=")
	key = strings.TrimSpace(key)
	if !is || value == "" {
		return usage("--where %q: give key=value, with one of the keys %s", condition, strings.Join(whereKeys, ", "))
	}
	if slices.Contains(w.keys, key) && key != "state" {
		return usage("--where %q: %s is given twice, and an entry has only one: run the command once for each", condition, key)
	}
	w.keys = append(w.keys, key)
	switch key {
	case "type":
		w.BusinessType = value
	case "state":
		for _, word := range strings.Split(value, "|") {
			state, err := processlog.ParseState(word)
			if err != nil {
				return usage("--where: %v", err)
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
		w.CreatedFrom, err = moment(value)
	case "to":
		w.CreatedTo, err = moment(value)
	case "failure":
		if err = w.failure.UnmarshalText([]byte(value)); err == nil && w.failure == (admin.Fingerprint{}) {
			err = errors.New("no failure has this number")
		}
	default:
		return usage("--where %q: there is no %q, only %s", condition, key, strings.Join(whereKeys, ", "))
	}
	if err != nil {
		return usage("--where %q: %v", condition, err)
	}
	return nil
}

// moment parses a time. A duration means that long before now.
func moment(text string) (time.Time, error) {
	if ago, err := time.ParseDuration(strings.TrimSuffix(text, " ago")); err == nil && ago > 0 {
		return time.Now().Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q: give 2h, or 2026-01-31T10:00:00Z", text)
	}
	return at, nil
}

// whereFlag adds --where to a command.
func (p *program) whereFlag(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringArrayVar(into, "where", nil, whereHelp)
	_ = cmd.RegisterFlagCompletionFunc("where", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return p.completeWhere(cmd.Context(), typed)
	})
}

// completeWhere completes the last condition that the person has typed. It proposes keys, types or states.
func (p *program) completeWhere(ctx context.Context, typed string) ([]string, cobra.ShellCompDirective) {
	const as = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	begun := strings.LastIndex(typed, ",") + 1
	before, last := typed[:begun], typed[begun:]
	key, _, valued := strings.Cut(last, "=")
	var found []string
	switch {
	case !valued:
		for _, key := range whereKeys {
			found = append(found, before+key+"=")
		}
	case key == "type":
		for _, name := range p.typeNames(ctx) {
			found = append(found, before+"type="+name)
		}
	case key == "state":
		for _, state := range processlog.States {
			found = append(found, before+"state="+state.String())
		}
	}
	return slices.DeleteFunc(found, func(f string) bool { return !strings.HasPrefix(f, typed) }), as
}

// completeType proposes types for the only argument of a command.
func (p *program) completeType(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(p.typeNames(cmd.Context()), func(name string) bool { return !strings.HasPrefix(name, typed) }), cobra.ShellCompDirectiveNoFileComp
}

// completionLimit limits how long a completion may take.
const completionLimit = 2 * time.Second

// typeNames returns the types of the log for a completion. It returns none if the log does not answer.
func (p *program) typeNames(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	s, err := p.open(ctx, toRead)
	if err != nil {
		return nil
	}
	defer s.Close()
	counts, _ := s.counts(ctx, 1)
	for _, count := range counts {
		if shown(count.BusinessType) == count.BusinessType {
			names = append(names, count.BusinessType)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
