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

// policy says which person may do what with this program. It is a setting of the log. Services do not read it, because
// they have their own Access. Anyone who may write to the database can change the policy. So the policy only prevents
// mistakes. For protection use the grants of the database.
type policy struct {
	Roles  map[string]role   `json:"roles"`
	People map[string]string `json:"people"` // maps user@host, or user, to a role; * stands for all other people
}

// role is a set of rights.
type role struct {
	Rights  []admin.Right    `json:"rights"`            // rights of the Admin, "purge" or "set policy"; * stands for all rights
	Types   []string         `json:"types,omitempty"`   // business types to which the role is limited; empty: no limit
	Entries int              `json:"entries,omitempty"` // maximum number of entries at a time; 0: no limit
	Amounts map[string]int64 `json:"amounts,omitempty"` // maximum amount of an entry, for each currency, in the currency's smallest unit; empty: no limit
}

// These rights are not rights of the Admin.
const (
	purgeRight  admin.Right = "purge"
	policyRight admin.Right = "set policy"
	everything  admin.Right = "*"
)

// policySetting is the name of the setting that holds the policy. If the setting has no value, only the grants of the
// database decide.
const (
	policySetting = "policy of the command line"
	mostPolicy    = 4000 // maximum length of a policy in characters, which is the maximum length of a setting
)

// weighed lists the rights that role.Amounts limits.
var weighed = []admin.Right{admin.Requeue, admin.RequeueSucceeded, admin.Compensate, admin.SettleManually, admin.Cancel, admin.Complete, admin.Reschedule}

// May implements admin.Access. If the role has Amounts, May refuses an unknown amount and a currency without a limit.
func (p *policy) May(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
	if p == nil {
		return true
	}
	r := p.roleOf(a)
	switch {
	case !slices.Contains(r.Rights, right) && !slices.Contains(r.Rights, everything),
		len(r.Types) > 0 && !slices.Contains(r.Types, on.Type),
		r.Entries > 0 && on.Count > r.Entries:
		return false
	case len(r.Amounts) == 0 || !slices.Contains(weighed, right):
		return true
	}
	most, named := r.Amounts[on.Amount.Currency]
	return named && on.Amount.Known() && max(on.Amount.Minor, -on.Amount.Minor) <= most
}

// roleOf returns the role for the most specific name in the policy: user@host, then user, then *. Without a match the
// role has no rights.
func (p *policy) roleOf(a admin.Actor) role {
	name := strings.TrimPrefix(a.ID, actorPrefix)
	user, _, _ := strings.Cut(name, "@")
	for _, name := range []string{name, user, "*"} {
		if role, named := p.People[name]; named {
			return p.Roles[role]
		}
	}
	return role{}
}

// parsePolicy reads a policy. It returns nil for an empty text.
func parsePolicy(text []byte) (*policy, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	p := new(policy)
	from := json.NewDecoder(bytes.NewReader(text))
	from.DisallowUnknownFields()
	if err := from.Decode(p); err != nil {
		return nil, err
	}
	if _, err := from.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after the end of the JSON object")
	}
	return p, p.problem()
}

// problem returns what is wrong with the policy, or nil.
func (p *policy) problem() error {
	for _, name := range slices.Sorted(maps.Keys(p.Roles)) {
		r := p.Roles[name]
		for _, right := range r.Rights {
			if !slices.Contains(append(admin.Rights[:], purgeRight, policyRight, everything), right) {
				return fmt.Errorf("role %q: there is no right %q", name, right)
			}
		}
		for currency, most := range r.Amounts {
			if len(currency) != 3 || most < 0 {
				return fmt.Errorf("role %q: amounts: currencies must have three letters, and amounts must not be negative", name)
			}
		}
		if r.Entries < 0 {
			return fmt.Errorf("role %q: entries: the number must not be negative", name)
		}
	}
	heirs := 0
	for _, name := range slices.Sorted(maps.Keys(p.People)) {
		if _, known := p.Roles[p.People[name]]; !known {
			return fmt.Errorf("%q has the role %q, which is not defined", name, p.People[name])
		}
		if p.May(context.Background(), admin.Actor{ID: actorPrefix + name}, policyRight, admin.Subject{}) {
			heirs++
		}
	}
	if heirs == 0 {
		return fmt.Errorf("no person has the right %q, so no person could change this policy again", policyRight)
	}
	return nil
}

// readPolicy reads the policy of the log and the setting that holds it. If the policy is invalid, it returns a policy
// that allows nothing.
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

// rules cache the policy and read it again, because pages stay open for days. They may be used concurrently.
type rules struct {
	store *console

	guard  chan struct{} // semaphore of size one; its holder may use the fields below
	policy *policy       // nil if the log has no policy
	err    error         // reason why the policy could not be read
	at     time.Time
}

const (
	policyKept = 3 * time.Second // maximum age of the cached policy
	policyRead = 2 * time.Second // maximum duration of one reading of the policy
)

func openRules(ctx context.Context, store *console) (*rules, processlog.Setting, error) {
	p, setting, err := store.readPolicy(ctx)
	return &rules{store: store, guard: make(chan struct{}, 1), policy: p, at: time.Now()}, setting, err
}

// May implements admin.Access.
func (r *rules) May(ctx context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
	p, err := r.now(ctx)
	return err == nil && p.May(ctx, a, right, on)
}

// The method now returns the policy. If the cached policy is older than policyKept, one caller reads it again. The
// other callers wait for that reading, but each of them only until its own ctx ends.
func (r *rules) now(ctx context.Context) (*policy, error) {
	select {
	case r.guard <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.guard }()
	if time.Since(r.at) >= policyKept {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), policyRead) // Detach the reading from this caller's context, because other callers wait for the result.
		defer cancel()
		r.policy, _, r.err = r.store.readPolicy(ctx)
		r.at = time.Now()
	}
	return r.policy, r.err
}

// allow checks a right that the Admin does not know. It records a refusal as the Admin does.
func (s *session) allow(ctx context.Context, right admin.Right, reason string) error {
	if s.rules.May(ctx, s.actor, right, admin.Subject{}) {
		return nil
	}
	return errors.Join(admin.ErrNotAllowed, s.store.Operate(ctx, processlog.Operation{Actor: s.actor.ID, Action: string(right), Refused: true, Reason: reason}))
}

func (p *program) policy() *cobra.Command {
	cmd := p.onLog("policy", "Show who may do what with this program, as JSON", cobra.NoArgs, toOperate, func(_ context.Context, s *session, _ []string) error {
		if s.setting.Value == "" {
			p.say("there is no policy: the grants of the database alone decide")
			return nil
		}
		p.say("set by %s at %s: %s", s.setting.Actor, forTable(s.setting.At), s.setting.Reason)
		_, err := fmt.Fprintln(p.out, shown(s.setting.Value))
		return err
	})
	cmd.AddCommand(p.setPolicy())
	return cmd
}

func (p *program) setPolicy() *cobra.Command {
	var why why
	var yes bool
	cmd := p.onLog("set <file> | -", "Set the policy; an empty file removes it", cobra.ExactArgs(1), toOperate, func(ctx context.Context, s *session, args []string) error {
		reason, err := why.text()
		if err != nil {
			return err
		}
		text, err := p.read(ctx, args[0])
		if err != nil {
			return usage("%v", err)
		}
		if _, err := parsePolicy(text); err != nil {
			return usage("%s: %v", args[0], err)
		}
		var value bytes.Buffer // value is the policy as compact JSON. It stays empty if there is no policy.
		if len(bytes.TrimSpace(text)) > 0 {
			if err := json.Compact(&value, text); err != nil {
				return usage("%s: %v", args[0], err)
			}
		}
		if n := utf8.RuneCount(value.Bytes()); n > mostPolicy {
			return usage("%s: the policy has %d characters without spaces, and at most %d are allowed", args[0], n, mostPolicy)
		}
		if err := s.allow(ctx, policyRight, reason); err != nil {
			return err
		}
		if err := p.sure(ctx, yes, "set", "policy"); err != nil {
			return err
		}
		setting := s.setting // The setting has the version that was read. So PutSetting fails if another person has set a policy since.
		setting.Value, setting.Actor, setting.Reason = value.String(), s.actor.ID, reason
		var answers results
		answers.add("policy", s.store.PutSetting(ctx, setting, processlog.Operation{Actor: s.actor.ID, Action: string(policyRight), Subject: policySetting, Reason: reason}))
		return p.answer(answers)
	})
	why.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it without asking")
	return cmd
}

// The method read reads a file. The name - means standard input.
func (p *program) read(ctx context.Context, name string) ([]byte, error) {
	if name != "-" {
		return os.ReadFile(name)
	}
	return within(ctx, func() ([]byte, error) { return io.ReadAll(p.in) })
}
