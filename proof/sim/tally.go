package sim

import (
	"fmt"
	"strings"
)

// The situations that a run of many seeds must have seen, in addition to the faults.
const (
	sawCommitted = iota
	sawAttempts
	sawUnknownApplied
	sawUnknownNot
	sawMissing
	sawExpired
	sawDropped
	sawEnqueued
	sawRebuilt
	sawPolled
	sawQuarantined
	sawCompensated
	sawDead
	sawActions
	sawPurged
	sawInterrupted
	sawPrompt
	sawLost
	sawJammed
	sawFormer
	sawRestored
	sawWhole
	sawSuspects
	sawWaited
	sawKept
	sawServerFault
	sawRefused
	sawSlept
	sawLoss
	sawRescued
	sawBroken
	sawClaimedLater
	sawManyRequeued
	sawErased
	sawSlots
	sawKeptLongEnough
	sawBatches
	sawLingered
	sawFollowed
	sawOrdering
	sawPlaced
	sawBlocked
	sawPutBack
	sawWoken
	sawBreakerOpen
	sawProbe
	sawBreakerClosed
	sawResumed
	sawCases
	sawAdminActions
	sawUncheckedActions
	sawWaitedOut
	sawConsumed
	sawDoneBefore
	sawPaused
	sawRetried
	sawPolledCommit
	sawServerDown
	sawTrigger
	sights
)

var sightNames = [sights]string{
	sawCommitted: "recorded entries", sawAttempts: "attempts", sawUnknownApplied: "unknown commits that happened",
	sawUnknownNot: "unknown commits that did not", sawMissing: "entries reported missing", sawExpired: "expired leases", sawDropped: "dropped outcomes",
	sawEnqueued: "entries announced by the reconciler", sawRebuilt: "rebuilt queues", sawPolled: "entries polled",
	sawQuarantined: "entries taken out as killers", sawCompensated: "compensations", sawDead: "dead entries", sawActions: "actions of people",
	sawPurged: "purged entries", sawInterrupted: "interrupted attempts", sawPrompt: "starts held to a bound", sawLost: "attempts that were told of a lost lease",
	sawJammed: "handlers that heard nothing", sawFormer: "instances of a former version",
	sawRestored: "types rebuilt by themselves", sawWhole: "waiting entries of types that became whole",
	sawSuspects: "attempts of suspects", sawWaited: "outcomes stored after the end of their lease", sawKept: "claims refused for what the instance holds",
	sawRefused: "events refused as another type's", sawSlept: "waits of months",
	sawLoss: "instances that stopped in a database that had gone back", sawRescued: "dead entries that a service ended",
	sawBroken:       "batches that broke while their instance stopped",
	sawServerFault:  "attempts that met the database's condition",
	sawClaimedLater: "starts of what was claimed of a database that had gone back",
	sawManyRequeued: "entries requeued as they were seen",
	sawErased:       "erased entries",
	sawSlots:        "slots of a periodic type",

	sawKeptLongEnough: "entries purged once they had been kept",
	sawBatches:        "batches of several",
	sawLingered:       "batches of several that may have waited for each other",
	sawFollowed:       "attempts of what comes after a batch",
	sawBreakerOpen:    "breakers that opened, or stayed open",
	sawProbe:          "of them, after a probe that failed",
	sawBreakerClosed:  "breakers that closed",
	sawResumed:        "breakers open when all was healed",
	sawOrdering:       "entries of a key beside which none may start", sawPlaced: "entries that stand where another of their call has its id", sawBlocked: "entries left alone as blocked",
	sawPutBack: "entries put back to wait for their turns", sawWoken: "entries whose turn had come",
	sawCases:            "cases that opened",
	sawAdminActions:     "entries changed through package admin",
	sawUncheckedActions: "of them, by somebody who had not checked",
	sawWaitedOut:        "waits that counted, as they had lasted long enough",
	sawConsumed:         "messages done",
	sawDoneBefore:       "messages told as done before",
	sawPaused:           "types that were paused",
	sawRetried:          "transactions of consumers that were run again",
	sawPolledCommit:     "starts of entries whose commit nobody reported, held to a bound",
	sawServerDown:       "attempts that met a condition of the whole server",
	sawTrigger:          "outcomes that a trigger refused for now",
}

// tally counts the faults and the situations that were seen.
type tally struct {
	Faults [faults]int
	Sights [sights]int
}

func (a *tally) add(b tally) {
	for i, n := range b.Faults {
		a.Faults[i] += n
	}
	for i, n := range b.Sights {
		a.Sights[i] += n
	}
}

// missing lists the faults and situations that never occurred.
func (a tally) missing() (names []string) {
	for i, n := range a.Faults {
		if n == 0 {
			names = append(names, fault(i).String())
		}
	}
	for i, n := range a.Sights {
		if n == 0 {
			names = append(names, sightNames[i])
		}
	}
	return names
}

func (a tally) String() string {
	var b strings.Builder
	for i, n := range a.Faults {
		if i == int(none) {
			fmt.Fprintf(&b, "%d steps", n)
			continue
		}
		fmt.Fprintf(&b, ", %d %s", n, fault(i))
	}
	for i, n := range a.Sights {
		fmt.Fprintf(&b, ", %d %s", n, sightNames[i])
	}
	return b.String()
}

// tally returns the counts of a seed.
func (w *world) tally() tally {
	return tally{Faults: w.counts, Sights: w.oracle.sights}
}
