package howto

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/httpcall"
)

// Answer is what the partner answers to a refund.
type Answer struct {
	Reference string
}

// RefundWithResult registers a handler whose result callers can wait for.
func RefundWithResult(c *compensator.Compensator) (*compensator.ResultType[Refund, Answer], error) {
	return compensator.HandleResult(context.Background(), c, "refund", func(ctx context.Context, e *compensator.Entry, r Refund) (Answer, error) {
		var answer Answer
		err := httpcall.PostJSON(ctx, partner, partnerURL, e.CallKey(), r, &answer)
		return answer, err
	}, &compensator.HandlerConfig[Refund]{Timeout: 15 * time.Second})
}

// RefundThenWrite calls a partner, and then writes the partner's answer into the order.
func RefundThenWrite(c *compensator.Compensator) (*compensator.ResultType[Refund, Answer], error) {
	return compensator.HandleCall(context.Background(), c, "refund", func(ctx context.Context, e *compensator.Entry, r Refund) (Answer, error) {
		var answer Answer
		err := httpcall.PostJSON(ctx, partner, partnerURL, e.CallKey(), r, &answer)
		return answer, err
	}, func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, r Refund, answer Answer) error {
		_, err := tx.ExecContext(ctx, "UPDATE orders SET state='refunded', reference=? WHERE id=?", answer.Reference, r.OrderID)
		return err
	}, &compensator.HandlerConfig[Refund]{Timeout: 15 * time.Second, MaxWait: 24 * time.Hour})
}

// RefundInYourTransaction completes its own entry in the transaction that writes the order and records the next step.
func RefundInYourTransaction(c *compensator.Compensator, tell *compensator.Type[Refund]) (*compensator.Type[Refund], error) {
	return compensator.Handle(context.Background(), c, "refund", func(ctx context.Context, e *compensator.Entry, r Refund) error {
		var answer Answer
		if err := httpcall.PostJSON(ctx, partner, partnerURL, e.CallKey(), r, &answer); err != nil {
			return err
		}
		next := compensator.IdempotencyKey("tell-" + e.CallKey())
		return c.WithRetry(ctx, next, func(ctx context.Context) error {
			return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
				if _, err := tx.ExecContext(ctx, "UPDATE orders SET state='refunded', reference=? WHERE id=?", answer.Reference, r.OrderID); err != nil {
					return err
				}
				if _, err := tell.Record(ctx, tx, r, compensator.Options{IdempotencyKey: next}); err != nil {
					return err
				}
				_, err := c.CompleteTx(ctx, tx, e.ID) // fails if the entry has ended meanwhile, and rolls back
				return err
			})
		})
	}, &compensator.HandlerConfig[Refund]{Timeout: 15 * time.Second})
}
