package shop

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
)

// Luck is what those have who make orders: some tries fail, and some tickets never become an order.
type Luck struct {
	Seed           uint64
	Fail, Hopeless float64 // shares
}

var (
	errFailed   = errors.New("the consumer failed")
	errHopeless = errors.New("no order can be made of this ticket")
)

// Of draws for a try. The same try has the same luck.
func (l Luck) Of(t Ticket, try uint64) error {
	switch {
	case l.draw(t.ID) < l.Hopeless:
		return errHopeless
	case l.draw(t.ID+"/"+strconv.FormatUint(try, 10)) < l.Fail:
		return errFailed
	}
	return nil
}

func (l Luck) draw(what string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.FormatUint(l.Seed, 10) + what)) // never fails
	return rand.New(rand.NewPCG(h.Sum64(), l.Seed)).Float64()
}
