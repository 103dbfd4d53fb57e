package processlog

import "crypto/rand"

// Token is a random value. Every write of the library stores a new one in the row. If the result of a write is unknown,
// the library reads the row: if it holds the token of that write, the write happened and is still the last one.
type Token [16]byte

// NewToken draws a random Token. It may be called concurrently.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // rand.Read never returns an error. It ends the program instead.
	return t
}
