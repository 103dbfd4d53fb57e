package admin_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/processlog"
)

func TestAmountsHaveTheDecimalsOfTheirCurrency(t *testing.T) {
	for currency, places := range map[string]int{"CNY": 2, "USD": 2, "JPY": 0, "UYI": 0, "KWD": 3, "CLF": 4, "UYW": 4, "CLP": 0, "jpy": 0, "XXX": 2, "": 2} {
		assert.Equal(t, places, admin.Decimals(currency), currency)
	}
}

// TestCurrencyInSmallLettersIsTheSame checks that a currency code in small letters is understood, because some payment
// providers write codes in small letters.
func TestCurrencyInSmallLettersIsTheSame(t *testing.T) {
	t.Parallel()
	yen := compensator.Amount{Minor: 12900, Currency: "JPY"}
	given := compensator.Amount{Minor: 12900, Currency: "jpy"}
	c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Queue: compensatortest.NewMemoryQueue().Client(),
		Operations: &compensator.Operations{Types: map[string]compensator.CaseConfig{"charge": {Amount: func(*compensator.Entry) (compensator.Amount, error) { return given, nil }}}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	typ, err := compensator.Handle(t.Context(), c, "charge", func(context.Context, *compensator.Entry, string) error {
		return compensator.Permanent(errors.New("no"))
	}, nil)
	require.NoError(t, err)
	d, err := admin.New(c, admin.Options{Access: everything})
	require.NoError(t, err)
	amounts := func(id compensator.IdempotencyKey) []any {
		e := compensatortest.Call(t, c, typ, "x", compensator.Options{IdempotencyKey: id})
		view, err := d.Entry(t.Context(), mei, e.ID)
		require.NoError(t, err)
		return []any{view.Amount, view.Case.Amount}
	}
	assert.Equal(t, []any{yen, yen}, amounts("small"))
	for _, currency := range []string{"元", "  x", "=1+", "YE", "YENS", "¥¥"} {
		given.Currency = currency
		assert.Equal(t, []any{compensator.Amount{}, compensator.Amount{}}, amounts(compensator.IdempotencyKey(currency)), "%q is not known", currency)
		assert.False(t, given.Known(), "%q", currency)
	}
}

func TestCurrencyThatWasKeptInSmallLettersIsShownInCapitals(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.store.keeps = func(c *admin.Case) {
		if c.EntryID == b.dead.ID {
			c.Amount = compensator.Amount{Minor: 7, Currency: "jpy"}
		}
	}
	yen := compensator.Amount{Minor: 7, Currency: "JPY"}
	d := b.admin(admin.Options{Access: everything})
	view, err := d.Entry(t.Context(), mei, b.dead.ID)
	require.NoError(t, err)
	page, err := d.CaseLines(t.Context(), mei, admin.CaseFilter{BusinessType: refundType})
	require.NoError(t, err)
	assert.Equal(t, []any{yen, yen, yen, yen}, []any{view.Amount, view.Case.Amount, page.Lines[0].Amount, page.Lines[0].Case.Amount})
	b.store.sums = []processlog.CaseGroup{{BusinessType: refundType, Currency: "jpy", N: 1, Sum: 7}, {BusinessType: refundType, Currency: "JPY", N: 1, Sum: 5}, {BusinessType: refundType, N: 1}}
	groups, _, err := d.Groups(t.Context(), mei)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, []any{3, 1, []compensator.Amount{{Minor: 12, Currency: "JPY"}}}, []any{groups[0].N, groups[0].NoAmount, groups[0].Sums})
	standing, err := admin.StandingOf(t.Context(), b.c)
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{"JPY": 12}, standing.AtRisk)
}
