package recording

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/internal/testservers"
	"github.com/compensator-go/compensator/observe"
)

// repository has the methods of a transaction, but is not a transaction.
type repository struct{ compensator.Tx }

// Failure: F4
func TestRecordRefusesHandlesWithoutOpenTransaction(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		ended := func(end func(*sql.Tx) error) *sql.Tx {
			tx := w.Begin(db)
			require.NoError(t, end(tx))
			return tx
		}
		for name, handle := range map[string]compensator.Tx{
			"pool": db, "connection": conn, "wrapper": repository{db}, "wrapped wrapper": &repository{repository{conn}},
			"committed": ended((*sql.Tx).Commit), "rolled back": ended((*sql.Tx).Rollback), "sqlx pool": sqlx.NewDb(db, "mysql"),
		} {
			t.Run(name, func(t *testing.T) {
				for _, n := range []int{1, 3} {
					_, err := c.Record(t.Context(), handle, make([]compensator.NewEntry, n)...)
					require.Error(t, err, "an entry without a type")
					_, err = c.Record(t.Context(), handle, harness.NewUntyped(n)...)
					require.ErrorIs(t, err, compensator.ErrNoTransaction)
					require.ErrorContains(t, err, fmt.Sprintf("%T: ", handle), "it names the handle, and what is wrong with it")
				}
			})
		}
		for _, none := range []compensator.Tx{nil, (*sql.Tx)(nil), (*sqlx.Tx)(nil), (*compensator.ScopedTx)(nil), (*harness.Known)(nil)} {
			_, recorded := c.Record(t.Context(), none, harness.NewUntyped(1)...)
			_, cancelled := c.CancelTx(t.Context(), none, compensator.IdempotencyKey("close-1"))
			for _, err := range []error{recorded, cancelled} {
				var field *compensator.FieldError
				require.ErrorAs(t, err, &field)
				require.Equal(t, "tx", field.Field)
			}
		}
		assert.Zero(t, w.Count("common_process_log"), "an entry became durable before any business change")
	})
}

// Failure: F4
func TestEntryRecordedThroughAWrappedTransactionRuns(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg, ready := w.HooksOnlyConfig(cfg)
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
		w.Run(c)
		ready()
		tx, err := sqlx.NewDb(cfg.DB, "mysql").BeginTxx(t.Context(), nil)
		require.NoError(t, err)
		first, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
		second, err := orders.Record(t.Context(), repository{tx}, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		first.Committed()
		second.Committed()
		w.WaitAllEnded()
		assert.Equal(t, 1, ran.Of(first.ID()))
		assert.Equal(t, 1, ran.Of(second.ID()))
	})
}

// Failure: F3
func TestEveryFaultOfAnEntryIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB, cfg.MaxContent = db, 1000
		c := w.New(cfg)
		long := strings.Repeat("ü", 65)
		bad := compensator.NewEntry{BusinessType: " ", Content: make([]byte, 1001), Options: compensator.Options{
			IdempotencyKey: "key ", BatchID: long, BusinessID: "\xff", BusinessExtID: "a\x00b", UserID: long, UserName: long,
			Headers: map[string]string{"": "x"}, Delay: time.Second, At: time.Now(), MaxAttempts: -1,
		}}
		tx := w.Begin(db)
		_, err := c.Record(t.Context(), tx, harness.NewUntyped(1)[0], bad)
		for _, field := range []string{
			"entry 2 of 2", "business type", "idempotency key", "batch id", "business id", "business ext id", "user id", "user name", "content", "At", "max attempts", "headers",
		} {
			assert.ErrorContains(t, err, field)
		}
		_ = tx.Commit()
		assert.Zero(t, w.Count("common_process_log"), "a refused call writes nothing")
	})
}

// Failure: F15, F34
func TestTextIsRefusedBeforeTheServerCutsOrRejectsIt(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	record := func(opts compensator.Options) error {
		return c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			// New has found a strict session. After this statement the session truncates values silently.
			if _, err := tx.ExecContext(ctx, "SET SESSION sql_mode=''"); err != nil {
				return err
			}
			_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Options: opts})
			return err
		})
	}
	var field *compensator.FieldError
	for _, key := range []string{strings.Repeat("k", 192), strings.Repeat("😀", 192), "half a rune \xf0\x9f", "nul \x00"} {
		require.ErrorAs(t, record(compensator.Options{IdempotencyKey: compensator.IdempotencyKey(key)}), &field, "%q", key)
		assert.Equal(t, "idempotency key", field.Field)
	}
	long := strings.Repeat("😀", 191)
	require.NoError(t, record(compensator.Options{IdempotencyKey: compensator.IdempotencyKey(long), BusinessID: long[:4*64]}))
	e, err := c.Get(t.Context(), compensator.IdempotencyKey(long))
	require.NoError(t, err)
	assert.EqualValues(t, long, e.IdempotencyKey)
	assert.Equal(t, long[:4*64], e.BusinessID)
}

// refusedEntries are calls of Record that must fail before a statement is sent.
var refusedEntries = map[string]func(t *testing.T, c *compensator.Compensator, orders *compensator.Type[harness.Order], tx compensator.Tx) error{
	"content too long": func(t *testing.T, c *compensator.Compensator, _ *compensator.Type[harness.Order], tx compensator.Tx) error {
		_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Content: make([]byte, 1001)})
		return err
	},
	"second of two entries": func(t *testing.T, c *compensator.Compensator, _ *compensator.Type[harness.Order], tx compensator.Tx) error {
		_, err := c.Record(t.Context(), tx, append(harness.NewUntyped(1), compensator.NewEntry{})...)
		return err
	},
	"option": func(t *testing.T, _ *compensator.Compensator, orders *compensator.Type[harness.Order], tx compensator.Tx) error {
		_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: -1})
		return err
	},
	"value that cannot be encoded": func(t *testing.T, c *compensator.Compensator, _ *compensator.Type[harness.Order], tx compensator.Tx) error {
		channels, err := compensator.Declare[chan int](t.Context(), c, "close_order", nil)
		assert.NoError(t, err)
		_, err = channels.Record(t.Context(), tx, nil, compensator.Options{})
		return err
	},
	"value that could not be encoded, among others": func(t *testing.T, c *compensator.Compensator, orders *compensator.Type[harness.Order], tx compensator.Tx) error {
		channels, err := compensator.Declare[chan int](t.Context(), c, "close_order", nil)
		assert.NoError(t, err)
		_, err = c.Record(t.Context(), tx, orders.Entry(harness.Order{}, compensator.Options{}), channels.Entry(nil, compensator.Options{}))
		assert.ErrorContains(t, err, "entry 2 of 2: ")
		assert.ErrorContains(t, err, "content")
		return err
	},
}

// Failure: F3, F34
func TestBusinessIsNotCommittedWithoutARefusedEntry(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB, cfg.MaxContent = db, 1000
		ended := make(chan error, 1)
		cfg.Observer.AttemptEnded = func(e observe.AttemptEvent) { ended <- e.Err }
		c := w.New(cfg)
		orders, err := compensator.Declare[harness.Order](t.Context(), c, "close_order", nil)
		require.NoError(t, err)
		handled := make(chan func(tx compensator.Tx) error, 1)
		pays, err := compensator.HandleTx(t.Context(), c, "pay_order", func(_ context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, _ harness.Order) error {
			return (<-handled)(tx)
		}, &compensator.HandlerConfig[harness.Order]{MaxAttempts: 1})
		require.NoError(t, err)
		w.Run(c)
		for name, refused := range refusedEntries {
			for _, savepoint := range []bool{false, true} {
				work := func(tx compensator.Tx) error {
					_, err := tx.ExecContext(t.Context(), "INSERT INTO effects (what) VALUES (?)", name)
					assert.NoError(t, err)
					_, err = tx.ExecContext(t.Context(), "SAVEPOINT before_the_entry")
					assert.NoError(t, err)
					assert.ErrorAs(t, refused(t, c, orders, tx), new(*compensator.FieldError))
					if savepoint {
						_, err = tx.ExecContext(t.Context(), "ROLLBACK TO before_the_entry")
					}
					return err
				}
				errs := map[string]error{
					"closure":        c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error { return work(tx) }),
					"traced closure": c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error { return work(harness.Traced{Tx: tx}) }),
				}
				handled <- work
				w.RecordThrough(db, pays, 1, compensator.Options{})
				errs["handler"] = harness.Receive(t, ended)
				if strings.HasSuffix(t.Name(), "/connector") {
					tx := w.Begin(db)
					require.NoError(t, work(tx))
					errs["transaction"] = tx.Commit()
				}
				for way, err := range errs {
					if savepoint {
						require.NoError(t, err, "%s of a %s: going back to a savepoint gives the entry up", name, way)
					} else {
						require.ErrorIs(t, err, compensator.ErrNotRecorded, "%s of a %s", name, way)
					}
				}
				if !savepoint {
					require.Zero(t, w.Count("effects WHERE what=?", name))
				} else {
					require.Equal(t, len(errs), w.Count("effects WHERE what=?", name))
				}
			}
		}
		assert.Zero(t, w.Count("common_process_log WHERE business_type<>'pay_order'"))
	})
}

// TestBusinessIsNotCommittedWithoutAnEntryThatCameTooLate gives Record a context that ends before the transaction's
// context.
// Failure: F3
func TestBusinessIsNotCommittedWithoutAnEntryThatCameTooLate(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, _ := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	for name, opts := range map[string]compensator.Options{"sound": {}, "refused": {Delay: -1}} {
		tx := w.Begin(w.DB)
		w.WriteEffect(tx, name)
		_, err := orders.Record(late, tx, harness.Order{}, opts)
		require.Error(t, err, name)
		require.ErrorIs(t, tx.Commit(), compensator.ErrNotRecorded, name)
		require.ErrorIs(t, c.InTx(t.Context(), func(_ context.Context, tx *compensator.ScopedTx) error {
			w.WriteEffect(tx, name)
			_, err := orders.Record(late, tx, harness.Order{}, opts)
			require.Error(t, err, name)
			return nil
		}), compensator.ErrNotRecorded, name)
	}
	require.Zero(t, w.Count("effects"))
}

// The library does not watch this handle, so it cannot refuse the commit.
// Failure: F3
func TestRefusedEntryLeavesAnUnwatchedTransactionUsable(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	cfg := w.QuickConfig()
	cfg.DB = w.Open(harness.PlainPool(w.DSN))
	c := w.New(cfg)
	largest := bytes.Repeat([]byte{0, '\'', '\\', 0xff}, 64<<10)
	var receipt *compensator.Receipt
	w.InTx(cfg.DB, func(tx *sql.Tx) {
		w.WriteEffect(tx, "business")
		_, err := c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Content: append(largest, 1)})
		var field *compensator.FieldError
		require.ErrorAs(t, err, &field)
		assert.Equal(t, "content", field.Field)
		receipt, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Content: largest})
		require.NoError(t, err, "the largest allowed")
	})
	e, err := c.Get(t.Context(), receipt.ID())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(largest, e.Content), "content came back different")
	assert.Equal(t, 1, w.Count("effects"))
}

// Failure: F9, F34
func TestContentIsWhatItWasWhenRecorded(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		c := w.New(cfg)
		want := []byte("{\"note\":\"\xff ' \\ \x00 😀\"}") // This content is neither valid JSON nor valid UTF-8.
		_, err := compensator.Handle(t.Context(), c, "close_order", func(_ context.Context, e *compensator.Entry, content []byte) error {
			assert.Equal(t, want, content)
			assert.Equal(t, want, e.Content)
			clear(content)
			clear(e.Content)
			if e.Attempt() < 3 {
				return errors.New("again")
			}
			return nil
		}, &compensator.HandlerConfig[[]byte]{TypeConfig: compensator.TypeConfig{Codec: raw{}}, Retry: compensator.Fixed(0)})
		require.NoError(t, err)
		w.Run(c)
		buffer := bytes.Clone(want)
		var receipt *compensator.Receipt
		w.InTx(cfg.DB, func(tx *sql.Tx) {
			receipt, err = c.Record(t.Context(), tx, compensator.NewEntry{BusinessType: "close_order", Content: buffer})
			require.NoError(t, err)
			clear(buffer)
		})
		receipt.Committed()
		for i := range buffer { // If the library reads the buffer from here on, the race detector reports it.
			buffer[i] = 'x'
		}
		w.WaitState(receipt.ID(), compensator.Succeeded)
	})
}

type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

func idOf(w *harness.World, key string) (id uint64) {
	w.T.Helper()
	require.NoError(w.T, w.DB.QueryRow("SELECT id FROM common_process_log WHERE idempotent_id=?", key).Scan(&id))
	return id
}

// Failure: F13
func TestReceiptNamesTheServersIdsHoweverItStepsThem(t *testing.T) {
	t.Parallel()
	harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
		cfg := w.QuickConfig()
		cfg.DB = db
		c := w.New(cfg)
		var receipts []*compensator.Receipt
		w.InTx(db, func(tx *sql.Tx) {
			for i, step := range []string{"1, auto_increment_offset=2", "3, auto_increment_offset=2", "7, auto_increment_offset=3", "1, auto_increment_offset=1"} {
				_, err := tx.Exec("SET SESSION auto_increment_increment=" + step)
				require.NoError(t, err)
				for _, n := range []int{1, 5} {
					receipt, err := c.Record(t.Context(), tx, harness.NewReverseKeyed(fmt.Sprintf("key-%d-%d", i, n), n)...)
					require.NoError(t, err)
					require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
					receipts = append(receipts, receipt)
				}
				mixed := append(harness.NewReverseKeyed(fmt.Sprintf("key-%d-5", i), 5)[:2], harness.NewReverseKeyed(fmt.Sprintf("new-%d", i), 2)...)
				mixed[1], mixed[2] = mixed[2], mixed[1] // The order is now: duplicate, new, duplicate, new.
				receipt, err := c.Record(t.Context(), tx, mixed...)
				require.NoError(t, err)
				require.NoError(t, receipt.ResolveIDs(t.Context(), tx))
				receipts = append(receipts, receipt)
			}
		})
		for _, receipt := range receipts {
			for _, e := range receipt.Entries {
				assert.Equal(t, idOf(w, string(e.IdempotencyKey)), e.ID.Row(), "%s", e.IdempotencyKey)
			}
		}
	})
}

// Failure: F13
func TestReceiptNamesTheServersIdsWhenProducersInterleave(t *testing.T) {
	t.Parallel()
	server := testservers.NewSQL(t, "--innodb-autoinc-lock-mode=2", "--auto-increment-increment=7", "--auto-increment-offset=3")
	w := harness.WorldAt(t, server.Database(t))
	c := w.New(w.QuickConfig())
	recorded := make(chan *compensator.Receipt, 40)
	for producer := range 4 {
		go func() {
			for i := range 10 {
				err := c.InTx(context.Background(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					receipt, err := c.Record(ctx, tx, harness.NewReverseKeyed(fmt.Sprintf("%d-%d", producer, i), 20)...)
					recorded <- receipt
					return err
				})
				assert.NoError(t, err)
			}
		}()
	}
	for range cap(recorded) {
		receipt := <-recorded
		require.NotNil(t, receipt)
		w.Eventually(func() bool { return receipt.ResolveIDs(t.Context(), nil) == nil && !receipt.ID().IsZero() }, "ids are known")
		for _, e := range receipt.Entries {
			w.Eventually(func() bool { return w.Count("common_process_log WHERE idempotent_id=?", e.IdempotencyKey) == 1 }, "%s commits", e.IdempotencyKey)
			assert.Equal(t, idOf(w, string(e.IdempotencyKey)), e.ID.Row())
		}
	}
}

// Failure: F13
func TestIdsBeyondWhatFloatsHoldTravelUnchanged(t *testing.T) {
	t.Parallel()
	harness.InEveryMode(t, func(t *testing.T, w *harness.World, cfg compensator.Config) {
		cfg, ready := w.HooksOnlyConfig(cfg) // Let only the hooks start entries, because the reconciler would hide a wrong id.
		c := w.New(cfg)
		orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{Retry: compensator.Fixed(20 * time.Millisecond)}, func(_ *compensator.Entry, call int) error {
			if call == 1 {
				return errors.New("again") // Fail, because storing a failure uses the id of the row, too.
			}
			return nil
		})
		w.Run(c)
		ready()
		var receipts []*compensator.Receipt
		for _, first := range []uint64{1<<53 + 1, 1<<63 - 1, 1<<63 + 1} {
			w.Exec(fmt.Sprintf("ALTER TABLE common_process_log AUTO_INCREMENT=%d", first))
			for i := range uint64(2) {
				w.InTx(cfg.DB, func(tx *sql.Tx) {
					receipt, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{Delay: time.Duration(i*50) * time.Millisecond})
					require.NoError(t, err)
					require.Equal(t, first+i, receipt.ID().Row())
					receipts = append(receipts, receipt)
				})
				receipts[len(receipts)-1].Committed()
			}
		}
		w.WaitAllEnded()
		for _, r := range receipts {
			assert.Equal(t, 2, ran.Of(r.ID()), "%s", r.ID())
			e, err := c.Get(t.Context(), r.ID())
			require.NoError(t, err)
			assert.Equal(t, compensator.Succeeded, e.State)
		}
	})
}

// Failure: F14
func TestLogOutOfIdsRefusesAndCommitsNothing(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, ran := harness.HandleCounted(t, c, "close_order", compensator.HandlerConfig[harness.Order]{}, nil)
	w.Run(c)
	w.Exec(fmt.Sprintf("ALTER TABLE common_process_log AUTO_INCREMENT=%d", uint64(math.MaxUint64-1)))
	var last *compensator.Receipt
	w.InTx(w.DB, func(tx *sql.Tx) {
		var err error
		last, err = orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
		require.NoError(t, err)
	})
	w.WaitState(last.ID(), compensator.Succeeded)
	tx := w.Begin(w.DB)
	w.WriteEffect(tx, "business")
	_, err := orders.Record(t.Context(), tx, harness.Order{}, compensator.Options{})
	require.Error(t, err)
	require.ErrorIs(t, tx.Commit(), compensator.ErrNotRecorded)
	assert.Zero(t, w.Count("effects"))
	assert.Equal(t, 1, ran.Total())
}

// unencodable is content that panics when it is encoded. It is also a propagator that carries nothing.
type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { panic("bug") }

func (unencodable) Inject(context.Context) map[string]string { panic("bug") }

func (unencodable) Extract(c context.Context, _ map[string]string) context.Context { return c }

// Failure: F3
func TestBusinessIsNotCommittedAfterAPanicInRecord(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]func(ctx context.Context, c *compensator.Compensator, tx compensator.Tx) error{
		"codec": func(ctx context.Context, c *compensator.Compensator, tx compensator.Tx) error {
			broken, err := compensator.Declare[unencodable](ctx, c, "close_order", nil)
			require.NoError(t, err)
			_, err = broken.Record(ctx, tx, unencodable{}, compensator.Options{})
			return err
		},
		"propagator": func(ctx context.Context, c *compensator.Compensator, tx compensator.Tx) error {
			_, err := c.Record(ctx, tx, compensator.NewEntry{BusinessType: "close_order", Content: []byte("{}")})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harness.InEveryPool(t, func(t *testing.T, w *harness.World, db *sql.DB) {
				cfg := w.QuickConfig()
				cfg.DB, cfg.Propagator = db, unencodable{}
				c := w.New(cfg)
				require.ErrorIs(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
					w.WriteEffect(tx, "half")
					defer func() { _ = recover() }()
					require.ErrorAs(t, record(ctx, c, tx), new(*compensator.FieldError))
					return nil
				}), compensator.ErrNotRecorded)
				assert.Zero(t, w.Count("effects"))
			})
		})
	}
}
