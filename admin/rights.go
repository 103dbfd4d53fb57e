package admin

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Right is something that an Actor may or may not do. Its text is also the action's in the audit log.
type Right string

// What may be seen.
const (
	SeeOverview Right = "see overview" // counts, health
	SeeEntries  Right = "see entries"  // entries, cases and groups, without content
	SeeContent  Right = "see content"  // of Reveal
	SeeErrors   Right = "see errors"   // in full; otherwise without the ids, numbers and quoted words in them
	SeeAuditLog Right = "see trail"    // what people did
	Export      Right = "export"       // a listing, to be taken away
)

// What may be done to entries. Each wants SeeEntries as well.
const (
	Requeue          Right = "requeue"
	RequeueSucceeded Right = "requeue succeeded" // beside Requeue or Compensate: to do again what was done
	Compensate       Right = "compensate"        // requeue for the compensation
	SettleManually   Right = "settle by hand"
	Cancel           Right = "cancel"
	Complete         Right = "complete"
	Reschedule       Right = "reschedule"
)

// What may be done to cases and types.
const (
	TakeCase   Right = "take case"   // for oneself, and give back what is one's own
	AssignCase Right = "assign case" // to anybody, or nobody
	NoteCase   Right = "note"        // on an entry
	Pause      Right = "pause"       // a type, and resume it
)

// Rights are all of them.
var Rights = [...]Right{SeeOverview, SeeEntries, SeeContent, SeeErrors, SeeAuditLog, Export, Requeue, RequeueSucceeded, Compensate,
	SettleManually, Cancel, Complete, Reschedule, TakeCase, AssignCase, NoteCase, Pause}

// Actor is somebody, as the application knows them. It must come from a session that the application has proved.
type Actor struct {
	ID string // what the records keep: 1 to 191 characters
}

// invalid reports whether no record could name the actor.
func (a Actor) invalid() bool {
	return strings.TrimSpace(a.ID) == "" || !utf8.ValidString(a.ID) || utf8.RuneCountInString(a.ID) > processlog.MaxIdempotencyKey
}

// Subject is what a right is asked for.
type Subject struct {
	Type   string             // the business type; empty: of none, or of an entry that was purged
	Amount compensator.Amount // what the entry is worth, where it is known
	Count  int                // how many entries the action names; 0: it names none
}

// Access decides. It is called concurrently, often, and must be quick: many times for a page.
type Access interface {
	May(ctx context.Context, a Actor, right Right, on Subject) bool
}

// AccessFunc is an Access of one function.
type AccessFunc func(ctx context.Context, a Actor, right Right, on Subject) bool

// May implements Access.
func (f AccessFunc) May(ctx context.Context, a Actor, right Right, on Subject) bool {
	return f(ctx, a, right, on)
}

// writes reports whether a right's use is written down, which ReadOnly refuses.
func (r Right) writes() bool {
	switch r {
	case SeeOverview, SeeEntries, SeeErrors, SeeAuditLog:
		return false
	}
	return true
}

// sight remembers, for one call, of which types an actor may see something, for which he needs all of these rights.
type sight struct {
	d      *Admin
	actor  Actor
	rights []Right
	of     map[string]bool
}

func (d *Admin) sight(a Actor, rights ...Right) *sight {
	return &sight{d, a, rights, make(map[string]bool)}
}

func (s *sight) sees(ctx context.Context, businessType string) bool {
	may, asked := s.of[businessType]
	if !asked {
		may = !slices.ContainsFunc(s.rights, func(right Right) bool { return !s.d.may(ctx, s.actor, right, Subject{Type: businessType}) })
		s.of[businessType] = may
	}
	return may
}
