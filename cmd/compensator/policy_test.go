package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

func me() string { return strings.TrimPrefix(actor().ID, actorPrefix) }

// policyFor gives the current person the role, and all others the role host.
func policyFor(role string) string {
	return `{"roles": {"host": {"rights": ["*"]}, "mine": ` + role + `}, "people": {"` + me() + `": "mine", "*": "host"}}`
}

// setPolicy bypasses the program, because the current policy may forbid the change.
func (b *bed) setPolicy(text string) {
	b.exec("DELETE FROM common_process_log_setting", "INSERT INTO common_process_log_setting (name, value, version, actor, reason, at) VALUES ('"+policySetting+"', '"+text+"', 1, 'test', 'test', 0)")
}

// Failure: F136
func TestPolicyDecidesByRoleTypeAndAmount(t *testing.T) {
	p, err := parsePolicy([]byte(`{"roles": {"host": {"rights": ["*"]}, "reader": {"rights": ["see entries"], "types": ["refund"]},
		"night": {"rights": ["see entries", "requeue", "note"], "entries": 20, "amounts": {"CNY": 1000}}},
		"people": {"ann": "host", "bob": "reader", "bob@far": "host", "mei": "night"}}`))
	require.NoError(t, err)
	worth := func(amount int64, currency string) admin.Subject {
		return admin.Subject{Type: "refund", Count: 1, Amount: compensator.Amount{Minor: amount, Currency: currency}}
	}
	for _, c := range []struct {
		who   string
		right admin.Right
		on    admin.Subject
		may   bool
	}{
		{"ann@here", policyRight, admin.Subject{}, true},
		{"bob@here", admin.SeeEntries, worth(1, "CNY"), true},
		{"bob@here", admin.SeeEntries, admin.Subject{Type: "mail"}, false},
		{"bob@here", admin.SeeEntries, admin.Subject{}, false},
		{"bob@here", admin.Requeue, worth(1, "CNY"), false},
		{"bob@far", admin.Requeue, worth(1, "CNY"), true},
		{"mei@here", admin.Requeue, worth(1000, "CNY"), true},
		{"mei@here", admin.Requeue, worth(1001, "CNY"), false},
		{"mei@here", admin.Requeue, worth(-1001, "CNY"), false},
		{"mei@here", admin.Requeue, worth(1, "USD"), false},
		{"mei@here", admin.Requeue, worth(0, ""), false},
		{"mei@here", admin.NoteCase, worth(0, ""), true},
		{"mei@here", admin.Requeue, admin.Subject{Type: "refund", Count: 21, Amount: compensator.Amount{Minor: 1, Currency: "CNY"}}, false},
		{"eve@here", admin.SeeEntries, worth(1, "CNY"), false},
	} {
		assert.Equal(t, c.may, p.May(t.Context(), admin.Actor{ID: actorPrefix + c.who}, c.right, c.on), "%+v", c)
	}
	p, err = parsePolicy([]byte(`{"roles": {"host": {"rights": ["*"]}, "all": {"rights": ["*"], "amounts": {"CNY": 1000}}, "none": {}}, "people": {"ann": "host", "mei": "all", "*": "none"}}`))
	require.NoError(t, err)
	assert.True(t, p.May(t.Context(), admin.Actor{ID: "cli:ann@here"}, admin.Requeue, worth(1001, "CNY")), "the closest name counts")
	for _, right := range []admin.Right{admin.Requeue, admin.RequeueSucceeded, admin.Compensate, admin.SettleManually, admin.Cancel, admin.Complete, admin.Reschedule} {
		assert.True(t, p.May(t.Context(), admin.Actor{ID: "cli:mei@here"}, right, worth(1000, "CNY")), right)
		assert.False(t, p.May(t.Context(), admin.Actor{ID: "cli:mei@here"}, right, worth(1001, "CNY")), right)
	}
	none, err := parsePolicy([]byte(" \n"))
	require.NoError(t, err)
	assert.True(t, none.May(t.Context(), admin.Actor{ID: "cli:eve@here"}, admin.Requeue, worth(1, "CNY")), "then the grants are all there is")
	for _, wrong := range []string{"{}", "[]", "{", policyFor("{}") + "{}", policyFor(`{"rights": ["frob"]}`), policyFor(`{"right": []}`), policyFor(`{"entries": -1}`), policyFor(`{"amounts": {"yuan": 1}}`),
		strings.Replace(policyFor("{}"), `"*": "host"`, `"*": "nobody"`, 1), strings.Replace(policyFor("{}"), `"*"]`, `"requeue"]`, 1)} {
		_, err := parsePolicy([]byte(wrong))
		assert.Error(t, err, wrong)
	}
}

// Failure: F136
func TestPolicyIsHeededByEveryCommand(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t).dead(3)
			assert.Contains(t, b.do("policy").stderr, "there is no policy")
			policy := policyFor(`{"rights": ["*"]}`)
			assert.Equal(t, codeUsage, b.reading("{}", "policy", "set", "-", reason, "--yes").code, "nobody could change it")
			assert.Equal(t, codeDone, b.reading(policy, "policy", "set", "-", reason, "--yes").code)
			assert.JSONEq(t, policy, b.ok("policy"))
			assert.Equal(t, 1, b.count("common_process_log_operation WHERE action='set policy' AND actor='"+actor().ID+"' AND refused=0"))

			id, list := b.entry("d0").ID.String(), []string{"list", "-o", "ids"}
			assert.NotEmpty(t, b.ok(list...))
			b.setPolicy(policyFor(`{"rights": ["see overview", "see entries", "requeue", "take case", "see trail"], "amounts": {"CNY": 12899}}`))
			assert.NotEmpty(t, b.ok(list...))
			b.ok("cases", "take", id, reason)
			for _, args := range [][]string{{"requeue", id, reason, "--yes"}, {"settle", id, reason, "--yes"}, {"cases", "note", id, reason}, {"pause", "refund", reason, "--yes"}, {"get", id, "--content", reason},
				{"purge", "--older", "1h", reason, "--yes"}} {
				b.refused(codeNotAllowed, args...)
			}
			assert.Equal(t, codeNotAllowed, b.reading("", "policy", "set", "-", reason, "--yes").code)
			assert.Equal(t, 7, b.count("common_process_log_operation WHERE refused=1 AND actor='"+actor().ID+"'"))
			assert.Equal(t, compensator.Dead, b.entry("d0").State)

			b.setPolicy(policyFor(`{"rights": ["*"], "entries": 1}`))
			one, other := b.entry("d1").ID.String(), b.entry("d2").ID.String()
			b.refused(codeNotAllowed, "cases", "take", one, other, reason)
			assert.Equal(t, 1, b.count("common_process_log_case WHERE owner<>''"))
			b.ok("cases", "take", one, reason)

			b.setPolicy(policyFor(`{"rights": ["*"], "types": ["mail"]}`))
			assert.Empty(t, b.ok(list...))
			assert.NotContains(t, b.ok("types"), "refund")
			assert.NotContains(t, b.ok("cases", "list"), id)
			b.exec("DELETE FROM common_process_log_case")
			none := b.do("cases", "list")
			assert.Equal(t, codeDone, none.code)
			assert.NotContains(t, none.stderr, "dead without a case", "which would name one")
			for _, args := range [][]string{{"get", id}, {"explain", id}, {"timeline", id}, {"history", id}, {"requeue", id, reason, "--yes"}} {
				b.refused(codeNotFound, args...)
			}
			for _, args := range [][]string{{"overview"}, {"health"}, {"batch", "b77"}} {
				b.refused(codeNotAllowed, args...)
			}
			b.setPolicy(`{"roles": {}}`)
			assert.Contains(t, b.refused(codeNotAllowed, "list"), "cannot be read")
			b.exec("DELETE FROM common_process_log_setting")
			b.ok("requeue", id, reason, "--yes", "--delay", "1h")
		})
	}
}

func TestPolicyIsShownWithoutWhatATerminalWouldDo(t *testing.T) {
	t.Parallel()
	b := inSQLite(t)
	text := strings.Replace(policyFor(`{"rights": ["*"]}`), `"*":`, "\"a\u202eb\": \"host\", \"*\":", 1)
	require.Equal(t, codeDone, b.reading(text, "policy", "set", "-", "--reason", "\x1b[31mred", "--yes").code)
	a := b.do("policy")
	assert.Contains(t, a.stdout, `a\u202eb`)
	assert.Contains(t, a.stderr, `\x1b[31mred`)
	assert.NotContains(t, a.stdout+a.stderr, "\x1b")
	assert.NotContains(t, a.stdout, "\u202e")
}

// Failure: F136
func TestPolicySetMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			file := filepath.Join(t.TempDir(), "policy.json")
			require.NoError(t, os.WriteFile(file, []byte(policyFor(`{"rights": ["*"]}`)), 0o600))
			theirs := policyFor(`{"rights": ["set policy"]}`)
			said, code := onTerminal(t, b.program("policy", "set", file, reason), "type policy to set", func(type_ func(string)) {
				b.setPolicy(theirs)
				type_("policy\n")
			})
			assert.Equal(t, codeChanged, code, said)
			assert.JSONEq(t, theirs, b.ok("policy"))
			assert.Zero(t, b.count("common_process_log_operation"))
		})
	}
}
