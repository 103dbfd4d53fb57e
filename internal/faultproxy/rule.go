package faultproxy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// These are commands of the MySQL protocol that a Match may distinguish.
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
	Connection uint64 // number of the client's connection, counted from 1
	Command    byte   // command byte of the protocol: 0x03 is COM_QUERY
	Text       string // text of COM_QUERY and COM_STMT_PREPARE. For COM_STMT_EXECUTE it is the prepared text
}

// Runs reports whether the request executes its Text.
func (r Request) Runs() bool { return r.Command == comQuery || r.Command == comStmtExecute }

// Match selects requests.
type Match func(Request) bool

// Commit matches every COMMIT that ends a transaction.
func Commit() Match { return Statement("COMMIT") }

// Statement matches the execution of exactly this text, ignoring case and surrounding space.
func Statement(text string) Match {
	return func(r Request) bool { return r.Runs() && strings.EqualFold(strings.Trim(r.Text, " \t\r\n;"), text) }
}

// Contains matches requests that run a statement whose text contains all the strings in parts.
func Contains(parts ...string) Match {
	return func(r Request) bool {
		return r.Runs() && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(r.Text, part) })
	}
}

// Fault says what the proxy does to a request.
type Fault int

// These are the faults.
const (
	Count        Fault = iota // no fault. See Trap.Matched
	DropRequest               // the server does not get the request
	DropReply                 // the server executes the request, and the proxy drops the whole reply
	DelayRequest              // the server gets the request after Rule.Delay
	DelayReply                // the client gets the reply after Rule.Delay
)

// Rule says which requests to break and how.
type Rule struct {
	Match Match // nil matches every request
	Nth   int   // number of the match to break, counted from 1 over all connections. 0 breaks every match
	Fault Fault
	Delay time.Duration

	// Hang keeps the connection open after the proxy has dropped a request or a reply, but the proxy forwards nothing
	// more. Cut, Refuse and Close end such a connection, and HangUp closes its server side. If Hang is false, the proxy
	// closes both sides after the drop.
	Hang bool
}

// Trap is an active rule.
type Trap struct {
	rule Rule

	mu         sync.Mutex // guards the fields below
	isDisarmed bool
	matchCount int
	fireCount  int
	firstFired chan struct{} // closed when fireCount becomes 1
}

// Matched returns the number of requests that matched, whether they were broken or not.
func (t *Trap) Matched() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.matchCount
}

// Fired returns the number of requests that the trap has broken. It counts a dropped reply once the server has sent it.
// It counts a delay when the delay begins.
func (t *Trap) Fired() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fireCount
}

// Await waits until the trap has fired. It returns ctx's error if ctx ends first.
func (t *Trap) Await(ctx context.Context) error {
	select {
	case <-t.firstFired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Disarm ends the rule. Connections that the trap has broken stay broken.
func (t *Trap) Disarm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isDisarmed = true
}

// matches reports whether the trap breaks this request. It counts the match.
func (t *Trap) matches(r Request) bool {
	if t.rule.Match != nil && !t.rule.Match(r) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isDisarmed {
		return false
	}
	t.matchCount++
	return t.rule.Nth == 0 || t.rule.Nth == t.matchCount
}

func (t *Trap) markFired() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fireCount++; t.fireCount == 1 {
		close(t.firstFired)
	}
}
