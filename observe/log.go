package observe

import (
	"cmp"
	"log/slog"

	"github.com/compensator-go/compensator/processlog"
)

// LogFailures returns an Observer that logs, at level Info, each attempt that did not succeed, and each compensation.
//
// A line has the ids of the entry, its type, the number of the attempt, the duration and the text of the error. It
// never has the content. If logger is nil, LogFailures uses slog.Default().
func LogFailures(logger *slog.Logger) Observer {
	logger = cmp.Or(logger, slog.Default())
	return Observer{
		AttemptEnded: func(e AttemptEvent) {
			if e.Err == nil {
				return
			}
			logger.LogAttrs(e.Context, slog.LevelInfo, "compensator: an attempt did not succeed", append(entryAttrs(e.ID, e.IdempotencyKey, e.BusinessType, e.BusinessID, e.Attempt),
				slog.Bool("compensation", e.Compensation), slog.Duration("took", e.Duration), slog.Any("err", e.Err))...)
		},
		Settled: func(e SettledEvent) {
			if e.State != processlog.Compensating && e.State != processlog.Compensated {
				return
			}
			logger.LogAttrs(e.Context, slog.LevelInfo, "compensator: an entry is "+e.State.String(), entryAttrs(e.ID, e.IdempotencyKey, e.BusinessType, e.BusinessID, e.Attempt)...)
		},
	}
}

func entryAttrs(id processlog.ID, idempotencyKey processlog.IdempotencyKey, businessType, businessID string, attempt int) []slog.Attr {
	return []slog.Attr{
		slog.String("entry", id.String()), slog.String("type", businessType), slog.String("idempotent_id", string(idempotencyKey)),
		slog.String("business_id", businessID), slog.Int("attempt", attempt),
	}
}
