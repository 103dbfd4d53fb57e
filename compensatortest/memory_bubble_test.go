package compensatortest

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryStoreKeepsEveryPromiseInABubble(t *testing.T) {
	for _, promise := range everyStorePromise() {
		t.Run(promise.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				<-time.After(700 * time.Microsecond) // a bubble begins at a whole millisecond, the one moment that is easy
				store := NewMemoryStore()
				h := Harness{Store: store, Begin: store.Begin, Crash: func(*testing.T) { store.Crash() }}
				promise.test(&storeTest{T: t, Harness: h, ctx: t.Context()})
			})
		})
	}
}
