package admin_test

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// If the Admin read the content of a hidden entry, a large content would make the answer slower. The time of the answer
// would then reveal that the entry exists.
// Failure: F122
func TestNoContentOfAHiddenEntryIsRead(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: mailOnly})
	before := b.store.loaded.Load()
	for _, ref := range []compensator.Ref{b.dead.ID, b.dead.IdempotencyKey, b.succeeded.ID, compensator.IdempotencyKey("")} {
		_, err := d.Entry(t.Context(), mei, ref)
		require.ErrorIs(t, err, compensator.ErrNotFound)
		_, err = d.Explain(t.Context(), mei, ref)
		require.ErrorIs(t, err, compensator.ErrNotFound)
		_, _, err = d.ExplainedEntry(t.Context(), mei, ref)
		require.ErrorIs(t, err, compensator.ErrNotFound)
		_, err = d.Reveal(t.Context(), mei, ref, why)
		require.ErrorIs(t, err, compensator.ErrNotFound)
		require.ErrorIs(t, d.Note(t.Context(), mei, ref, why), compensator.ErrNotFound)
	}
	assert.Equal(t, before, b.store.loaded.Load())
	_, err := b.admin(admin.Options{Access: everything}).Entry(t.Context(), mei, b.dead.IdempotencyKey)
	require.NoError(t, err)
	assert.Greater(t, b.store.loaded.Load(), before)
}

// Failure: F122
func TestLimitOfHiddenTypesIsLikeNone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	hidden := b.admin(admin.Options{Access: mailOnly})
	limits, err := b.admin(admin.Options{Access: everything}).Limits(t.Context(), mei)
	require.NoError(t, err)
	require.Contains(t, asJSON(t, limits), refundType)
	values := admin.LimitValues{Concurrent: 7}
	before := b.standing()
	var told [2]string
	for i, name := range []string{refundType, "nobody"} {
		n := len(b.auditLog(true))
		err := hidden.ChangeLimit(t.Context(), mei, admin.Limit{Name: name}, values, why)
		require.ErrorIs(t, err, compensator.ErrNotFound)
		records := b.auditLog(true)
		require.Len(t, records, n+1)
		told[i] = strings.ReplaceAll(err.Error()+" "+records[0].BusinessType+" "+records[0].Subject, name, "#")
	}
	assert.Equal(t, told[1], told[0])
	require.ErrorIs(t, b.admin(admin.Options{Access: everything}).ChangeLimit(t.Context(), mei, admin.Limit{}, values, why), compensator.ErrNotFound, "no name is not the name of the first limit")
	sees := b.admin(admin.Options{Access: having(admin.SeeOverview)})
	require.ErrorIs(t, sees.ChangeLimit(t.Context(), mei, admin.Limit{Name: refundType}, values, why), admin.ErrNotAllowed)
	assert.Equal(t, before, b.standing())
}

// A record that does not fit into its column would be missing from the audit log.
// Failure: F126
func TestRefusalIsRecordedWhateverTheRequestNames(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	d := b.admin(admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return false })})
	long := strings.Repeat("型", 3000)
	_, err := d.Export(t.Context(), mei, admin.Filter{BusinessType: long}, why)
	require.Error(t, err)
	_, err = d.StartMatching(t.Context(), mei, admin.Change{Action: admin.Cancel, Why: why}, admin.Search{Filter: admin.Filter{BusinessType: long, States: []compensator.State{compensator.Dead}}}, admin.BulkOptions{})
	require.Error(t, err)
	require.Error(t, d.ChangeLimit(t.Context(), mei, admin.Limit{Name: long}, admin.LimitValues{Burst: 2}, why))
	records := b.auditLog(true)
	assert.Len(t, records, 3)
	for _, r := range records {
		assert.LessOrEqual(t, utf8.RuneCountInString(r.Subject), 191)
	}
}
