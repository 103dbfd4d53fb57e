package howto

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/httpcall"
)

// Answer is what the partner answers to a refund. Here it is also the result of the entry.
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

// RefundAPI records a refund, and answers with its result if there is one within two seconds.
func RefundAPI(c *compensator.Compensator, refunds *compensator.ResultType[Refund, Answer]) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds/{order}", func(w http.ResponseWriter, r *http.Request) {
		order := r.PathValue("order")
		key := compensator.IdempotencyKey("refund-" + order)
		err := c.WithRetry(r.Context(), key, func(ctx context.Context) error {
			return c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := refunds.Record(ctx, tx, Refund{OrderID: order}, compensator.Options{IdempotencyKey: key})
				return err // change your own rows in this transaction, too
			})
		})
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		answerRefund(w, r, refunds)
	})
	mux.HandleFunc("GET /refunds/{order}", func(w http.ResponseWriter, r *http.Request) {
		answerRefund(w, r, refunds)
	})
	return mux
}

func answerRefund(w http.ResponseWriter, r *http.Request, refunds *compensator.ResultType[Refund, Answer]) {
	order := r.PathValue("order")
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	_, answer, err := refunds.Wait(ctx, compensator.IdempotencyKey("refund-"+order))
	var ended *compensator.StateError
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // an error means that the client has gone
	case errors.Is(err, compensator.ErrNoResult): // for example, a person has erased it
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, compensator.ErrNotFound):
		http.NotFound(w, r)
	case errors.As(err, &ended) && ended.State != compensator.Dead: // cancelled, compensated or settled manually
		http.Error(w, "the refund is "+ended.State.String(), http.StatusConflict)
	case ended != nil, errors.Is(err, context.DeadlineExceeded): // a dead entry may still succeed: a person decides
		w.Header().Set("Location", "/refunds/"+order)
		w.WriteHeader(http.StatusAccepted)
	default:
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
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
