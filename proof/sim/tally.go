package sim

import (
	"fmt"
	"strings"
)

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
	sawLossReported
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
	sawLimited
	sawAdvances
	sawFenced
	sawBreakerOpen
	sawProbe
	sawBreakerClosed
	sawResumed
	sawCases
	sawFailedAttempts
	sawCountedMinutes
	sawBacklogs
	sawReports
	sawAdminActions
	sawBulkBatches
	sawAllVisited
	sawUncheckedActions
	sawWaitedOut
	sawConsumed
	sawDoneBefore
	sawPaused
	sawPauseEnded
	sawLimitChanged
	sawLimitKeys
	sawRetried
	sawPolledCommit
	sawServerDown
	sawDoubt
	sawTrigger
	sawCalls
	sawResults
	sawWaits
	sights
)

var sightNames = [sights]string{
	sawCommitted: "recorded entries", sawAttempts: "attempts", sawUnknownApplied: "unknown commits that happened",
	sawUnknownNot: "unknown commits that did not", sawMissing: "entries reported missing", sawExpired: "expired leases", sawDropped: "dropped outcomes",
	sawEnqueued: "entries enqueued by the reconciler", sawRebuilt: "rebuilt queues", sawPolled: "entries polled",
	sawQuarantined: "entries dead-lettered after repeated crashes", sawCompensated: "compensations", sawDead: "dead entries", sawActions: "actions of people",
	sawPurged: "purged entries", sawInterrupted: "interrupted attempts", sawPrompt: "starts that had to be in time", sawLost: "attempts whose context reported a lost lease",
	sawJammed: "handlers that ignored their context", sawFormer: "instances of an older version",
	sawRestored: "types rebuilt by themselves", sawWhole: "waiting entries of types whose queue became complete",
	sawSuspects: "attempts of entries with lost leases", sawWaited: "outcomes stored after the end of their lease", sawKept: "claims not accepted because the instance holds the entry",
	sawRefused: "keys refused because of another type", sawSlept: "waits of months",
	sawLoss: "instances that stopped after a loss", sawLossReported: "instances that reported a loss and went on", sawRescued: "dead entries that a service ended",
	sawBroken:       "batches without a verdict while their instance stopped",
	sawServerFault:  "attempts with an error of the database's condition",
	sawClaimedLater: "starts of entries claimed after a loss",
	sawManyRequeued: "entries requeued in the version that was seen",
	sawErased:       "erased entries",
	sawSlots:        "slots of a periodic type",

	sawKeptLongEnough: "entries purged once they had been kept",
	sawBatches:        "batches of several entries",
	sawLingered:       "batches of several entries that may have waited for each other",
	sawFollowed:       "attempts of entries that run after a batch",
	sawAdvances:       "starts taken in advance",
	sawLimited:        "entries that waited for a permit",
	sawFenced:         "permits taken away because their leases had ended",
	sawBreakerOpen:    "breakers that opened, or stayed open",
	sawProbe:          "breakers that stayed open after a failed probe",
	sawBreakerClosed:  "breakers that closed",
	sawResumed:        "breakers that were open when all faults ended",
	sawOrdering:       "attempts of entries with an ordering key", sawPlaced: "entries whose position is the id of another entry of their call", sawBlocked: "entries not run because they were blocked",
	sawPutBack: "entries put back as blocked", sawWoken: "entries made due when they were unblocked",
	sawCases:            "cases that opened",
	sawFailedAttempts:   "failed attempts that were kept",
	sawCountedMinutes:   "minutes whose counts were stored",
	sawBacklogs:         "backlogs that were counted",
	sawReports:          "reports of processes about themselves",
	sawAdminActions:     "entries changed through package admin",
	sawBulkBatches:      "batches of actions on several entries recorded",
	sawAllVisited:       "actions on all that match carried out to the end",
	sawUncheckedActions: "entries changed by a person who had not checked",
	sawWaitedOut:        "waits that counted because MaxWait was over",
	sawConsumed:         "messages processed",
	sawDoneBefore:       "messages reported as processed before",
	sawPaused:           "types that were paused",
	sawPauseEnded:       "entries that were claimed after their pause had ended by itself",
	sawLimitChanged:     "limits that were changed",
	sawLimitKeys:        "idle keys of limits that were deleted",
	sawRetried:          "transactions of consumers that were run again",
	sawPolledCommit:     "starts in time of entries whose commit was not reported",
	sawServerDown:       "attempts with an error of the whole server",
	sawDoubt:            "outcomes of entries with an attempt of unknown outcome",
	sawTrigger:          "outcomes that a trigger refused for now",
	sawCalls:            "calls before a transaction",
	sawResults:          "results stored with a success",
	sawWaits:            "waits that returned a result",
}

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

func (w *world) tally() tally {
	return tally{Faults: w.counts, Sights: w.oracle.sights}
}
