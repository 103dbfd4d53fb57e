package admin

import (
	"strings"

	"github.com/compensator-go/compensator"
)

// decimals are ISO 4217's minor units (list one, as SIX keeps it) of the currencies that do not have two.
var decimals = map[string]int{
	"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0, "UGX": 0, "UYI": 0, "VND": 0, "VUV": 0,
	"XAF": 0, "XOF": 0, "XPF": 0,
	"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
	"CLF": 4, "UYW": 4,
}

// Decimals is how many decimal places amounts of a currency have: the minor units that ISO 4217 gives its code, and 2 where it
// gives none.
func Decimals(currency string) int {
	if places, odd := decimals[strings.ToUpper(currency)]; odd {
		return places
	}
	return 2
}

// inCapitals is an amount as the log keeps it. Older versions kept a currency's code as the service had written it.
func inCapitals(a compensator.Amount) compensator.Amount {
	a.Currency = strings.ToUpper(a.Currency)
	return a
}
