package invalidrows

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	double "github.com/compensator-go/compensator/compensatortest/memory"
	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/processlog"
)

type searched struct {
	*double.Store
	began   time.Time
	at      []time.Duration
	answers []error
}

func (s *searched) InvalidRows(ctx context.Context, _ int) ([]processlog.InvalidRow, error) {
	s.at = append(s.at, time.Since(s.began))
	if len(s.answers) == 0 {
		return nil, nil
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	if errors.Is(answer, context.DeadlineExceeded) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []processlog.InvalidRow{{ID: processlog.RowID(7), BusinessType: "refund", Why: "next_at is not a time"}}, answer
}

func TestLogIsSearchedForInvalidRowsAtOnceAndEveryTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &searched{Store: double.NewStore(), began: time.Now(), answers: []error{errors.New("gone away"), nil, context.DeadlineExceeded}}
		e := engine.New(t.Context(), engine.Config{Store: s, ReconcileInterval: time.Minute, Log: slog.New(slog.DiscardHandler), ErrorNumber: func(error) uint16 { return 0 }})
		defer e.Close()
		ctx, stop := context.WithTimeout(t.Context(), 40*time.Minute)
		defer stop()
		go Watch(ctx, e)
		problem := func() string {
			synctest.Wait()
			if list := e.OpenProblems(); len(list) > 0 {
				return list[0].What + ": " + list[0].Error
			}
			return ""
		}
		require.Equal(t, problemSearch+": gone away", problem())
		time.Sleep(time.Minute)
		const row = problemRows + `: entry 7 of type "refund": next_at is not a time`
		require.Equal(t, row, problem())
		time.Sleep(interval + interval/5 + timeout)
		require.Equal(t, row, problem(), "a failed search does not end the problem")
		require.Len(t, e.OpenProblems(), 2)
		<-ctx.Done()
		require.Empty(t, problem())
		require.Len(t, s.at, 5)
		require.Zero(t, s.at[0])
		require.Equal(t, time.Minute, s.at[1])
		for i := 2; i < len(s.at); i++ {
			require.GreaterOrEqual(t, s.at[i]-s.at[i-1], interval)
		}
	})
}
