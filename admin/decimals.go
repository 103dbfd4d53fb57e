package admin

import (
	"strings"

	"github.com/compensator-go/compensator"
)

// decimals holds the minor units of ISO 4217 that are not 2.
var decimals = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "UYI": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
	"CLF": 4, "UYW": 4,
}

// Decimals returns the number of decimal places of a currency: its minor units in ISO 4217. For unknown codes it
// returns 2.
func Decimals(currency string) int {
	if decimalPlaces, isListed := decimals[strings.ToUpper(currency)]; isListed {
		return decimalPlaces
	}
	return 2
}

// withUpperCurrency is for codes that older versions stored in small letters.
func withUpperCurrency(a compensator.Amount) compensator.Amount {
	a.Currency = strings.ToUpper(a.Currency)
	return a
}
