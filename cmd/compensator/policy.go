package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// A policy only prevents mistakes: anyone who may write to the database can change it. Services do not read it.
type policy struct {
	Roles  map[string]role   `json:"roles"`
	People map[string]string `json:"people"` // maps user@host, or user, to a role; * stands for all other people
}

type role struct {
	Rights  []admin.Right    `json:"rights"`            // rights that package admin defines, "purge", or "set policy"; * stands for all rights
	Types   []string         `json:"types,omitempty"`   // business types to which the role is limited; empty: no limit
	Entries int              `json:"entries,omitempty"` // maximum number of entries at a time; 0: no limit
	Amounts map[string]int64 `json:"amounts,omitempty"` // maximum amount of an entry, for each currency, in the currency's smallest unit; empty: no limit
}

// These rights exist only in policies of the command line.
const (
	purgeRight  admin.Right = "purge"
	policyRight admin.Right = "set policy"
	allRights   admin.Right = "*"
)

// Without a policy only the grants of the database decide.
const (
	policySetting   = "policy of the command line"
	maxPolicyLength = 4000 // maximum length of a policy in characters, which is the maximum length of a setting
)

var amountRights = []admin.Right{admin.Requeue, admin.RequeueSucceeded, admin.Compensate, admin.SettleManually, admin.Cancel, admin.Complete, admin.Reschedule}

// May reports whether the policy gives a right to an actor. If the actor's role limits amounts, May returns false for
// an unknown amount, and for a currency that the role does not list.
func (p *policy) May(_ context.Context, a admin.Actor, right admin.Right, subject admin.Subject) bool {
	if p == nil {
		return true
	}
	r := p.roleOf(a)
	switch {
	case !slices.Contains(r.Rights, right) && !slices.Contains(r.Rights, allRights),
		len(r.Types) > 0 && !slices.Contains(r.Types, subject.Type),
		r.Entries > 0 && subject.Count > r.Entries:
		return false
	case len(r.Amounts) == 0 || !slices.Contains(amountRights, right):
		return true
	}
	maxAmount, hasMaxAmount := r.Amounts[subject.Amount.Currency]
	return hasMaxAmount && subject.Amount.Known() && max(subject.Amount.Minor, -subject.Amount.Minor) <= maxAmount
}

// roleOf returns the role for the most specific name in the policy: user@host, then user, then *. Without a match the
// role has no rights.
func (p *policy) roleOf(a admin.Actor) role {
	name := strings.TrimPrefix(a.ID, actorPrefix)
	user, _, _ := strings.Cut(name, "@")
	for _, name := range []string{name, user, "*"} {
		if role, isNamed := p.People[name]; isNamed {
			return p.Roles[role]
		}
	}
	return role{}
}

// parsePolicy returns nil for an empty text.
func parsePolicy(text []byte) (*policy, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	p := new(policy)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(p); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after the end of the JSON object")
	}
	return p, p.problem()
}

func (p *policy) problem() error {
	for _, name := range slices.Sorted(maps.Keys(p.Roles)) {
		r := p.Roles[name]
		for _, right := range r.Rights {
			if !slices.Contains(append(admin.Rights[:], purgeRight, policyRight, allRights), right) {
				return fmt.Errorf("role %q: there is no right %q", name, right)
			}
		}
		for currency, maxAmount := range r.Amounts {
			if len(currency) != 3 || maxAmount < 0 {
				return fmt.Errorf("role %q: amounts: currencies must have three letters, and amounts must not be negative", name)
			}
		}
		if r.Entries < 0 {
			return fmt.Errorf("role %q: entries: the number must not be negative", name)
		}
	}
	fallbacks := 0
	for _, name := range slices.Sorted(maps.Keys(p.People)) {
		if _, isKnown := p.Roles[p.People[name]]; !isKnown {
			return fmt.Errorf("%q has the role %q, which is not defined", name, p.People[name])
		}
		if p.May(context.Background(), admin.Actor{ID: actorPrefix + name}, policyRight, admin.Subject{}) {
			fallbacks++
		}
	}
	if fallbacks == 0 {
		return fmt.Errorf("no person has the right %q, so no person could change this policy again", policyRight)
	}
	return nil
}

// readPolicy returns a policy that allows nothing if the stored one is invalid.
func (s *console) readPolicy(ctx context.Context) (*policy, processlog.Setting, error) {
	settings, err := s.Settings(ctx)
	if err != nil {
		return nil, processlog.Setting{}, err
	}
	i := slices.IndexFunc(settings, func(v processlog.Setting) bool { return v.Name == policySetting })
	if i < 0 {
		return nil, processlog.Setting{Name: policySetting}, nil
	}
	p, err := parsePolicy([]byte(settings[i].Value))
	if err != nil {
		err = &exitError{code: codeNotAllowed, err: fmt.Errorf("the %s cannot be read: %w", policySetting, err)}
	}
	return p, settings[i], err
}

// rules may be used concurrently.
type rules struct {
	store *console

	semaphore chan struct{} // semaphore of size one; its holder may use the fields below
	policy    *policy       // nil if the log has no policy
	err       error         // reason why the policy could not be read
	at        time.Time
}

const (
	maxPolicyAge      = 3 * time.Second // maximum age of the cached policy
	policyReadTimeout = 2 * time.Second // maximum duration of one reading of the policy
)

func openRules(ctx context.Context, store *console) (*rules, processlog.Setting, error) {
	p, setting, err := store.readPolicy(ctx)
	return &rules{store: store, semaphore: make(chan struct{}, 1), policy: p, at: time.Now()}, setting, err
}

// May implements admin.Access.
func (r *rules) May(ctx context.Context, a admin.Actor, right admin.Right, subject admin.Subject) bool {
	p, err := r.currentPolicy(ctx)
	return err == nil && p.May(ctx, a, right, subject)
}

// One caller of currentPolicy reads an old policy again. The others wait for it, until their own ctx ends.
func (r *rules) currentPolicy(ctx context.Context) (*policy, error) {
	select {
	case r.semaphore <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.semaphore }()
	if time.Since(r.at) >= maxPolicyAge {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), policyReadTimeout) // Detach the reading from this caller's context, because other callers wait for the result.
		defer cancel()
		r.policy, _, r.err = r.store.readPolicy(ctx)
		r.at = time.Now()
	}
	return r.policy, r.err
}

// checkRight records a refusal as the Admin does.
func (s *session) checkRight(ctx context.Context, right admin.Right, reason string) error {
	if s.rules.May(ctx, s.actor, right, admin.Subject{}) {
		return nil
	}
	return errors.Join(admin.ErrNotAllowed, s.store.Operate(ctx, processlog.Operation{Actor: s.actor.ID, Action: string(right), Refused: true, Reason: reason}))
}

func (p *program) newPolicyCommand() *cobra.Command {
	cmd := p.newLogCommand("policy", "Show who may do what with this program, as JSON", cobra.NoArgs, operateAccess, func(_ context.Context, s *session, _ []string) error {
		if s.setting.Value == "" {
			p.printf("there is no policy: the grants of the database alone decide")
			return nil
		}
		p.printf("set by %s at %s: %s", s.setting.Actor, formatTable(s.setting.At), s.setting.Reason)
		_, err := fmt.Fprintln(p.stdout, printable(s.setting.Value))
		return err
	})
	cmd.AddCommand(p.newSetPolicyCommand())
	return cmd
}

func (p *program) newSetPolicyCommand() *cobra.Command {
	var why why
	var isConfirmed bool
	cmd := p.newLogCommand("set <file> | -", "Set the policy. An empty file removes the policy", cobra.ExactArgs(1), operateAccess, func(ctx context.Context, s *session, args []string) error {
		reason, err := why.text()
		if err != nil {
			return err
		}
		text, err := p.read(ctx, args[0])
		if err != nil {
			return newUsageError("%v", err)
		}
		if _, err := parsePolicy(text); err != nil {
			return newUsageError("%s: %v", args[0], err)
		}
		var value bytes.Buffer // value is the policy as compact JSON. It stays empty if there is no policy.
		if len(bytes.TrimSpace(text)) > 0 {
			if err := json.Compact(&value, text); err != nil {
				return newUsageError("%s: %v", args[0], err)
			}
		}
		if n := utf8.RuneCount(value.Bytes()); n > maxPolicyLength {
			return newUsageError("%s: the policy has %d characters without spaces, and at most %d are allowed", args[0], n, maxPolicyLength)
		}
		if err := s.checkRight(ctx, policyRight, reason); err != nil {
			return err
		}
		if err := p.confirmUnless(ctx, isConfirmed, "set", "policy"); err != nil {
			return err
		}
		setting := s.setting // The setting has the version that was read. So PutSetting fails if another person has set a policy since.
		setting.Value, setting.Actor, setting.Reason = value.String(), s.actor.ID, reason
		var answers results
		answers.addResult("policy", s.store.PutSetting(ctx, setting, processlog.Operation{Actor: s.actor.ID, Action: string(policyRight), Subject: policySetting, Reason: reason}))
		return p.answer(answers)
	})
	why.addFlags(cmd)
	cmd.Flags().BoolVar(&isConfirmed, "yes", false, "make the change without asking")
	return cmd
}

// read returns the content of the file with this name. If the name is "-", it returns standard input.
func (p *program) read(ctx context.Context, name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	return runWithin(ctx, func() ([]byte, error) { return io.ReadAll(p.stdin) })
}
