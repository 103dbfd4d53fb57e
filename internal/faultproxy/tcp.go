package faultproxy

import (
	"net"
	"sync/atomic"
	"time"
)

// TCP forwards bytes without understanding them. Faults hold for all connections, old and new, until Heal.
type TCP struct {
	proxy
	swallowing atomic.Bool
	swallowed  atomic.Int64
	latency    atomic.Int64 // ns
}

// NewTCP starts a proxy to target, host:port.
func NewTCP(target string) (*TCP, error) {
	p := new(TCP)
	return p, p.start(target, p.forward)
}

// SwallowReplies lets requests reach the server and throws away all it says: done, but nobody knows.
func (p *TCP) SwallowReplies() { p.swallowing.Store(true) }

// Swallowed is how many bytes of replies were thrown away since the proxy was started.
func (p *TCP) Swallowed() int64 { return p.swallowed.Load() }

// Latency makes each reply come at least d later. Zero ends that.
func (p *TCP) Latency(d time.Duration) { p.latency.Store(int64(d)) }

// Heal ends SwallowReplies, Latency and Refuse. Replies already swallowed stay lost, so a connection that
// waits for one still waits.
func (p *TCP) Heal() {
	p.swallowing.Store(false)
	p.latency.Store(0)
	p.setRefusing(false)
}

func (p *TCP) forward(l *link) {
	l.both(
		func() { pump(l.client, func(b []byte) bool { return write(l.server, b) }) },
		func() { pump(l.server, func(b []byte) bool { return p.reply(l, b) }) },
	)
}

func (p *TCP) reply(l *link, b []byte) bool {
	if d := time.Duration(p.latency.Load()); d > 0 && !l.wait(d) {
		return false
	}
	if p.swallowing.Load() {
		p.swallowed.Add(int64(len(b)))
		return true
	}
	return write(l.client, b)
}

// pump hands on what it reads until the connection ends or to says no.
func pump(from net.Conn, to func([]byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !to(buf[:n]) || err != nil {
			return
		}
	}
}

func write(to net.Conn, b []byte) bool {
	_, err := to.Write(b)
	return err == nil
}
