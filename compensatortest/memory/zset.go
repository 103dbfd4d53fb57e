package memory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// zset is a sorted set of Redis: entries by their place, those of one place by the bytes of their id's
// text.
type zset struct {
	members []zsetMember
	places  map[processlog.ID]int64
	whole   string              // the type of which nothing that was enqueued since is lost: another's, once it was moved
	marks   map[queueMark]int64 // of those that rebuild it -> end of the period
	foreign bool                // it is no set at all, but somebody else's
}

// queueMark is whose rebuild of which type it is.
type queueMark struct {
	token        processlog.Token
	businessType string
}

type zsetMember struct {
	id processlog.ID
	at int64
}

func newZset() *zset {
	return &zset{places: make(map[processlog.ID]int64), marks: make(map[queueMark]int64)}
}

func (z *zset) clone() *zset {
	return &zset{members: slices.Clone(z.members), places: maps.Clone(z.places), whole: z.whole, marks: maps.Clone(z.marks), foreign: z.foreign}
}

// marked reports whether somebody rebuilds the type.
func (z *zset) marked(businessType string, now int64) bool {
	for mark, until := range z.marks {
		if mark.businessType == businessType && until >= now {
			return true
		}
	}
	return false
}

func (z *zset) place(id processlog.ID) (at int64, known bool) {
	at, known = z.places[id]
	return at, known
}

// head is the place of the first member.
func (z *zset) head() (at int64, found bool) {
	if len(z.members) == 0 {
		return 0, false
	}
	return z.members[0].at, true
}

// due lists the first limit members whose place has come.
func (z *zset) due(now int64, limit int) []processlog.ID {
	var ids []processlog.ID
	for _, m := range z.members[:min(len(z.members), limit)] {
		if m.at > now {
			break
		}
		ids = append(ids, m.id)
	}
	return ids
}

// put adds a member or moves it.
func (z *zset) put(id processlog.ID, at int64) {
	z.remove(id)
	m := zsetMember{id, at}
	i, _ := slices.BinarySearchFunc(z.members, m, compareMembers)
	z.members = slices.Insert(z.members, i, m)
	z.places[id] = at
}

func (z *zset) remove(id processlog.ID) {
	at, known := z.places[id]
	if !known {
		return
	}
	i, _ := slices.BinarySearchFunc(z.members, zsetMember{id, at}, compareMembers)
	z.members = slices.Delete(z.members, i, i+1)
	delete(z.places, id)
}

func compareMembers(a, b zsetMember) int {
	if a.at != b.at {
		return cmp.Compare(a.at, b.at)
	}
	return strings.Compare(a.id.String(), b.id.String())
}
