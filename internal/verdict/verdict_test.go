package verdict

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfterAroundUnavailableKeepsEveryOtherField(t *testing.T) {
	inner := &Verdict{err: errors.New("no route")}
	fields := reflect.ValueOf(inner).Elem()
	for i := range fields.NumField() {
		switch field := fields.Field(i); field.Kind() {
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Int, reflect.Int64:
			field.SetInt(int64(KindUnavailable))
		default:
			require.Equal(t, "err", fields.Type().Field(i).Name, "set the new field in this test")
		}
	}
	require.Equal(t, KindUnavailable, inner.Kind)
	got := Of(RetryAfter(time.Minute, inner))
	want := *inner
	want.After, want.err = time.Minute, inner
	require.Equal(t, &want, got)
}
