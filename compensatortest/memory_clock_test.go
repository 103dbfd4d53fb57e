package compensatortest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/processlog"
)

func TestMemoryStoreGoesByItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemoryStore()
		st := &storeTest{T: t, Harness: Harness{Store: store, Begin: store.Begin}, ctx: t.Context()}
		row := st.insertOne("clock")
		claimed := st.claim(row.ID, token(1), time.Hour)
		store.ShiftClock(50 * time.Minute)
		assert.Equal(t, 10*time.Minute, st.load(row.ID).LeaseLeft)
		assert.Equal(t, -50*time.Minute, st.load(row.ID).DueIn)
		store.ShiftClock(-20 * time.Minute)
		assert.Equal(t, 30*time.Minute, st.load(row.ID).LeaseLeft)
		again := st.insertOne("clock")
		assert.Equal(t, 30*time.Minute, again.CreatedAt.Sub(row.CreatedAt))
		assert.Equal(t, time.Duration(0), again.DueIn)
		store.ShiftClock(30*time.Minute - time.Millisecond)
		due, err := store.Due(t.Context(), "clock", 9)
		assert.NoError(t, err)
		assert.Equal(t, []processlog.ID{again.ID}, due, "the lease lasts one more millisecond")
		store.ShiftClock(time.Millisecond)
		assert.Equal(t, claimed.Version+1, st.claim(row.ID, token(2), time.Hour).Version)
	})
}
