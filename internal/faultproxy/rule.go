package faultproxy

import (
	"context"
	"strings"
	"sync"
	"time"
)

// The commands of the MySQL protocol that a Match may want to tell apart.
const (
	comQuit             = 0x01
	comQuery            = 0x03
	comFieldList        = 0x04
	comStmtPrepare      = 0x16
	comStmtExecute      = 0x17
	comStmtSendLongData = 0x18
	comStmtClose        = 0x19
	comStmtFetch        = 0x1c
)

// Request is a command of a client.
type Request struct {
	Connection uint64 // of the client, counted from 1
	Command    byte   // as in the protocol: 0x03 is COM_QUERY
	Text       string // of COM_QUERY, COM_STMT_PREPARE and, as prepared, COM_STMT_EXECUTE
}

// Runs reports whether the request executes its Text.
func (r Request) Runs() bool { return r.Command == comQuery || r.Command == comStmtExecute }

// Match selects requests.
type Match func(Request) bool

// Commit matches every COMMIT that ends a transaction.
func Commit() Match { return Statement("COMMIT") }

// Statement matches the execution of exactly this text, in any case and spacing around it.
func Statement(text string) Match {
	return func(r Request) bool { return r.Runs() && strings.EqualFold(strings.Trim(r.Text, " \t\r\n;"), text) }
}

// Contains matches the execution of a text that contains part.
func Contains(part string) Match {
	return func(r Request) bool { return r.Runs() && strings.Contains(r.Text, part) }
}

// Fault is what happens to a request.
type Fault int

// The faults.
const (
	Count        Fault = iota // nothing; see Trap.Matched
	DropRequest               // the server never sees it
	DropReply                 // the server does it and its whole answer is thrown away
	DelayRequest              // the server sees it Rule.Delay later
	DelayReply                // the client is answered Rule.Delay later
)

// Rule breaks requests.
type Rule struct {
	Match Match // nil: every request
	Nth   int   // break this one only, counted from 1 over all connections; 0: every one
	Fault Fault
	Delay time.Duration

	// Hang leaves a connection open and silent after a drop, until Cut, Refuse or Close; see HangUp. The default is to
	// close it on both sides.
	Hang bool
}

// Trap is a rule in force.
type Trap struct {
	rule Rule

	mu       sync.Mutex // guards the fields below
	disarmed bool
	matched  int
	fired    int
	first    chan struct{} // closed when fired becomes 1
}

// Matched is how many requests matched, broken or not.
func (t *Trap) Matched() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.matched
}

// Fired is how many requests were broken. A dropped reply counts once the server has answered, a delay once
// it has begun.
func (t *Trap) Fired() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fired
}

// Await returns when the trap has fired, or with ctx's error.
func (t *Trap) Await(ctx context.Context) error {
	select {
	case <-t.first:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Disarm ends the rule. What it has broken stays broken.
func (t *Trap) Disarm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disarmed = true
}

// springs reports whether the trap is to break this request.
func (t *Trap) springs(r Request) bool {
	if t.rule.Match != nil && !t.rule.Match(r) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.disarmed {
		return false
	}
	t.matched++
	return t.rule.Nth == 0 || t.rule.Nth == t.matched
}

func (t *Trap) fire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fired++; t.fired == 1 {
		close(t.first)
	}
}
