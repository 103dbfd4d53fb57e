package shop

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
)

// Luck decides which attempts at making an order fail, and for which tickets every attempt fails.
type Luck struct {
	Seed           uint64
	Fail, Hopeless float64 // share of attempts that fail, and share of tickets whose attempts all fail, between 0 and 1
}

var (
	errFailed   = errors.New("the consumer failed")
	errHopeless = errors.New("no order can be made of this ticket")
)

// Of returns the same result for the same ticket and attempt number.
func (l Luck) Of(t Ticket, try uint64) error {
	switch {
	case l.draw(t.ID) < l.Hopeless:
		return errHopeless
	case l.draw(t.ID+"/"+strconv.FormatUint(try, 10)) < l.Fail:
		return errFailed
	}
	return nil
}

func (l Luck) draw(subject string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.FormatUint(l.Seed, 10) + subject)) // Write of a hash never fails.
	return rand.New(rand.NewPCG(h.Sum64(), l.Seed)).Float64()
}
