package admin_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

func ordered(t *testing.T, ids map[string]string) *bed {
	b := newBed(t)
	for _, id := range slices.Sorted(maps.Keys(ids)) { // The method Near returns the newest entry for some texts, so record the entries in a known order.
		b.die(ids[id], compensator.Options{IdempotencyKey: compensator.IdempotencyKey("find " + id), BusinessID: id, BusinessExtID: "ext-" + id, BatchID: "b:" + id})
	}
	return b
}

func TestFindTakesAnExactIDBeforeABeginning(t *testing.T) {
	t.Parallel()
	b := ordered(t, map[string]string{"x-24": mailType, "x-2489": mailType, "x_2489": mailType})
	d := b.admin(admin.Options{Access: everything})
	for text, want := range map[string]admin.Match{
		"x-24": {Kind: admin.KindBusiness}, "x-248": {Kind: admin.KindBusiness, Prefix: true}, "ext-x-2": {Kind: admin.KindBusinessExt, Prefix: true}, "b:x-24": {Kind: admin.KindBatch},
		"x_2": {Kind: admin.KindBusiness, Prefix: true}, "x__": {}, "x%": {}, "X-24": {}, "y": {}, "": {},
	} {
		found, err := d.Find(t.Context(), mei, text)
		require.NoError(t, err)
		assert.Equal(t, want, found, text)
	}
}

func TestNearIDsAreThoseThatAPersonMayHaveMeant(t *testing.T) {
	t.Parallel()
	b := ordered(t, map[string]string{"x-24897494": mailType, "x-24897400": mailType, "Refund/7": mailType})
	d := b.admin(admin.Options{Access: everything})
	for text, want := range map[string]string{
		"24897494":   "x-24897494", // without the beginning
		"o-24897494": "x-24897494", // with another beginning
		"x-24879494": "x-24897494", // two digits exchanged
		"x-24897493": "x-24897494", // another last digit
		"x-248974":   "x-24897494", // a part
		"X-24897494": "x-24897494", // in capitals
		"Refund/8":   "Refund/7",
	} {
		near, err := d.Near(t.Context(), mei, text)
		require.NoError(t, err)
		assert.Contains(t, near, admin.NearID{Kind: admin.KindBusiness, ID: want}, text)
		assert.LessOrEqual(t, len(near), 5, text)
	}
	last := b.store.Rows()[len(b.store.Rows())-1].ID.String()
	near, err := d.Near(t.Context(), mei, "#"+last+"0")
	require.NoError(t, err)
	assert.Contains(t, near, admin.NearID{Kind: admin.KindEntry, ID: last}, "a digit too many")
	for _, text := range []string{"", "x", "x-", "no id of ours at all", "x-99999999", "\xff\xff\xff\xff", strings.Repeat("x", 65), "%%%", "___"} {
		near, err := d.Near(t.Context(), mei, text)
		require.NoError(t, err, text)
		assert.Empty(t, near, text)
	}
}

// A search must not confirm a hidden id, neither by its result nor by the pages that it reads.
// Failure: F122
func TestSearchTellsNothingOfHiddenEntries(t *testing.T) {
	t.Parallel()
	visible := map[string]string{"m-1000": mailType, "m-1001": mailType}
	hidden := map[string]string{"m-1000": mailType, "m-1001": mailType, "m-1002": refundType, "m-2000": refundType, "24897494": refundType}
	texts := []string{"m-1002", "m-100", "m-1", "m-20", "m-2000", "24897494", "2489749", "24897449", "ext-m-2000", "b:m-2", "M-2000", "1002", "find m-2000"}
	var answers [2]string
	for i, ids := range []map[string]string{visible, hidden} {
		b := ordered(t, ids)
		d := b.admin(admin.Options{Access: mailOnly})
		for _, text := range texts {
			near, err := d.Near(t.Context(), mei, text)
			require.NoError(t, err)
			// Hidden entries use up entry ids, so the same visible entry has a different id in each log. Compare
			// business ids instead.
			for n := range near {
				for _, row := range b.store.Rows() {
					if near[n].Kind == admin.KindEntry && near[n].ID == row.ID.String() {
						assert.Equal(t, mailType, row.BusinessType, text)
						near[n].ID = row.BusinessID
					}
				}
			}
			var read []string
			b.store.entries = func(f admin.Filter) {
				read = append(read, fmt.Sprint(f.BusinessTypes, f.BusinessID, f.BusinessExtID, f.BatchID, f.Prefix))
			}
			_, err = d.Near(t.Context(), mei, text)
			require.NoError(t, err)
			b.store.entries = nil
			found, err := d.Find(t.Context(), mei, text)
			require.NoError(t, err)
			answers[i] += fmt.Sprintln(text, near, found, read)
			assert.LessOrEqual(t, len(read), 29, "%s: Near sends one more query, for ids of entries", text)
		}
	}
	assert.Equal(t, answers[0], answers[1])
	b := ordered(t, hidden)
	d := b.admin(admin.Options{Access: mailOnly})
	for _, row := range b.store.Rows() {
		near, err := d.Near(t.Context(), mei, "#"+row.ID.String()+"0")
		require.NoError(t, err)
		assert.Equal(t, row.BusinessType == mailType, slices.Contains(near, admin.NearID{Kind: admin.KindEntry, ID: row.ID.String()}), "%s %s", row.BusinessType, row.ID)
	}
	nobody := ordered(t, hidden).admin(admin.Options{Access: admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return false })})
	for _, text := range texts {
		near, err := nobody.Near(t.Context(), mei, text)
		require.NoError(t, err)
		assert.Empty(t, near)
		found, err := nobody.Find(t.Context(), mei, text)
		require.NoError(t, err)
		assert.Zero(t, found)
	}
}
