package main

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
)

// luck is what consumers have: some fail now and then, and some tickets never become an order.
type luck struct {
	seed           uint64
	fail, hopeless float64 // shares
}

var (
	errFailed   = errors.New("the consumer failed")
	errHopeless = errors.New("no order can be made of this ticket")
)

func (l luck) of(t ticket) error {
	switch {
	case l.isHopeless(t):
		return errHopeless
	case rand.Float64() < l.fail:
		return errFailed
	}
	return nil
}

func (l luck) isHopeless(t ticket) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.FormatUint(l.seed, 10) + t.ID)) // never fails
	return rand.New(rand.NewPCG(h.Sum64(), l.seed)).Float64() < l.hopeless
}
