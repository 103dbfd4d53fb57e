package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// fate is what the world has in store for one user: decided by the user's id and a seed, so that both algorithms meet the
// same; whom the directory refuses, by the e-mail address, which a person can repair. Messages of a user are counted: the first one is sending 0, the one after it is sending 1.
type fate struct {
	slow      time.Duration // how long the work on this user takes
	lost      int           // so many messages vanish on their way
	forgotten int           // of the next ones, so many are acknowledged by a consumer that then does nothing
	hangs     int           // of the next ones, so many end with the consumer's time limit
	fails     int           // of the next ones, so many fail
	refused   bool          // the directory will never take this user
}

// always is more often than anybody tries.
const always = 1 << 20

// fateOf: half of the users are slow, a third has some bad luck first, and one in a hundred hangs whenever it is tried.
func fateOf(u user, seed uint64) fate {
	h := draw(u.ID, seed)
	f := fate{slow: time.Duration(h>>16%5) * time.Millisecond, refused: strings.HasSuffix(u.Email, nobody)}
	if h>>8&1 == 0 {
		f.slow = 50*time.Millisecond + time.Duration(h>>16%400)*time.Millisecond
	}
	switch n := h >> 32 % 100; {
	case n < 1:
		f.hangs = always
	case n < 10:
		f.hangs = 1
	case n < 20:
		f.fails = 1
	case n < 30:
		f.lost = 1
	case n < 33:
		f.forgotten = 1
	case n < 35:
		f.lost, f.forgotten = 1, 1
	}
	return f
}

// nobody ends the e-mail addresses that the directory does not take.
const nobody = ".invalid"

// sample makes users up, one in a hundred of them with an address that the directory refuses.
func sample(prefix string, n int, seed uint64) []user {
	users := make([]user, n)
	for i := range users {
		id := fmt.Sprintf("%s-%04d", prefix, i+1)
		users[i] = user{ID: id, Name: "User " + id, Email: id + "@example.org"}
		if draw(id, seed)>>48%100 == 0 {
			users[i].Email = id + "@example" + nobody
		}
	}
	return users
}

func draw(id string, seed uint64) uint64 {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%d %s", seed, id)
	return mix(hash.Sum64())
}

// mix spreads what differs in few bits over all of them (the finalizer of SplitMix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// hopeless reports whether no number of tries would get this user into the directory.
func (f fate) hopeless() bool { return f.refused || f.hangs == always }

// vanishes reports whether this message is lost on its way; slips, whether a consumer forgets it.
func (f fate) vanishes(sending int) bool { return sending < f.lost }
func (f fate) slips(sending int) bool    { return !f.vanishes(sending) && sending < f.lost+f.forgotten }

var (
	errRefused = errors.New("the directory refuses this user for good")
	errOutage  = errors.New("the directory fails now and then")
)

// work is what the directory takes to prepare a user, before it is entered.
func (f fate) work(ctx context.Context, sending int) error {
	slow := time.NewTimer(f.slow)
	defer slow.Stop()
	select {
	case <-slow.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	tries := sending - f.lost - f.forgotten
	switch {
	case f.refused:
		return errRefused
	case tries < f.hangs:
		<-ctx.Done()
		return context.Cause(ctx)
	case tries < f.hangs+f.fails:
		return errOutage
	}
	return nil
}
