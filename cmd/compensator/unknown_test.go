package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

// hang records n transfers that time out, with the keys t0, t1 and so on.
func (b *bed) hang(n int) *bed {
	transfers, err := compensator.Handle(b.T.Context(), b.c, "transfer", func(ctx context.Context, _ *compensator.Entry, _ harness.Order) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1, Timeout: 20 * time.Millisecond})
	require.NoError(b, err)
	refunds := b.typ
	b.typ = transfers
	defer func() { b.typ = refunds }()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("t", i)
	}
	return b.put("", keys...)
}

// An attempt timed out, so each command needs --checked. --yes is not enough.
// Failure: F119
func TestUnknownOutcomesWaitForAWord(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t).dead(2).hang(12)
			id := b.entry("t0").ID.String()
			piped := b.ok("list", "--where", "type=transfer", "-o", "ids")
			failure := items(t, b.ok("cases", "list", "--groups", "--type", "transfer", "-o", "json"))[0]["failure"].(string)
			before := b.ok("list", "--where", "batch=b77", "-o", "json")
			for _, verb := range []string{"requeue", "compensate", "settle", "cancel", "complete"} {
				for way, args := range map[string][]string{
					"an id": {id}, "a key": {"key:t0"}, "an id and its version": {fmt.Sprintf("%s:%d", id, b.entry("t0").Version)},
					"a state": {"--where", "state=dead"}, "a batch": {"--where", "batch=b77"}, "a failure": {"--where", "failure=" + failure}, "a pipe": {"-"},
				} {
					stdin := ""
					if way == "a pipe" {
						stdin = piped
					}
					got := b.reading(stdin, append(append([]string{verb}, args...), reason, "--yes")...)
					require.Equal(t, codeUsage, got.code, "%s %s: %s%s", verb, way, got.stdout, got.stderr)
					assert.Contains(t, got.stderr, "--checked", "%s %s", verb, way)
					if strings.Contains(way, "id") || way == "a key" {
						assert.Contains(t, got.stderr, id, "%s %s names the entry", verb, way)
						continue
					}
					assert.Contains(t, got.stderr, "12 entries", "%s %s counts them", verb, way)
					assert.Contains(t, got.stderr, "and 2 more", "%s %s names ten of them", verb, way)
				}
			}
			assert.Equal(t, before, b.ok("list", "--where", "batch=b77", "-o", "json"), "nothing was done, to the others neither")
			assert.Zero(t, b.count("common_process_log_audit"))

			left := b.do("requeue", "--where", "state=dead", reason, "--yes", "--skip-unknown", "--delay", "1h")
			assert.Equal(t, codeDone, left.code, left.stderr)
			assert.Contains(t, left.stderr, "12 entries")
			assert.Equal(t, compensator.Pending, b.entry("d0").State)
			assert.Equal(t, compensator.Dead, b.entry("t0").State)
			assert.Contains(t, b.ok("requeue", "key:t0", reason, "--yes", "--skip-unknown"), "", "nothing is left, which is no error")
			assert.Equal(t, compensator.Dead, b.entry("t0").State)

			b.ok("requeue", "key:t0", reason, "--yes", "--checked", "--delay", "1h")
			for i, verb := range []string{"compensate", "settle", "cancel", "complete"} {
				b.ok(verb, fmt.Sprint("key:t", 1+i), reason, "--yes", "--checked")
			}
			assert.Equal(t, 7, b.count("common_process_log_audit WHERE entry_id>0"))
			assert.Equal(t, 1, b.count("common_process_log_audit WHERE entry_id=0"), "the action on several entries")
			b.refused(codeUsage, "requeue", "key:t3", reason, "--yes", "--checked") // A cancelled entry has ended, so it also needs --again.
			b.ok("requeue", "key:t3", reason, "--yes", "--checked", "--again", "--delay", "1h")
			b.refused(codeUsage, "requeue", "key:t5", reason, "--yes", "--checked", "--skip-unknown")
			b.refused(codeUsage, "reschedule", "key:t5", reason, "--yes", "--checked")
		})
	}
}

// Failure: F124
func TestMistypedTypesAreNamed(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t).dead(1).put("", "lives0")
			const near = `there is no business type "refnud" here; did you mean "refund"?`
			got := b.refused(codeNotFound, "pause", "refnud", reason, "--yes")
			assert.Contains(t, got, near)
			assert.Contains(t, got, "--ahead")
			assert.Contains(t, b.refused(codeNotFound, "resume", "refnud", reason, "--yes"), near)
			assert.Contains(t, b.refused(codeNotFound, "resume", "refund", reason, "--yes"), `"refund" is not paused`)
			assert.NotContains(t, b.refused(codeNotFound, "resume", "refnud", reason, "--yes"), "admin:")
			assert.Zero(t, b.count("common_process_log_setting"))
			for _, args := range [][]string{{"list", "--where", "type=refnud"}, {"cases", "list", "--type", "refnud"}, {"requeue", "--where", "type=refnud", reason, "--yes"}} {
				empty := b.do(args...)
				assert.Equal(t, codeDone, empty.code, "%v: %s", args, empty.stderr)
				assert.Contains(t, empty.stderr, near, "%v", args)
			}
			known := b.do("list", "--where", "type=refund,state=cancelled")
			assert.NotContains(t, known.stderr, "there is no business type")
			without := b.refused(codeNotFound, "cases", "take", b.entry("lives0").ID.String(), reason)
			assert.Contains(t, without, "has no case")
			assert.NotContains(t, without, "no such entry")
			b.ok("pause", "refnud", reason, "--yes", "--ahead")
			b.ok("resume", "refnud", reason, "--yes")
		})
	}
}
