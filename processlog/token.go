package processlog

import "crypto/rand"

// Token is the random mark every write of ours leaves in the row. After an error that leaves the outcome
// open, it tells whether that write was the last one.
type Token [16]byte

// NewToken draws one.
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // never fails: it would end the program
	return t
}
