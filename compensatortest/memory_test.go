package compensatortest_test

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

func memory(*testing.T) compensatortest.Harness {
	store := compensatortest.NewMemoryStore()
	return compensatortest.Harness{Store: store, Begin: store.Begin, Autocommit: autocommit{}, Crash: func(*testing.T) { store.Crash() }}
}

// autocommit is a handle that is no transaction.
type autocommit struct{}

func (autocommit) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }

func (autocommit) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, nil }

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
