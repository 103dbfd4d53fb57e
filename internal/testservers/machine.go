package testservers

import (
	"fmt"
	"testing"
)

// machine is what one server runs on. Its methods may be called concurrently. A server keeps its address and its stored
// data until discard.
type machine interface {
	addr() string     // host:port
	kill() error      // kills it immediately, like a crash; nil if it is not running
	stop() error      // stops it in order; nil if it is not running
	restart() error   // stops it if it runs; returns when it answers again
	pause() error     // freezes it: connections stay open, and it does not answer
	resume() error    // lets a frozen server continue
	errorLog() string // its log since its first start
	discard()         // ends it and deletes its data
}

// Only the test that started a server may use its control. On a shared server the methods panic.
type control struct {
	machine machine
	owner   testing.TB // nil for a shared server
}

// Addr returns the server's address, host:port. It stays the same across Restart.
func (c *control) Addr() string { return c.machine.addr() }

// ErrorLog returns the server's log so far. It is empty for a server that was given by its address.
func (c *control) ErrorLog() string { return c.machine.errorLog() }

// Kill ends the server with SIGKILL and returns when the process has ended. Restart brings it back with its durable
// data. Killing a dead server does nothing.
func (c *control) Kill() { c.do("kill", machine.kill) }

// Stop ends the server in order and returns when the process has ended.
func (c *control) Stop() { c.do("stop", machine.stop) }

// Pause freezes the server like SIGSTOP. Its connections stay open, and it does not answer.
func (c *control) Pause() { c.do("pause", machine.pause) }

// Resume undoes Pause.
func (c *control) Resume() { c.do("resume", machine.resume) }

// Restart starts a killed or stopped server again with the same address and data. It returns when the server answers. A
// running server is stopped first.
func (c *control) Restart(tb testing.TB) {
	tb.Helper()
	c.requireOwn("restart")
	if err := c.machine.restart(); err != nil {
		tb.Fatalf("testservers: restart %s: %v", c.Addr(), err)
	}
}

// do may be called from any goroutine of the test, so a failed action marks the test as failed without ending it.
func (c *control) do(verb string, action func(machine) error) {
	c.requireOwn(verb)
	c.owner.Helper()
	if err := action(c.machine); err != nil {
		c.owner.Errorf("testservers: %s %s: %v", verb, c.Addr(), err)
	}
}

func (c *control) requireOwn(verb string) {
	if c.owner == nil {
		panic("testservers: " + verb + " a shared server: other tests use it; start one with NewSQL, NewRedis or NewRabbitMQ")
	}
}

// If the test failed, discardAtEnd prints the end of the server's log.
func (c *control) discardAtEnd() {
	c.owner.Cleanup(func() {
		if c.owner.Failed() {
			c.owner.Logf("end of the log of %s:\n%s", c.Addr(), lastLines(c.ErrorLog(), 30))
		}
		c.machine.discard()
	})
}

// givenServer is a server that this process did not start.
type givenServer struct{ address string }

func (g givenServer) addr() string     { return g.address }
func (g givenServer) errorLog() string { return "" }
func (g givenServer) discard()         {}
func (g givenServer) kill() error      { return g.refuse() }
func (g givenServer) stop() error      { return g.refuse() }
func (g givenServer) restart() error   { return g.refuse() }
func (g givenServer) pause() error     { return g.refuse() }
func (g givenServer) resume() error    { return g.refuse() }

func (g givenServer) refuse() error {
	return fmt.Errorf("server %s was given by its address and is not ours", g.address)
}
