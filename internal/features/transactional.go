package features

import (
	"context"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/transactional"
	"github.com/compensator-go/compensator/processlog"
)

func init() {
	features = append(features, func(s *Set) {
		tx := transactional.New(s.Engine, transactional.Settings{
			Begin:        func(ctx context.Context) (transactional.Transaction, error) { return s.cfg.Transactions.Begin(ctx) },
			ServersFault: s.cfg.Transactions.ServersFault,
		})
		handler := func(h TxHandler) transactional.Handler {
			if h == nil {
				return nil
			}
			return func(ctx context.Context, tx transactional.Transaction, row *processlog.Row) error {
				return h(ctx, tx, row)
			}
		}
		s.transact = func(t *engine.Type, settings TypeSettings) {
			tx.Attach(t, handler(settings.RunTx), handler(settings.UndoTx))
			if call := settings.RunCall; call != nil {
				tx.AttachCall(t, func(ctx context.Context, begin func() (transactional.Transaction, error), row *processlog.Row) error {
					return call(ctx, func() (Transaction, error) { return begin() }, row)
				})
			}
		}
	})
}
