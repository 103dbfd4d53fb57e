package oteltest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/otel"
)

func oneAttempt(t *testing.T, opts otel.Options, ctx context.Context, handler compensator.HandlerFunc) sdktrace.ReadOnlySpan {
	ended := tracetest.NewSpanRecorder()
	opts.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended))
	telemetry, err := otel.New(opts)
	require.NoError(t, err)
	func() {
		defer func() { _ = recover() }()
		_ = telemetry.Middleware(handler)(ctx, &compensator.Entry{BusinessType: "refund"})
	}()
	require.Len(t, ended.Ended(), 1)
	return ended.Ended()[0]
}

func over(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

func TestErrorTypeSaysHowAnAttemptFailed(t *testing.T) {
	t.Parallel()
	failed := errors.New("503")
	for _, c := range []struct {
		want  string
		cause error
		err   error
	}{
		{"", nil, nil},
		{"", compensator.ErrTimeout, nil}, // a success after the timeout
		{"", nil, compensator.Snooze(0)},
		{"failed", nil, failed},
		{"failed", nil, compensator.RetryAfter(1, failed)},
		{"permanent", compensator.ErrTimeout, fmt.Errorf("refund: %w", compensator.Permanent(failed))},
		{"unavailable", nil, compensator.Unavailable(failed)},
		{"timeout", compensator.ErrTimeout, failed},
		{"lease_lost", compensator.ErrLeaseLost, failed},
		{"cancelled", fmt.Errorf("%w: cancel", compensator.ErrCancelled), failed},
		{"stopping", compensator.ErrStopping, failed},
		{"panic", nil, &compensator.PanicError{Value: "x"}},
	} {
		ctx := context.Background()
		if c.cause != nil {
			ctx = over(c.cause)
		}
		s := oneAttempt(t, otel.Options{}, ctx, func(context.Context, *compensator.Entry) error { return c.err })
		assert.Equalf(t, c.want, attributes(s)[semconv.ErrorTypeKey], "%v, %v", c.cause, c.err)
	}
	s := oneAttempt(t, otel.Options{}, t.Context(), func(context.Context, *compensator.Entry) error { panic("x") })
	assert.Equal(t, "panic", attributes(s)[semconv.ErrorTypeKey])
}

// Failure: F128
func TestPanicOfAHandlerGoesOn(t *testing.T) {
	t.Parallel()
	telemetry, err := otel.New(otel.Options{})
	require.NoError(t, err)
	handler := telemetry.Middleware(func(context.Context, *compensator.Entry) error { panic("the handler's") })
	assert.PanicsWithValue(t, "the handler's", func() { _ = handler(t.Context(), &compensator.Entry{}) })
	batch := telemetry.BatchMiddleware(func(context.Context, []*compensator.Entry) []error { panic("the batch's") })
	assert.PanicsWithValue(t, "the batch's", func() { batch(t.Context(), []*compensator.Entry{{}}) })
}

// Failure: F128
func TestOwnErrorTypesAreBounded(t *testing.T) {
	t.Parallel()
	ended := tracetest.NewSpanRecorder()
	telemetry, err := otel.New(otel.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)),
		ErrorType: func(err error) string {
			if err.Error() == "panic" {
				panic(err)
			}
			return err.Error()
		},
	})
	require.NoError(t, err)
	said := func(word string) string {
		_ = telemetry.Middleware(func(context.Context, *compensator.Entry) error { return errors.New(word) })(t.Context(), &compensator.Entry{})
		spans := ended.Ended()
		return attributes(spans[len(spans)-1])[semconv.ErrorTypeKey]
	}
	assert.Equal(t, "failed", said(""))
	assert.Equal(t, "failed", said("panic"))
	assert.Equal(t, "_OTHER", said(strings.Repeat("x", 65)))
	for i := range 32 {
		assert.Equal(t, fmt.Sprint("e", i), said(fmt.Sprint("e", i)))
	}
	assert.Equal(t, "_OTHER", said("e32"))
	assert.Equal(t, "e7", said("e7"))
}

// Failure: F128
func TestErrorTextIsReportedOnlyThroughErrorText(t *testing.T) {
	t.Parallel()
	fail := func(context.Context, *compensator.Entry) error { return errors.New("card 4111 1111 refused") }
	assert.Empty(t, oneAttempt(t, otel.Options{}, t.Context(), fail).Status().Description)
	scrub := func(text string) string { return strings.ReplaceAll(text, "4111 1111", "…") }
	assert.Equal(t, "card … refused", oneAttempt(t, otel.Options{ErrorText: scrub}, t.Context(), fail).Status().Description)
	broken := func(string) string { panic("scrubber") }
	assert.Empty(t, oneAttempt(t, otel.Options{ErrorText: broken}, t.Context(), fail).Status().Description)
}
