package sqlstore

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var cursorOrders = [...]listOrder{orderID, orderCreated, orderDue}

// parseCursor must refuse a text with a *FieldError, or decode a position.
func FuzzParseCursor(f *testing.F) {
	for _, plain := range []string{
		"1.id>.0.7", "1.due<.-62135596800000.18446744073709551615", "2.id>.0.7", "1.id>.0.0", "1.id>.0.7.8", "1.id.0.7",
		"1.due>.9223372036854775808.7", "1.due>.+5.7", "1.created>.0.007", "1.id>.", "...", "",
	} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(plain)), byte(0), false)
		f.Add(plain, byte(1), true)
	}
	for i, order := range cursorOrders {
		for _, newest := range []bool{false, true} {
			l := listing{order: order, f: processlog.Filter{Newest: newest}}
			f.Add(l.cursor(listPosition{at: 1700000000000, id: processlog.RowID(7)}), byte(i), newest)
		}
	}
	f.Fuzz(func(t *testing.T, text string, number byte, newest bool) {
		order := cursorOrders[int(number)%len(cursorOrders)]
		place, err := parseCursor(text, order, newest)
		if text == "" {
			require.NoError(t, err)
			require.Nil(t, place)
			return
		}
		if err != nil {
			var refused *processlog.FieldError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "cursor", refused.Field)
			require.Nil(t, place)
			return
		}
		require.False(t, place.id.IsZero())
		l := listing{order: order, f: processlog.Filter{Newest: newest}}
		again, err := parseCursor(l.cursor(*place), order, newest)
		require.NoError(t, err)
		require.Equal(t, place, again)
		for i, other := range cursorOrders {
			for _, direction := range []bool{false, true} {
				if other == order && direction == newest {
					continue
				}
				_, err := parseCursor(text, other, direction)
				require.Error(t, err, "order %d newest %v takes the cursor of order %s newest %v", i, direction, order, newest)
			}
		}
	})
}

func FuzzCursorRoundTrip(f *testing.F) {
	f.Add(int64(0), uint64(1), byte(0), false)
	f.Add(int64(-1), uint64(1<<63), byte(1), true)
	f.Add(int64(1<<63-1), uint64(1<<64-1), byte(2), true)
	f.Add(int64(-1<<63), uint64(7), byte(2), false)
	f.Fuzz(func(t *testing.T, at int64, row uint64, number byte, newest bool) {
		order := cursorOrders[int(number)%len(cursorOrders)]
		place := listPosition{at: at, id: processlog.RowID(max(row, 1))}
		l := listing{order: order, f: processlog.Filter{Newest: newest}}
		got, err := parseCursor(l.cursor(place), order, newest)
		require.NoError(t, err)
		require.Equal(t, &place, got)
	})
}
