package usererr

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Logger returns a logger that writes to l and recovers from panics of l's handler and of attributes. A line that the
// handler cannot write at all is lost.
func Logger(l *slog.Logger) *slog.Logger {
	if _, ok := l.Handler().(guarded); ok {
		return l
	}
	return slog.New(guarded{l.Handler(), new(sync.Once)})
}

type guarded struct {
	slog.Handler
	panicked *sync.Once
}

func (g guarded) survive() {
	if p := recover(); p != nil {
		g.panicked.Do(func() {
			fmt.Fprintf(os.Stderr, "compensator: the logger panicked, so log lines are lost: %s\n", PanicText(p))
		})
	}
}

func (g guarded) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	defer g.survive()
	return g.Handler.Enabled(ctx, level)
}

func (g guarded) Handle(ctx context.Context, r slog.Record) (err error) {
	defer g.survive()
	defer func() {
		if p := recover(); p != nil {
			withoutAttrs := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
			withoutAttrs.AddAttrs(slog.String("attributes_lost", PanicText(p)))
			err = g.Handler.Handle(ctx, withoutAttrs)
		}
	}()
	return g.Handler.Handle(ctx, r)
}

func (g guarded) WithAttrs(attrs []slog.Attr) (h slog.Handler) {
	h = g
	defer g.survive()
	return guarded{g.Handler.WithAttrs(attrs), g.panicked}
}

func (g guarded) WithGroup(name string) (h slog.Handler) {
	h = g
	defer g.survive()
	return guarded{g.Handler.WithGroup(name), g.panicked}
}
