package recording

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
)

// Failure: F34
func TestContentOfAnyBytesReachesTheHandler(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	contents := [][]byte{nil, {}, {0}, every, []byte("退款 😀 '\"\\"), bytes.Repeat([]byte{'\''}, 200<<10)}
	for name, params := range map[string]map[string]string{
		"prepared":             {},
		"interpolated":         {"interpolateParams": "true"},
		"no backslash escapes": {"interpolateParams": "true", "sql_mode": "'NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES'"},
	} {
		t.Run(name, func(t *testing.T) {
			w := harness.NewWorld(t)
			cfg := w.QuickConfig()
			cfg.DB = w.Open(harness.WatchedPool(harness.WithParams(t, w.DSN, params)))
			c := w.New(cfg)
			_, err := compensator.Handle(t.Context(), c, "raw", func(_ context.Context, e *compensator.Entry, content []byte) error {
				assert.True(t, bytes.Equal(contents[e.MaxAttempts-1], content), "content %d", e.MaxAttempts-1)
				return nil
			}, &compensator.HandlerConfig[[]byte]{TypeConfig: compensator.TypeConfig{Codec: raw{}}})
			require.NoError(t, err)
			w.Run(c)
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				for i, content := range contents {
					_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "raw", Content: content, Options: compensator.Options{MaxAttempts: i + 1}})
					require.NoError(t, err)
				}
			})
			tx := w.Begin(cfg.DB)
			_, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "raw", Content: make([]byte, 300<<10)})
			require.ErrorAs(t, err, new(*compensator.FieldError))
			require.NoError(t, tx.Rollback())
			w.WaitAllEnded()
			assert.Equal(t, len(contents), w.Count("common_process_log WHERE state=1"))
		})
	}
}

// Each entry fits into one packet of the server, but all of them together do not.
// Failure: F34
func TestEntriesThatNewTakesFitTogether(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t, "--max-allowed-packet=1M")
	for name, params := range map[string]map[string]string{"prepared": {}, "packets as the server's": {"maxAllowedPacket": "0"}, "interpolated": {"interpolateParams": "true"}} {
		w := harness.WorldAt(t, server.Database(t))
		cfg := w.QuickConfig()
		cfg.DB = w.Open(harness.WatchedPool(harness.WithParams(t, w.DSN, params)))
		c := w.New(cfg)
		for fill, of := range map[string]compensator.NewEntry{
			"bytes":  {BusinessType: "raw", Content: bytes.Repeat([]byte("x"), 256<<10)},
			"quotes": {BusinessType: "raw", Content: bytes.Repeat([]byte(`"`), 256<<10)},
			"no content": {BusinessType: "raw", Options: compensator.Options{
				BusinessID: strings.Repeat("关", 64), UserName: strings.Repeat("'", 64), Headers: map[string]string{"why": strings.Repeat("'", 2000)},
			}},
		} {
			entries := slices.Repeat([]compensator.NewEntry{of}, 6)
			if of.Content == nil {
				entries = slices.Repeat(entries, 80)
			}
			w.InTx(cfg.DB, func(tx *sql.Tx) {
				_, err := c.Record(t.Context(), tx, entries...)
				require.NoError(t, err, "%s, %s", name, fill)
			})
		}
		require.Equal(t, 6+6+480, w.Count("common_process_log"), name)
	}
}

// Failure: F34
func TestBatchOfThousandsIsRecordedWhole(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		const n = 2000
		c := w.New(cfg)
		_, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Concurrency: 500}, nil)
		w.Run(c)
		var receipt *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			var err error
			receipt, err = c.Record(t.Context(), tx, harness.NewUntyped(n)...)
			require.NoError(t, err)
			require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
		})
		receipt.Committed()
		w.WaitAllEnded()
		assert.Equal(t, n, w.Count("common_process_log WHERE state=1"))
		for _, e := range receipt.Entries {
			require.Equal(t, 1, ran.Of(e.ID))
		}
	})
}
