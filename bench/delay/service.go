package delay

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

type serviceConfig struct {
	Mechanism string
	Place     place
	Plan      plan
	Record    bool // true in the first process, which also records the deadlines
}

// If serviceEnv is set, the test binary runs as the service. Its value is the serviceConfig as JSON.
const serviceEnv = "DELAY_SERVICE"

// runService runs the service in a re-executed test binary, and then never returns. In any other process it returns at
// once.
func runService() {
	text := os.Getenv(serviceEnv)
	if text == "" {
		return
	}
	var cfg serviceConfig
	must(json.Unmarshal([]byte(text), &cfg))
	w := notes{os.NewFile(notesDescriptor, "notes")}
	e, _ := entrantNamed(cfg.Mechanism)
	ctx := context.Background()
	record, err := e.serve(ctx, cfg.Place, func(n int, entry uint64) {
		must(w.write(note{isFired, n, now(), entry}))
	})
	must(err)
	if cfg.Record {
		must(recordAll(ctx, w, cfg.Plan.delays(), record))
		must(w.write(note{what: allRecorded, at: now()}))
	}
	select {} // The service runs until it is killed.
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "delay service:", err)
		os.Exit(2)
	}
}

func recordAll(ctx context.Context, w notes, delays []time.Duration, record record) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range producers {
		group.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(delays) {
					return nil
				}
				before := now()
				if err := record(ctx, n, delays[n]); err != nil {
					return fmt.Errorf("record %d: %w", n, err)
				}
				if err := w.write(note{what: isRecorded, n: n, at: before}); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}
