package processlog

import "crypto/rand"

// Token is a random value that an insert with a lease, a claim, an outcome or a change stores in the row. Each of these
// writes has a new token. If the row holds the token of a write whose result is unknown, that write has happened.
type Token [16]byte

// NewToken draws a random Token. It may be called concurrently.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // rand.Read never returns an error. It ends the program instead.
	return t
}
