package people

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/harness"
)

func TestEntriesReadBackDecodeAsTheirTypeDoes(t *testing.T) {
	t.Parallel()
	w := harness.NewWorld(t)
	c := w.New(w.QuickConfig())
	orders, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, harness.Order) error { return nil },
		&compensator.HandlerConfig[harness.Order]{TypeConfig: compensator.TypeConfig{Codec: reversed{}}})
	require.NoError(t, err)
	id := w.Record(orders, 7, compensator.Options{})
	got, err := c.Get(t.Context(), id)
	require.NoError(t, err)
	resolved, err := c.Resolve(t.Context(), id)
	require.NoError(t, err)
	page, err := admin.Of(c).List(t.Context(), admin.Filter{})
	require.NoError(t, err)
	for name, e := range map[string]*compensator.Entry{"Get": got, "Resolve": resolved, "List": &page.Entries[0]} {
		var o harness.Order
		require.NoError(t, e.Decode(&o), name)
		require.Equal(t, 7, o.Number, name)
	}
}

type reversed struct{}

func (reversed) Marshal(v any) ([]byte, error) {
	data, err := compensator.JSON.Marshal(v)
	return backwards(data), err
}

func (reversed) Unmarshal(data []byte, v any) error {
	return compensator.JSON.Unmarshal(backwards(data), v)
}

func backwards(data []byte) []byte {
	turned := make([]byte, 0, len(data))
	for i := len(data) - 1; i >= 0; i-- {
		turned = append(turned, data[i])
	}
	return turned
}
