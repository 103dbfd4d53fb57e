package testservers

import (
	"fmt"
	"testing"
)

// machine is what one server runs on. Its methods may be called concurrently. A server keeps its address
// and, where it writes any, its data through all of them but discard.
type machine interface {
	addr() string     // host:port
	kill() error      // at once, as a crash would; nil when it does not run
	stop() error      // in order; nil when it does not run
	restart() error   // stops it when it runs; returns when it answers again
	pause() error     // freezes it: connections stay open, nothing answers
	resume() error    // lets a frozen one go on
	errorLog() string // what it has logged since it first started
	discard()         // ends it and deletes its data
}

// control is the part of a server's API that acts on its machine. It belongs to the test that started the
// server: on a shared one its methods panic, because other tests use that server too.
type control struct {
	machine machine
	owner   testing.TB // nil: shared
}

// Addr is where the server listens, host:port. It stays the same across Restart.
func (c *control) Addr() string { return c.machine.addr() }

// ErrorLog is what the server has logged so far; empty when the server was given by its address.
func (c *control) ErrorLog() string { return c.machine.errorLog() }

// Kill ends the server with SIGKILL and returns when it is gone. Restart brings it back with what was
// durable. Killing a dead server does nothing.
func (c *control) Kill() { c.do("kill", machine.kill) }

// Stop ends the server in order and returns when it is gone.
func (c *control) Stop() { c.do("stop", machine.stop) }

// Pause freezes the server as it stands, as SIGSTOP does: its connections stay open and nothing answers.
func (c *control) Pause() { c.do("pause", machine.pause) }

// Resume undoes Pause.
func (c *control) Resume() { c.do("resume", machine.resume) }

// Restart starts a killed or stopped server again on its old address and data, and returns when it answers.
// A running one is stopped first.
func (c *control) Restart(tb testing.TB) {
	tb.Helper()
	c.mustOwn("restart")
	if err := c.machine.restart(); err != nil {
		tb.Fatalf("testservers: restart %s: %v", c.Addr(), err)
	}
}

// do may be called from any goroutine of the test, so it fails the test without ending it.
func (c *control) do(verb string, action func(machine) error) {
	c.mustOwn(verb)
	c.owner.Helper()
	if err := action(c.machine); err != nil {
		c.owner.Errorf("testservers: %s %s: %v", verb, c.Addr(), err)
	}
}

func (c *control) mustOwn(verb string) {
	if c.owner == nil {
		panic("testservers: " + verb + " a shared server: other tests use it; start one with NewSQL, NewRedis or NewRabbitMQ")
	}
}

// discardAtEnd ends the server with its test, and shows the end of its log when the test failed.
func (c *control) discardAtEnd() {
	c.owner.Cleanup(func() {
		if c.owner.Failed() {
			c.owner.Logf("end of the log of %s:\n%s", c.Addr(), lastLines(c.ErrorLog(), 30))
		}
		c.machine.discard()
	})
}

// given is a machine that belongs to somebody else.
type given struct{ address string }

func (g given) addr() string     { return g.address }
func (g given) errorLog() string { return "" }
func (g given) discard()         {}
func (g given) kill() error      { return g.refuse() }
func (g given) stop() error      { return g.refuse() }
func (g given) restart() error   { return g.refuse() }
func (g given) pause() error     { return g.refuse() }
func (g given) resume() error    { return g.refuse() }

func (g given) refuse() error {
	return fmt.Errorf("server %s was given by its address and is not ours", g.address)
}
