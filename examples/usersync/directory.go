package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// fate says what goes wrong with the messages about one user. It depends on the user's id and a seed, so that the
// library and the hand-written version meet the same faults.
//
// A user may get several messages, one after the other. The first messages are lost, the next ones are forgotten, the
// next ones hang, and the next ones fail. All later messages succeed, unless the directory refuses the user. The
// methods of fate number the messages about one user from 0, and their parameter sending is the number of a message.
type fate struct {
	slow      time.Duration // duration of the work on this user
	lost      int           // number of messages that are lost on their way
	forgotten int           // number of messages that a consumer acknowledges without doing anything
	hangs     int           // number of messages that run into the consumer's time limit
	fails     int           // number of messages that fail
	refused   bool          // whether the directory refuses this user forever
}

const always = 1 << 20

// Half of the users are slow, a third has a fault at first, and one in a hundred hangs in every try.
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

// nobody is the suffix of e-mail addresses that the directory refuses.
const nobody = ".invalid"

// One in a hundred has an address that the directory refuses.
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

// mix spreads a difference in few bits over all bits (the finalizer of SplitMix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// hopeless reports whether no number of tries can sync this user.
func (f fate) hopeless() bool { return f.refused || f.hangs == always }

// vanishes reports whether this message is lost on its way. slips reports whether a consumer acknowledges this message
// without doing anything.
func (f fate) vanishes(sending int) bool { return sending < f.lost }
func (f fate) slips(sending int) bool    { return !f.vanishes(sending) && sending < f.lost+f.forgotten }

var (
	errRefused = errors.New("the directory refuses this user for good")
	errOutage  = errors.New("the directory fails now and then")
)

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
