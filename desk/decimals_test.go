package desk_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/compensator-go/compensator/desk"
)

// TestAmountsHaveTheDecimalsOfTheirCurrency, as ISO 4217 has them, wherever they are shown.
func TestAmountsHaveTheDecimalsOfTheirCurrency(t *testing.T) {
	for currency, places := range map[string]int{"CNY": 2, "USD": 2, "JPY": 0, "UYI": 0, "KWD": 3, "CLF": 4, "UYW": 4, "CLP": 0, "XXX": 2, "": 2} {
		assert.Equal(t, places, desk.Decimals(currency), currency)
	}
}
