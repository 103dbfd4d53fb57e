package faultproxy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

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

type Request struct {
	Connection uint64 // counted from 1
	Command    byte   // 0x03 is COM_QUERY
	Text       string // text of COM_QUERY and COM_STMT_PREPARE. For COM_STMT_EXECUTE it is the prepared text
}

func (r Request) Runs() bool { return r.Command == comQuery || r.Command == comStmtExecute }

// Match selects requests.
type Match func(Request) bool

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

type Fault int

const (
	Count Fault = iota
	DropRequest
	DropReply
	DelayRequest
	DelayReply
)

type Rule struct {
	Match Match // nil matches every request
	Nth   int   // number of the match to break, counted from 1 over all connections. 0 breaks every match
	Fault Fault
	Delay time.Duration

	// Hang keeps the connection open after the proxy has dropped a request or a reply, but the proxy forwards nothing
	// more.
	Hang bool
}

type Trap struct {
	rule Rule

	mu         sync.Mutex // guards the fields below
	isDisarmed bool
	matchCount int
	fireCount  int
	firstFired chan struct{} // closed when fireCount becomes 1
}

func (t *Trap) Matched() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.matchCount
}

// Fired returns how many requests the trap has broken. A dropped reply counts as soon as the server has sent all of it.
func (t *Trap) Fired() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fireCount
}

// Await returns ctx's error if ctx ends first.
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

// matches counts the match.
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
