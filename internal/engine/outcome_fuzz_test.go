package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/jitter"
	"github.com/compensator-go/compensator/internal/verdict"
	"github.com/compensator-go/compensator/processlog"
)

type wildError struct {
	mood byte
	err  error
}

func (e wildError) Error() string {
	if e.mood == 1 {
		panic("no words")
	}
	return "wild"
}

func (e wildError) Unwrap() error {
	if e.mood == 2 {
		panic("no cause")
	}
	return e.err
}

func (e wildError) Is(error) bool {
	if e.mood == 3 {
		panic("no likeness")
	}
	return e.mood == 4
}

func (e wildError) As(any) bool {
	if e.mood == 5 {
		panic("no likeness")
	}
	return e.mood == 6 // In mood 6, the method As reports a match, but leaves the variable of its caller unset.
}

// Each byte pushes one error, which may be nil, on a stack. An error that wraps others takes them from the stack. The
// result is the error on top of the stack.
func errorTree(program []byte, d time.Duration) error {
	var stack []error
	pop := func() (err error) {
		if n := len(stack); n > 0 {
			err, stack = stack[n-1], stack[:n-1]
		}
		return err
	}
	for _, step := range program[:min(len(program), 40)] {
		var err error
		switch step % 17 {
		case 0:
			err = nil
		case 1:
			err = errDownstream
		case 2:
			err = errors.New("\xff\x00 not a text " + string(program))
		case 3:
			err = verdict.Permanent(pop())
		case 4:
			err = verdict.RetryAfter(d, pop())
		case 5:
			err = verdict.Snooze(d)
		case 6:
			err = verdict.Unavailable(pop())
		case 7:
			err = fmt.Errorf("wrapped: %w", pop())
		case 8:
			err = errors.Join(pop(), pop())
		case 9:
			err = fmt.Errorf("%w and %w", pop(), pop())
		case 10:
			err = context.Canceled
		case 11:
			err = processlog.ErrStopping
		case 12:
			err = processlog.ErrLeaseLost
		case 13:
			err = &processlog.PanicError{Value: wildError{1, nil}}
		case 14:
			err = wildError{step / 17 % 8, pop()}
		case 15:
			err = (*wildPointer)(nil)
		case 16:
			err = &processlog.FieldError{Field: "x"}
		}
		stack = append(stack, err)
	}
	return pop()
}

type wildPointer struct{ text string }

func (e *wildPointer) Error() string { return e.text }

var attemptCauses = [...]error{nil, processlog.ErrTimeout, processlog.ErrStopping, processlog.ErrLeaseLost, processlog.ErrCancelled, context.Canceled, io.EOF}

// FuzzOutcome requires these properties for every error of a handler and every retry schedule:
//
//   - The outcome is a transition that the table's contract allows from the state of the row.
//   - Its delay can be stored.
//   - No count grows by more than one.
//   - Only nil is a success.
//   - Snooze, Unavailable and an interruption cost no attempt.
func FuzzOutcome(f *testing.F) {
	seeds := [][]byte{{0}, {1}, {2}, {1, 3}, {1, 4}, {5}, {1, 6}, {1, 3, 7}, {5, 1, 8}, {1, 5, 9}, {10}, {11, 7}, {12, 1, 8}, {13}, {15}, {16, 3}, {3}, {4}, {6}, {0, 0, 8}}
	for mood := range byte(8) {
		seeds = append(seeds, []byte{1, 14 + 17*mood}, []byte{1, 3, 14 + 17*mood})
	}
	for i, program := range seeds {
		for cause := range attemptCauses {
			f.Add(program, byte(i), byte(cause), byte(i*7+cause), 1+i%3, int64(i)*int64(time.Minute))
		}
	}
	f.Add([]byte{1}, byte(2), byte(0), byte(0), 1<<62, int64(-1<<63))
	f.Add([]byte{4}, byte(1), byte(0), byte(0), -1<<62, int64(1<<63-1))
	f.Fuzz(func(t *testing.T, program []byte, state, cause, config byte, count int, after int64) {
		handled := outcomeType(config&1 != 0)
		handled.Retry = fuzzSchedule(config>>1&3, time.Duration(after))
		handled.MaxAttempts = 1 + int(config>>3&3)
		row := attempted([...]processlog.State{processlog.Pending, processlog.Retrying, processlog.Compensating}[state%3], min(max(count, 0), processlog.MaxCount), min(max(count/2, 0), processlog.MaxCount))
		switch row.State { // the transitions that the contract allows
		case processlog.Pending:
			row.ProcessCount = 0
		case processlog.Retrying:
			row.ProcessCount = max(row.ProcessCount, 1)
		}
		row.MaxAttempts = int(config >> 5)
		err := errorTree(program, time.Duration(after))
		o := handled.OutcomeOf(row, err, attemptCauses[int(cause)%len(attemptCauses)])
		requireLegal(t, handled, row, o)
		require.Equal(t, err == nil, o.To == processlog.Succeeded || o.To == processlog.Compensated, "%v", o)
		requireLegal(t, handled, row, handled.crashOutcome(row, time.Time{}))
	})
}

func fuzzSchedule(mood byte, d time.Duration) func(int) time.Duration {
	switch mood {
	case 0:
		return fixed(d)
	case 1:
		return jitter.Exponential(d, time.Hour)
	case 2:
		return func(int) time.Duration { panic("no schedule") }
	}
	return func(failures int) time.Duration {
		return []time.Duration{d, -d, time.Minute}[min(max(failures, 1), 3)-1]
	}
}

func requireLegal(t *testing.T, handled *Type, row *processlog.Row, o processlog.Outcome) {
	t.Helper()
	require.Equal(t, []any{row.ID, row.Epoch, row.Version}, []any{o.ID, o.Epoch, o.Version}, "fences are the claim's")
	require.GreaterOrEqual(t, o.After, time.Duration(0))
	require.LessOrEqual(t, o.After, processlog.MaxDelay)
	failed, undone := o.ProcessCount-row.ProcessCount, o.CompensateCount-row.CompensateCount
	require.Contains(t, []int{0, 1}, failed+undone)
	require.GreaterOrEqual(t, min(failed, undone), 0)
	require.Equal(t, o.To.Terminal(), o.EndedBy != "", "%v", o)
	spent := failed+undone == 1
	maxAttempts := handled.MaxAttempts
	if row.MaxAttempts > 0 {
		maxAttempts = row.MaxAttempts
	}
	exhausted := o.ProcessCount >= maxAttempts
	switch {
	case row.State == processlog.Compensating:
		require.Zero(t, failed)
		require.Contains(t, []processlog.State{processlog.Compensating, processlog.Compensated, processlog.Dead}, o.To)
		require.False(t, o.To == processlog.Compensating && spent && o.CompensateCount >= handled.MaxCompensateAttempts, "one more than its compensation may fail")
	case o.To == processlog.Dead:
		require.True(t, o.EndedBy == processlog.EndedByCrash || !handled.compensates(), "dead although it could be compensated")
		require.True(t, o.EndedBy != processlog.EndedByExhausted || exhausted && spent)
	case o.To == processlog.Compensating:
		require.True(t, handled.compensates())
		require.True(t, spent || handled.CompensateCrashed)
		require.Zero(t, o.After, "due at once")
	case o.To == processlog.Retrying:
		require.False(t, spent && exhausted, "one more than it may fail")
		require.Positive(t, o.ProcessCount)
	case o.To == processlog.Pending:
		require.Equal(t, processlog.Pending, row.State)
		require.False(t, spent)
	default:
		require.Equal(t, processlog.Succeeded, o.To)
	}
	if row.State != processlog.Compensating {
		require.Zero(t, undone)
	}
}

// FuzzErrorText requires that the column can store the text of every error.
func FuzzErrorText(f *testing.F) {
	for _, text := range []string{"", "plain", "\xff", "half \xe8\xae", "\x00", string(make([]byte, 5000)), "订单", "\U0001F4E6"} {
		f.Add(text, 1)
		f.Add(text, 400)
		f.Add("x"+text, 1000)
	}
	f.Fuzz(func(t *testing.T, text string, times int) {
		long := ""
		for range min(max(times, 1), 1<<14/(len(text)+1)) {
			long += text
		}
		got := processlog.FitError(long)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, utf8.RuneCountInString(got), processlog.MaxText)
		if utf8.ValidString(long) && utf8.RuneCountInString(long) <= processlog.MaxText {
			require.Equal(t, long, got)
		}
		if utf8.ValidString(long) {
			require.Equal(t, string([]rune(long)[:min(utf8.RuneCountInString(long), processlog.MaxText)]), got)
		}
	})
}
