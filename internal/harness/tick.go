package harness

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
)

// HandleTick registers the periodic type "tick". After a pause the library records up to 500 missed slots. The handler
// writes its slot as its effect.
func HandleTick(c *compensator.Compensator, interval time.Duration) error {
	tick, err := compensator.HandleTx(context.Background(), c, "tick", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, slot time.Time) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", slot.Format(time.RFC3339Nano))
		return err
	}, nil)
	if err != nil {
		return err
	}
	return compensator.Periodic(context.Background(), tick, compensator.Every(interval), &compensator.PeriodicConfig{CatchUp: 500})
}
