package admin

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
)

// Reason is one sentence of an Explanation. String writes it in English. Package ui writes it in other languages.
type Reason struct {
	// Code says what the sentence is about, for example "paused". Codes that begin with "next_" say who looks at the
	// entry next. ReasonCodes lists all codes. They do not change, and later versions may add some.
	Code string `json:"code"`

	Entry   compensator.EntryID   `json:"entry_id,omitzero"`   // another entry
	Entries []compensator.EntryID `json:"entry_ids,omitempty"` // several other entries
	State   string                `json:"state,omitempty"`     // state of Entry, or of the explained entry if it has ended
	Name    string                `json:"name,omitempty"`      // a business type, a batch id, a limit, a process, or a task of the library
	Actor   string                `json:"actor,omitempty"`     // a person or a program
	Text    string                `json:"text,omitempty"`      // an error, the reason that Actor gave, or the key of a limit
	N       int                   `json:"n,omitempty"`         // a number of attempts, entries, slots, starts or failures
	At      time.Time             `json:"at,omitzero"`         // when something began, ended or is due
	Until   time.Time             `json:"until,omitzero"`      // when something ends at the latest
	Every   time.Duration         `json:"every_ns,omitempty"`  // longest pause between two looks, the time in which N starts are allowed, or the time since a process was last seen
}

// Names in braces are fields of a Reason. A code with "+" is for a Reason with a Text.
var sentences = map[string]string{
	"running":         "This process runs it since {at}, as attempt {n}.",
	"stuck":           "Its handler runs in this process since {at}, as attempt {n}. That is longer than its timeout.",
	"storing":         "Its handler has returned. This process stores the outcome as soon as the database takes it.",
	"leased":          "Another process has it until {until}, as attempt {n}. That process renews the lease while the handler runs.",
	"leased_by":       "{name} has it until {until}, as attempt {n}. That process was last seen {every} ago. It renews the lease while the handler runs.",
	"leased_by_gone":  "{name} has it until {until}, as attempt {n}. That process was last seen {every} ago: it was killed, or cannot reach the database.",
	"leased_by_ended": "{name} has it until {until}, as attempt {n}. That process ended {every} ago, while the handler ran.",

	"invalid_state": "Another program wrote a state that does not exist. The library does not run such a row.",
	"invalid_due":   "Another program wrote a due time that is more than a hundred years away. The column next_at is in milliseconds.",
	"invalid_lease": "Another program set the column lease_until, but no process has a lease. The column must be 0.",

	"ended_handler":     "It ended at {at} as {state}. Its own code did the work.",
	"ended_complete":    "{actor} completed it at {at}, because the work was done elsewhere.",
	"ended_complete+":   "{actor} completed it at {at}: {text}",
	"ended_cancel":      "{actor} cancelled it at {at}.",
	"ended_cancel+":     "{actor} cancelled it at {at}: {text}",
	"ended_person":      "{actor} settled it manually at {at}.",
	"ended_person+":     "{actor} settled it manually at {at}: {text}",
	"ended":             "It ended at {at} as {state}.",
	"dead_exhausted":    "It is dead since {at}. No attempt is left. Failures: {n}.",
	"dead_permanent":    "It is dead since {at}. Its code returned a permanent error.",
	"dead_crash":        "It is dead since {at}. Its attempts ended without an outcome, because their process died or the handler never returned.",
	"dead_compensation": "It is dead since {at}, in the middle of its compensation. Failed compensations: {n}.",

	"history_lost":         "The database was rolled back to an earlier state. This process goes on claiming. {text}",
	"history_lost_stopped": "The database was rolled back to an earlier state. This process claims nothing until a person accepts the loss. {text}",
	"paused":               "{actor} paused the type at {at}: {text}",
	"paused_until":         "{actor} paused the type at {at} until {until}: {text}",
	"paused_by_somebody":   "The type is paused.",
	"blocked":              "Entry {entry} of the same ordering key comes first. Its state is {state}.",
	"blocked_dead":         "Entry {entry} of the same ordering key comes first, and it is dead.",
	"blocked_dead_perhaps": "Entry {entry} of the same ordering key comes first, and it is dead. It blocks this entry unless the type sets PassDead.",
	"blocked_unknown":      "It is unknown whether another entry of the same ordering key comes first: {text}",
	"not_due":              "It is due at {at}.",
	"not_due_blocked":      "It is due at {at}, or as soon as no other entry of its key comes first.",
	"not_due_failed":       "It waits until {at} after failure {n}: {text}",
	"not_due_compensation": "It waits until {at} after failed compensation {n}: {text}",
	"not_due_waits":        "It waits until {at}. Its last attempt could not do the work yet, and did not count: {text}",
	"limited_rate":         "The limit {name} allows no start now. Starts allowed in {every}: {n}. The next is free at about {at}.",
	"limited_rate+":        "The limit {name} allows the key {text} no start now. Starts allowed in {every}: {n}. The next is free at about {at}.",
	"limited_concurrent":   "The limit {name} allows no further entry now. Entries allowed at once: {n}.",
	"limited_concurrent+":  "The limit {name} allows no further entry of the key {text} now. Entries allowed at once: {n}.",
	"limit_holders":        "These entries hold the permits: {entries}.",
	"limit_key_unknown":    "The limit {name} holds for each key of its entries. Only a program with the type's settings knows the key of this entry.",
	"limit_unknown":        "It is unknown whether a limit holds it back: {text}",
	"lost_leases":          "Its latest attempts ended without an outcome, because their process died or lost the lease. Number: {n}.",
	"undecodable":          "This process cannot decode its content: {text}",
	"after_batch":          "Its handler is called when batch {name} has ended. Entries of the batch that have not ended: {n}.",
	"after_some_batch":     "Its handler is called when the batch that it follows has ended.",
	"no_handlers":          "This program runs no handlers. So it does not know whether a process has a handler for {name}.",
	"no_handler":           "This process has no handler for {name}.",
	"no_process":           "No process that stores what it is has a handler for {name} and runs.",
	"in_processes":         "This process has no handler for {name}. Number of other processes that have one: {n}.",
	"not_running":          "Run is not at work in this process, so it claims nothing.",
	"breaker":              "The breaker of the type is open in this process since {at}. This process tries one entry from {until} on. {text}",
	"outcomes_wait":        "This process claims nothing since {at}, because {n} outcomes wait until the database can store them. It claims again when fewer wait.",
	"outcomes_wait_in":     "{name} claims nothing since {at}, because {n} outcomes wait there until the database can store them. It claims again when fewer wait.",
	"outcomes_refused":     "This process claims no entry of the type since {at}, because the database refuses to store {n} outcomes of the type. It claims again when the database has taken some of them.",
	"outcomes_refused_in":  "{name} claims no entry of the type since {at}, because the database refuses to store {n} outcomes of the type. It claims again when the database has taken some of them.",
	"suspects_run":         "It may have crashed a process, and few such entries run at once. Since {at} this process starts no further one. Number that run: {n}. It may start when one of them has ended.",
	"suspects_run_in":      "It may have crashed a process, and few such entries run at once. Since {at} {name} starts no further one. Number that run: {n}. It may start when one of them has ended.",
	"lingers":              "It waits until {until} at the latest for other entries that share the call of its handler.",
	"slots":                "All slots of the type are in use in this process. Slots: {n}.",
	"queue_down":           "The queue cannot be used: {text}",
	"queue_lost":           "The queue has lost entries of the type. They are in the database.",
	"queue_forgot":         "The queue does not have it. It is in the database.",
	"queue_not_asked":      "This program has no queue to ask.",
	"problem":              "This process reports since {at}: {name}: {text}",
	"due":                  "It is due since {at}. This process knows nothing that holds it back.",

	"next_nobody":         "Nothing: it has ended.",
	"next_person":         "A person must requeue, settle, complete or cancel it.",
	"next_owner":          "{actor} has its case, which is due at {at}.",
	"next_case":           "Nobody has taken its case, which is due at {at}.",
	"next_repair":         "A person must repair the row.",
	"next_outcome":        "Its process stores the outcome, which decides what happens next.",
	"next_lease_end":      "If its process dies, another one claims it after {until}.",
	"next_resume":         "Nothing until somebody resumes the type. This process notices that within {every}.",
	"next_pause_end":      "Nothing until {until}, or until somebody resumes the type.",
	"next_accept":         "This process, when a person has accepted the loss. A process that has not noticed the loss may run it before.",
	"next_blocker":        "The process that ends entry {entry} starts it. If that process dies, a process finds it within {every}.",
	"next_blocker_person": "A person must requeue, settle, complete or cancel entry {entry} first.",
	"next_queue":          "The queue offers it from {at} on to a process with a handler and a free slot.",
	"next_enqueue":        "It is in the database. The reconciler enqueues it at most {every} before {at}.",
	"next_reconciler":     "The reconciler finds it in the database within {every}.",
	"next_poll":           "Each process with a handler reads due entries from the database, at least once in {every}. This one is due from {at} on.",
	"next_unknown":        "A process with a handler for its type claims it from {at} on.",
}

// ReasonCodes lists the codes of all reasons, sorted.
func ReasonCodes() []string {
	codes := slices.Sorted(maps.Keys(sentences))
	return slices.DeleteFunc(codes, func(code string) bool { return strings.HasSuffix(code, "+") })
}

// String returns the sentence in English. Times are in UTC.
func (r Reason) String() string {
	sentence, hasSentence := sentences[r.Code]
	if longSentence, hasLonger := sentences[r.Code+"+"]; hasLonger && r.Text != "" {
		sentence = longSentence
	}
	if !hasSentence {
		return r.Code
	}
	actor := r.Actor
	switch {
	case actor != "":
	case r.Code == "ended_person":
		actor = "A person"
	default:
		actor = "A program"
	}
	clock := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
	return strings.TrimSpace(strings.NewReplacer("{at}", clock(r.At), "{until}", clock(r.Until), "{every}", r.Every.String(), "{n}", strconv.Itoa(r.N),
		"{entry}", r.Entry.String(), "{entries}", idsOf(r.Entries), "{state}", r.State, "{name}", r.Name, "{actor}", actor, "{text}", r.Text).Replace(sentence))
}

func idsOf(ids []compensator.EntryID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return strings.Join(texts, ", ")
}
