package compensator

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/processlog"
)

func fieldErrors(t *testing.T, err error) []*FieldError {
	t.Helper()
	if err == nil {
		return nil
	}
	parts := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts = joined.Unwrap()
	}
	var fields []*FieldError
	for _, part := range parts {
		var field *FieldError
		require.ErrorAs(t, part, &field)
		require.NotEmpty(t, field.Reason)
		fields = append(fields, field)
	}
	return fields
}

func requireFieldsOf(t *testing.T, config any, err error) {
	t.Helper()
	for _, field := range fieldErrors(t, err) {
		in := reflect.TypeOf(config)
		for name := range strings.SplitSeq(field.Field, ".") {
			f, found := in.FieldByName(name)
			require.True(t, found, "%T has no field %q", config, field.Field)
			in = f.Type
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("", "", int64(0), int64(0), 0, 0, byte(0))
	f.Add("db.log", "a:b", int64(time.Second), int64(time.Hour), 1000, 1, byte(1))
	f.Add("a`; DROP TABLE x", "{x}", int64(-1), int64(-1<<63), -1, 8<<20, byte(255))
	f.Add("a.b.c", "a\n", int64(1<<63-1), int64(1), 999, 8<<20+1, byte(4))
	f.Add(strings.Repeat("x", 58), strings.Repeat("y", 64), int64(time.Millisecond), int64(100*time.Millisecond), 1<<62, 100, byte(3))
	f.Add("log", "p", int64(1<<63-1), int64(time.Hour), 1000, 1, byte(1))
	f.Add(".log", "ключ", int64(1), int64(1), 1, 1, byte(1))
	f.Add("log", "p", int64(1<<63-1), int64(time.Hour), 1000, 1, byte(17))
	elsewhere := redis.NewClient(&redis.Options{})
	f.Cleanup(func() { _ = elsewhere.Close() })
	f.Fuzz(func(t *testing.T, table, prefix string, a, b int64, limit, content int, given byte) {
		cfg := Config{
			Name: prefix, Table: table, Prefix: prefix, QueueLimit: limit, MaxContent: content,
			Lease: time.Duration(a), Grace: time.Duration(b), ReconcileInterval: time.Duration(a), PollInterval: time.Duration(b),
			Horizon: time.Duration(a), StopTimeout: time.Duration(b),
		}
		if given&1 != 0 {
			cfg.DB = new(sql.DB)
		}
		if given&2 != 0 {
			cfg.Redis = elsewhere
		}
		if given&16 != 0 {
			cfg.Redis = (*redis.Client)(nil)
		}
		if given&4 != 0 {
			cfg.Queue = struct{ processlog.Queue }{} // New does not call the queue before the configuration is right
		}
		if given&8 != 0 {
			cfg.Store = new(sqlstore.Store)
		}
		cfg = cfg.withDefaults()
		err := cfg.validate()
		requireFieldsOf(t, cfg, err)
		require.Equal(t, given&16 != 0, refuses(err, "Redis"), "a pointer to nothing is no Redis")
		require.Equal(t, (given&1 != 0) == (given&8 != 0), refuses(err, "DB") || refuses(err, "Store"))
		if err == nil {
			require.Positive(t, min(cfg.Horizon+cfg.ReconcileInterval, 4*cfg.ReconcileInterval, 2*cfg.Lease), "what is computed from spans overflows")
		}
		tableErr := sqlstore.CheckTable(cfg.Table)
		require.Equal(t, tableErr != nil, refuses(err, "Table"))
		require.Equal(t, strings.HasPrefix(prefix, ".") || len(prefix) > 64 || url.PathEscape(prefix) != prefix || strings.ContainsAny(prefix, "$&+=:@"), refuses(err, "Name"), "a name is part of an address")
		require.Equal(t, prefixProblem(cfg.Prefix) != "", refuses(err, "Prefix"), "New's check of the prefix and the queue's are one")
	})
}

func refuses(err error, field string) bool {
	for _, part := range flatten(err) {
		var f *FieldError
		if errors.As(part, &f) && f.Field == field {
			return true
		}
	}
	return false
}

func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func FuzzTypeConfig(f *testing.F) {
	f.Add("close_order", 0, 0, int64(0), int64(0), byte(0))
	f.Add("", -1, 1, int64(-1), int64(time.Second), byte(3))
	f.Add(" x", 1, -1<<63, int64(1), int64(-1<<63), byte(1))
	f.Add("order", 2, 3, int64(time.Second), int64(time.Second), byte(4))
	f.Add("a\nb", 1<<62, 1<<62, int64(1<<63-1), int64(1<<63-1), byte(2))
	f.Add("batch", 20, 1, int64(time.Second), int64(time.Minute), byte(12))
	f.Add("plain", 20, 1, int64(time.Second), int64(time.Minute), byte(8))
	f.Add("late", 501, 1, int64(time.Second), int64(-time.Minute), byte(12))
	f.Fuzz(func(t *testing.T, name string, count, batch int, timeout, lease int64, given byte) {
		cfg := BatchConfig[parcel]{
			MaxAttempts: count, MaxCompensateAttempts: batch, Concurrency: batch,
			Timeout: time.Duration(timeout), Lease: time.Duration(lease),
		}
		if given&4 != 0 {
			cfg.Breaker = Breaker{Of: batch, Share: float64(count) / 4, Pause: time.Duration(timeout)}
		}
		if given&1 != 0 {
			cfg.Compensate = func(context.Context, *Entry, parcel) error { return nil }
		}
		if given&2 != 0 {
			cfg.CompensateTx = func(context.Context, *ScopedTx, *Entry, parcel) error { return nil }
		}
		ofBatch := given&4 != 0
		var s settings
		if ofBatch {
			if given&8 != 0 {
				cfg.BatchSize, cfg.BatchWait = count, time.Duration(lease/2)
			}
			s = cfg.settings()
		} else {
			single := HandlerConfig[parcel]{
				MaxAttempts: cfg.MaxAttempts, MaxCompensateAttempts: cfg.MaxCompensateAttempts, Concurrency: cfg.Concurrency,
				Timeout: cfg.Timeout, Lease: cfg.Lease, Breaker: cfg.Breaker, Compensate: cfg.Compensate, CompensateTx: cfg.CompensateTx,
			}
			s = single.settings()
		}
		s = s.withDefaults(Config{Lease: 30 * time.Second})
		err := s.validate()
		requireFieldsOf(t, cfg, err)
		require.Equal(t, given&3 == 3, refuses(err, "CompensateTx"))
		if err == nil {
			require.Positive(t, min(s.maxAttempts, s.maxCompensateAttempts, s.concurrency))
			require.Equal(t, ofBatch, s.batchSize > 0, "a batch type has a size, and no other")
			require.LessOrEqual(t, s.batchWait, s.lease)
			require.GreaterOrEqual(t, s.batchWait, time.Duration(0))
			require.GreaterOrEqual(t, s.lease, time.Second)
			require.Equal(t, s.breaker == (Breaker{}), s.breaker.Of == 0 || s.breaker.Share == 0 || s.breaker.Pause == 0, "whole, or none")
			require.NotNil(t, s.retry)
			require.NotNil(t, s.Codec)
		}
		if validateType(name) == nil {
			require.NotEmpty(t, name)
			require.Equal(t, strings.TrimSpace(name), name)
		}
	})
}

type carried map[string]string

func (c carried) Inject(context.Context) map[string]string { return c }

func (c carried) Extract(ctx context.Context, _ map[string]string) context.Context { return ctx }

func FuzzHeaders(f *testing.F) {
	f.Add("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	f.Add("", "")
	f.Add("\xff", "\x00<&>\u2028")
	f.Add("a", strings.Repeat("x", processlog.MaxHeaders))
	f.Add("a", strings.Repeat("\x01", processlog.MaxHeaders/6))
	f.Fuzz(func(t *testing.T, key, value string) {
		c := &Compensator{cfg: Config{Propagator: carried{key: value}}}
		kept, err := c.headers(t.Context())
		if err != nil {
			require.Equal(t, "headers", fieldErrors(t, err)[0].Field)
			require.Greater(t, len(key)+len(value), processlog.MaxHeaders/6-len(`{"":""}`), "no character takes more than six bytes")
			return
		}
		encoded := kept.encoded
		require.LessOrEqual(t, len(encoded), processlog.MaxHeaders)
		var got map[string]string
		require.NoError(t, json.Unmarshal(encoded, &got))
		require.Equal(t, map[string]string{validJSON(key): validJSON(value)}, got)
	})
}
