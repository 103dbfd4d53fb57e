package desk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/desk"
)

// canary stands in all of an entry that few may see, and in no id.
const canary = "canary-8842177"

// payment is what the types' entries hold.
type payment struct {
	Order, Card string
	Minor       int64
}

// bed is a log in memory with entries of two types.
type bed struct {
	t     *testing.T
	store *compensatortest.MemoryStore
	c     *compensator.Compensator

	dead, succeeded, pending compensator.Entry // of type refund; those of type mail stand beside them
	otherDead                compensator.Entry
}

const (
	refundType = "refund"
	mailType   = "mail"
)

func newBed(t *testing.T) *bed {
	store := compensatortest.NewMemoryStore()
	c, err := compensator.New(t.Context(), compensator.Config{Store: store, Queue: compensatortest.NewMemoryQueue().Client(), Logger: slog.New(slog.DiscardHandler),
		Operations: &compensator.Operations{Types: map[string]compensator.CaseConfig{
			refundType: {Amount: func(e *compensator.Entry) (compensator.Amount, error) {
				var p payment
				err := e.Decode(&p)
				return compensator.Amount{Minor: p.Minor, Currency: "CNY"}, err
			}},
		}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	b := &bed{t: t, store: store, c: c}
	for _, name := range []string{refundType, mailType} {
		secret := map[string]string{refundType: canary, mailType: "another's"}[name]
		typ, err := compensator.Handle(c, name, func(_ context.Context, e *compensator.Entry, p payment) error {
			if p.Order == "dies" {
				return compensator.Permanent(errors.New("no such card " + `"` + secret + `"`))
			}
			return nil
		}, compensator.TypeConfig{})
		require.NoError(t, err)
		opts := func(id string) compensator.Options {
			return compensator.Options{IdempotentID: name + id, BusinessID: "o-" + name, UserName: secret, UserID: "7", Headers: map[string]string{"who": secret}}
		}
		dead := compensatortest.Call(t, c, typ, payment{"dies", secret, 12900}, opts("-dead"))
		require.Equal(t, compensator.Dead, dead.State)
		if name == mailType {
			b.otherDead = dead
			continue
		}
		b.dead = dead
		b.succeeded = compensatortest.Call(t, c, typ, payment{"lives", canary, 100}, opts("-succeeded"))
		require.Equal(t, compensator.Succeeded, b.succeeded.State)
		require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := typ.Record(ctx, tx, payment{"waits", canary, 100}, opts("-pending"))
			if err != nil {
				return err
			}
			id := receipt.ID()
			b.pending.ID = id
			return nil
		}))
		e, err := c.Get(t.Context(), b.pending.ID)
		require.NoError(t, err)
		b.pending = *e
	}
	return b
}

func (b *bed) desk(opts desk.Options) *desk.Desk {
	b.t.Helper()
	d, err := desk.New(b.c, opts)
	require.NoError(b.t, err)
	return d
}

// caseOf is the case of the dead refund.
func (b *bed) caseOf() desk.Case {
	cases, err := b.store.CasesOf(b.t.Context(), []compensator.EntryID{b.dead.ID})
	require.NoError(b.t, err)
	require.Len(b.t, cases, 1)
	return cases[0]
}

// standing is all that an action could have changed, refusals apart.
func (b *bed) standing() string {
	var cases []desk.Case
	for _, row := range b.store.Rows() {
		of, err := b.store.CasesOf(b.t.Context(), []compensator.EntryID{row.ID})
		require.NoError(b.t, err)
		cases = append(cases, of...)
	}
	settings, err := b.store.Settings(b.t.Context())
	require.NoError(b.t, err)
	var versions []string
	for _, row := range b.store.Rows() {
		versions = append(versions, fmt.Sprint(row.ID, row.State, row.Version, row.Epoch))
	}
	return asJSON(b.t, []any{cases, settings, versions, b.trail(false)})
}

// trail is what is on record, refusals or all else.
func (b *bed) trail(refused bool) (found []desk.TrailRecord) {
	page, err := b.store.Trail(b.t.Context(), desk.TrailFilter{Limit: 1000})
	require.NoError(b.t, err)
	for _, r := range page.Records {
		if r.Refused == refused {
			found = append(found, r)
		}
	}
	return found
}

func asJSON(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
