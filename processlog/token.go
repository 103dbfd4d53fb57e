package processlog

import "crypto/rand"

// Token is a random value, new in each write of the library, and stored in the row. If a row holds the token of a write
// whose result is unknown, that write happened and is still the last one.
type Token [16]byte

// NewToken draws a random Token. It may be called concurrently.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // rand.Read never returns an error. It ends the program instead.
	return t
}
