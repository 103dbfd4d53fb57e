package memory

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

// A zset holds the entries of one business type in the queue, like a sorted set of Redis. It orders its members by due
// time. It orders members with the same due time by the bytes of their ids.
type zset struct {
	members []zsetMember
	times   map[processlog.ID]int64
	// completeType is the business type of which the set holds all entries. It is empty if entries may be missing.
	// Queue.Rename moves a set to another business type and does not change completeType. So the moved set does not
	// count as complete.
	completeType string
	marks        map[queueMark]int64 // end of each running rebuild's period, in unix ms
	isForeign    bool                // the key holds another program's data
}

type queueMark struct {
	token        processlog.Token
	businessType string
}

type zsetMember struct {
	id processlog.ID
	at int64
}

func newZset() *zset {
	return &zset{times: make(map[processlog.ID]int64), marks: make(map[queueMark]int64)}
}

func (z *zset) clone() *zset {
	return &zset{members: slices.Clone(z.members), times: maps.Clone(z.times), completeType: z.completeType, marks: maps.Clone(z.marks), isForeign: z.isForeign}
}

func (z *zset) hasMark(businessType string, now int64) bool {
	for mark, until := range z.marks {
		if mark.businessType == businessType && until >= now {
			return true
		}
	}
	return false
}

func (z *zset) timeOf(id processlog.ID) (at int64, isKnown bool) {
	at, isKnown = z.times[id]
	return at, isKnown
}

func (z *zset) head() (at int64, isFound bool) {
	if len(z.members) == 0 {
		return 0, false
	}
	return z.members[0].at, true
}

func (z *zset) dueIDs(now int64, limit int) []processlog.ID {
	var ids []processlog.ID
	for _, m := range z.members[:min(len(z.members), limit)] {
		if m.at > now {
			break
		}
		ids = append(ids, m.id)
	}
	return ids
}

func (z *zset) put(id processlog.ID, at int64) {
	z.remove(id)
	m := zsetMember{id, at}
	i, _ := slices.BinarySearchFunc(z.members, m, compareMembers)
	z.members = slices.Insert(z.members, i, m)
	z.times[id] = at
}

func (z *zset) remove(id processlog.ID) {
	at, isKnown := z.times[id]
	if !isKnown {
		return
	}
	i, _ := slices.BinarySearchFunc(z.members, zsetMember{id, at}, compareMembers)
	z.members = slices.Delete(z.members, i, i+1)
	delete(z.times, id)
}

func compareMembers(a, b zsetMember) int {
	if a.at != b.at {
		return cmp.Compare(a.at, b.at)
	}
	return strings.Compare(a.id.String(), b.id.String())
}
