package main

import (
	"context"
	"fmt"
	"time"
)

func (s *shop) day(ctx context.Context) (books, error) {
	tell := s.begin()
	first, err := startWorker(ctx, s.db)
	if err != nil {
		return books{}, err
	}
	tell("%v starts", first)
	b, err := s.trade(ctx)
	if err != nil {
		return b, err
	}
	tell("%d orders placed, %d rolled back, %d committed; %d of those paid", b.placed, b.rolledBack, b.committed, b.paid)
	cut, err := s.killInTheMiddle(ctx, first)
	if err != nil {
		return b, err
	}
	tell("kill -9 %v: %d entries are done, and these attempts are cut short: %s", first, cut.done, cut.attempts())

	second, err := startWorker(ctx, s.db)
	if err != nil {
		return b, err
	}
	tell("%v starts; the entries of the dead worker come due when its lease of %v ends", second, lease)
	err = second.await(ctx, func() (bool, error) {
		p, err := s.progress(ctx)
		return p.open == 0, err
	})
	if err != nil {
		return b, err
	}
	tell("every entry has ended")
	err = second.stop()
	tell("%v stopped when asked to", second)
	return b, err
}

func (s *shop) killInTheMiddle(ctx context.Context, w *worker) (progress, error) {
	err := w.await(ctx, func() (bool, error) {
		p, err := s.progress(ctx)
		return p.middle(), err
	})
	if err != nil {
		return progress{}, err
	}
	if err := w.kill(); err != nil {
		return progress{}, err
	}
	return s.progress(ctx)
}

func (s *shop) begin() (tell func(format string, args ...any)) {
	fmt.Printf("database  %s\nqueue     %s\n\n", s.db.where(), s.db.queue())
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Printf("%5.1f s   %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
