package gormtx_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/orms/gormtx"
)

var errBack = errors.New("go back")

func orders(notes ...string) (list []order) {
	for _, note := range notes {
		list = append(list, order{Note: note})
	}
	return list
}

func TestBatchesCommitWithTheOutcome(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		write := func(end error) func(ctx context.Context, tx *compensator.ScopedTx) error {
			return func(ctx context.Context, tx *compensator.ScopedTx) error {
				db := gormtx.Use(ctx, w.db, tx)
				list := orders("a", "b", "c", "d", "e")
				if err := db.CreateInBatches(list, 2).Error; err != nil {
					return err
				}
				var n int64
				assert.NoError(t, db.Model(&order{}).Count(&n).Error)
				assert.EqualValues(t, 5, n, "the transaction sees what it has written")
				return end
			}
		}
		entry := w.handle(write(errBack))
		assert.Equal(t, compensator.Retrying, entry.State)
		assert.Equal(t, errBack.Error(), entry.LastError)
		assert.Empty(t, w.notes())

		entry = w.handle(write(nil))
		assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
		assert.Equal(t, []string{"a", "b", "c", "d", "e"}, w.notes())
	})
}

// Failure: F10
func TestFailedBatchTakesItsBatchesBackAndNothingElse(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		entry := w.handle(func(ctx context.Context, tx *compensator.ScopedTx) error {
			db := gormtx.Use(ctx, w.db, tx)
			if err := db.Create(&order{Note: "before"}).Error; err != nil {
				return err
			}
			list := orders("a", "b", "before")
			assert.Error(t, db.CreateInBatches(list, 1).Error)
			return nil
		})
		assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
		assert.Equal(t, []string{"before"}, w.notes())
	})
}

// CompleteTx must refuse the entry that the handler runs. Otherwise the handler's transaction would be rolled back with
// its order, and the entry would still show a success.
// Failure: F68
func TestHandlerDoesNotCompleteItsOwnEntryThroughGORM(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		var own compensator.EntryID
		w.work = func(ctx context.Context, tx *compensator.ScopedTx) error {
			db := gormtx.Use(ctx, w.db, tx)
			complete := func(tx *gorm.DB) error {
				_, err := w.CompleteTx(tx.Statement.Context, gormtx.Tx(tx), own)
				return err
			}
			refused := []error{complete(db), db.Transaction(complete)}
			// Complete the entry in other transactions, too. Leave out SQLite, where only the handler's transaction can
			// write.
			if w.db.Dialector.Name() != "sqlite" {
				refused = append(refused, w.db.WithContext(ctx).Transaction(complete), gormtx.WithRetry(ctx, w.Compensator, w.db, "other", complete))
			}
			for _, err := range refused {
				assert.ErrorAs(t, err, new(*compensator.FieldError))
			}
			return db.Create(&order{Note: "done"}).Error
		}
		require.NoError(t, w.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			receipt, err := w.write.Record(ctx, tx, "", compensator.Options{})
			own = receipt.ID()
			return err
		}))
		entry := compensatortest.Attempt(t, w.Compensator, own)
		assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
		assert.Equal(t, compensator.EndedByHandler, entry.EndedBy)
		assert.Equal(t, []string{"done"}, w.notes())
	})
}

func TestNestedTransactionIsASavepoint(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		entry := w.handle(func(ctx context.Context, tx *compensator.ScopedTx) error {
			db := gormtx.Use(ctx, w.db, tx)
			return db.Transaction(func(tx *gorm.DB) error {
				assert.NoError(t, tx.Create(&order{Note: "outer"}).Error)
				assert.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
					assert.NoError(t, tx.Create(&order{Note: "inner"}).Error)
					return errBack
				}), errBack)
				assert.PanicsWithError(t, errBack.Error(), func() {
					_ = tx.Transaction(func(tx *gorm.DB) error {
						assert.NoError(t, tx.Create(&order{Note: "panicked"}).Error)
						panic(errBack)
					})
				})
				assert.NoError(t, tx.SavePoint("here").Error)
				assert.NoError(t, tx.Create(&order{Note: "back"}).Error)
				assert.NoError(t, tx.RollbackTo("here").Error)
				return tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&order{Note: "kept"}).Error })
			})
		})
		assert.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
		assert.Equal(t, []string{"kept", "outer"}, w.notes())
	})
}

// Failure: F10
func TestTheLibraryAloneCommits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		entry := w.handle(func(ctx context.Context, tx *compensator.ScopedTx) error {
			db := gormtx.Use(ctx, w.db, tx)
			assert.NoError(t, db.Create(&order{Note: "a"}).Error)
			assert.ErrorIs(t, db.Session(&gorm.Session{}).Commit().Error, gormtx.ErrCommit)
			assert.ErrorIs(t, db.Begin().Error, gorm.ErrInvalidTransaction)
			_, err := db.DB()
			assert.Error(t, err, "DB must not return the pool")
			return errBack
		})
		assert.Equal(t, errBack.Error(), entry.LastError)
		assert.Empty(t, w.notes())
	})
}

// Failure: F10
func TestRollbackThroughGORMIsAFailure(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		entry := w.handle(func(ctx context.Context, tx *compensator.ScopedTx) error {
			db := gormtx.Use(ctx, w.db, tx)
			assert.NoError(t, db.Create(&order{Note: "a"}).Error)
			assert.NoError(t, db.Session(&gorm.Session{}).Rollback().Error)
			assert.ErrorIs(t, db.Create(&order{Note: "by itself"}).Error, compensator.ErrNoTransaction)
			assert.ErrorIs(t, db.Take(&order{}).Error, compensator.ErrNoTransaction)
			assert.ErrorIs(t, db.Raw("SELECT 1").Row().Err(), compensator.ErrNoTransaction)
			_, err := tx.ExecContext(ctx, "DELETE FROM orders")
			assert.ErrorIs(t, err, compensator.ErrNoTransaction)
			return nil
		})
		assert.Equal(t, compensator.Retrying, entry.State)
		assert.Contains(t, entry.LastError, "no open transaction")
		assert.Empty(t, w.notes())
	})
}

// A cached statement would write outside the transaction. A statement prepared inside the transaction would fail in
// later transactions.
// Failure: F10
func TestSessionWithPreparedStatementsWritesNothingOutside(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		prepared := func(db *gorm.DB) *gorm.DB { return db.Session(&gorm.Session{PrepareStmt: true}) }
		writes := func(db *gorm.DB, note string) error { return prepared(db).Create(&order{Note: note}).Error }
		inHandler := func(refused bool) {
			entry := w.handle(func(ctx context.Context, tx *compensator.ScopedTx) error {
				err := writes(gormtx.Use(ctx, w.db, tx), "inside")
				if refused {
					assert.ErrorIs(t, err, gormtx.ErrPrepare)
				}
				return errBack
			})
			assert.Equal(t, errBack.Error(), entry.LastError)
		}
		inHandler(true)
		require.NoError(t, writes(w.db, "cached now"))
		inHandler(false)
		require.NoError(t, w.db.Transaction(func(tx *gorm.DB) error { return writes(tx, "still good") }))
		assert.Equal(t, []string{"cached now", "still good"}, w.notes())
	})
}

// The poll interval is so long that polling cannot start the entry.
func TestEntryRecordedThroughTheHandleIsEnqueued(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ran := make(chan string, 2)
		next, err := compensator.Handle(t.Context(), w.Compensator, "next", func(_ context.Context, _ *compensator.Entry, note string) error {
			ran <- note
			return nil
		}, nil)
		require.NoError(t, err)
		record := func(db *gorm.DB, note string) error {
			_, err := next.Record(t.Context(), gormtx.Tx(db), note, compensator.Options{})
			return err
		}
		compensatortest.Run(t, w.Compensator)
		require.NoError(t, w.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			return gormtx.Use(ctx, w.db, tx).Transaction(func(tx *gorm.DB) error {
				assert.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error { return errors.Join(record(tx, "gone"), errBack) }), errBack)
				return record(tx, "kept")
			})
		}))
		select {
		case note := <-ran:
			assert.Equal(t, "kept", note)
		case <-time.After(time.Minute):
			t.Fatal("the entry did not run")
		}
		compensatortest.WaitIdle(t, w.Compensator)
		compensatortest.RequireRecorded(t, w.Compensator, "next", 1)
	})
}

// Failure: F10
func TestTransactionThatFailedToRecordIsNotCommitted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		err := w.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			db := gormtx.Use(ctx, w.db, tx)
			assert.NoError(t, db.Create(&order{Note: "a"}).Error)
			_, err := w.Record(ctx, gormtx.Tx(db), compensator.NewEntry{})
			assert.Error(t, err) // The handler ignores the error.
			return nil
		})
		require.ErrorIs(t, err, compensator.ErrNotRecorded)
		assert.Empty(t, w.notes())
	})
}

// TranslateError makes GORM return ErrDuplicatedKey on MySQL, but not with modernc.org/sqlite. See docs/how-to/orms.md.
// The package gorm.io/driver/sqlite reads exported fields of mattn's errors, and modernc's errors have no such fields.
func TestDuplicateKeyIsTranslatedOfMySQLAndNotOfModernc(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, dialector := open(t)
			db, err := gorm.Open(dialector, &gorm.Config{TranslateError: true, Logger: logger.Discard})
			require.NoError(t, err)
			require.NoError(t, db.AutoMigrate(&order{}))
			require.NoError(t, db.Create(&order{ID: 1, Note: "a"}).Error)
			for code, twice := range map[int]order{1555: {ID: 1, Note: "b"}, 2067: {ID: 2, Note: "a"}} {
				err := db.Create(&twice).Error
				if name != "SQLite" {
					require.ErrorIs(t, err, gorm.ErrDuplicatedKey)
					continue
				}
				require.Error(t, err)
				assert.NotErrorIs(t, err, gorm.ErrDuplicatedKey)
				var coded interface{ Code() int }
				require.ErrorAs(t, err, &coded)
				assert.Equal(t, code, coded.Code())
			}
		})
	}
}
