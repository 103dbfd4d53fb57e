package faultproxy

import (
	"net"
	"sync/atomic"
	"time"
)

// TCP forwards bytes without parsing them. Faults affect all connections, old and new, until Heal.
type TCP struct {
	proxy
	isSwallowing   atomic.Bool
	swallowedBytes atomic.Int64
	latency        atomic.Int64 // in ns
}

func NewTCP(target string) (*TCP, error) {
	p := new(TCP)
	return p, p.start(target, p.forward)
}

func (p *TCP) SwallowReplies() { p.isSwallowing.Store(true) }

func (p *TCP) Swallowed() int64 { return p.swallowedBytes.Load() }

// Latency delays each reply by at least d. Zero ends the delay.
func (p *TCP) Latency(d time.Duration) { p.latency.Store(int64(d)) }

// Heal ends SwallowReplies, Latency and Refuse. Dropped replies stay lost, so a connection that waits for one keeps
// waiting.
func (p *TCP) Heal() {
	p.isSwallowing.Store(false)
	p.latency.Store(0)
	p.setRefusing(false)
}

func (p *TCP) forward(l *link) {
	l.runBoth(
		func() { pump(l.client, func(b []byte) bool { return write(l.server, b) }) },
		func() { pump(l.server, func(b []byte) bool { return p.reply(l, b) }) },
	)
}

func (p *TCP) reply(l *link, b []byte) bool {
	if d := time.Duration(p.latency.Load()); d > 0 && !l.wait(d) {
		return false
	}
	if p.isSwallowing.Load() {
		p.swallowedBytes.Add(int64(len(b)))
		return true
	}
	return write(l.client, b)
}

func pump(source net.Conn, forward func([]byte) bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := source.Read(buf)
		if n > 0 && !forward(buf[:n]) || err != nil {
			return
		}
	}
}

func write(to net.Conn, b []byte) bool {
	_, err := to.Write(b)
	return err == nil
}
