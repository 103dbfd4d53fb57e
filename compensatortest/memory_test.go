package compensatortest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

func memory(*testing.T) compensatortest.Harness {
	store := compensatortest.NewMemoryStore()
	return compensatortest.Harness{Store: store, Begin: func(ctx context.Context) (compensator.Transaction, error) { return store.Begin(ctx) }}
}

func TestMemoryStoreKeepsEveryPromise(t *testing.T) { compensatortest.TestStore(t, memory) }

func TestMemoryStoreRunsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := compensatortest.NewMemoryStore()
		c, err := compensator.New(t.Context(), compensator.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
