package observe

import (
	"cmp"
	"log/slog"

	"github.com/compensator-go/compensator/processlog"
)

// LogFailures is an Observer that logs, at level Info, each attempt that did not succeed and each entry that is being, or was,
// compensated: no operator's matter, for whom Config.Logger gets those that wait for a person, but the story of one entry for whoever
// looks for it. A line has the entry's ids, its type, the attempt, how long it took, and the text of its error; contents are in none. A
// nil logger is slog.Default(). To have it beside another, see Observers.
func LogFailures(logger *slog.Logger) Observer {
	logger = cmp.Or(logger, slog.Default())
	return Observer{
		AttemptEnded: func(e AttemptEvent) {
			if e.Err == nil {
				return
			}
			logger.LogAttrs(e.Context, slog.LevelInfo, "compensator: an attempt did not succeed", append(about(e.ID, e.IdempotentID, e.BusinessType, e.BusinessID, e.Attempt),
				slog.Bool("compensation", e.Compensation), slog.Duration("took", e.Duration), slog.Any("err", e.Err))...)
		},
		Settled: func(e SettledEvent) {
			if e.State != processlog.Compensating && e.State != processlog.Compensated {
				return
			}
			logger.LogAttrs(e.Context, slog.LevelInfo, "compensator: an entry is "+e.State.String(), about(e.ID, e.IdempotentID, e.BusinessType, e.BusinessID, e.Attempt)...)
		},
	}
}

func about(id processlog.ID, idempotentID processlog.IdempotentID, businessType, businessID string, attempt int) []slog.Attr {
	return []slog.Attr{
		slog.String("entry", id.String()), slog.String("type", businessType), slog.String("idempotent_id", string(idempotentID)),
		slog.String("business_id", businessID), slog.Int("attempt", attempt),
	}
}
