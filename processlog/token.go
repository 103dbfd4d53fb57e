package processlog

import "crypto/rand"

// Token is a random mark that every write of the library stores in the row. After an error with an unknown result, the
// token tells whether that write was the last one.
type Token [16]byte

// NewToken draws a random Token.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // rand.Read never returns an error; it would end the program
	return t
}
