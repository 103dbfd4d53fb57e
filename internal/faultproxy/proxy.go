// Package faultproxy stands between a client and a server and breaks what passes, at a chosen place.
//
// MySQL understands the protocol well enough to break one statement: drop the request of a COMMIT, or only
// its reply, which no killed server and no byte-level proxy can be made to do reliably. TCP takes whole
// connections, and serves for Redis.
//
// Every proxy listens on a port of 127.0.0.1, forwards faithfully until told otherwise, counts what it
// broke, and leaves nothing behind after Close. All methods may be called concurrently.
package faultproxy

import (
	"net"
	"sync"
	"time"
)

// proxy accepts connections and joins each with one of its own to the target.
type proxy struct {
	listener net.Listener
	serve    func(*link)
	running  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	target   string
	links    map[*link]struct{}
	refusing bool
	closed   bool
}

func (p *proxy) start(target string, serve func(*link)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.target, p.listener, p.serve = target, listener, serve
	p.links = make(map[*link]struct{})
	p.running.Add(1)
	go p.accept()
	return nil
}

// Addr is where clients connect, host:port.
func (p *proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes every connection there is, on both sides. New ones are welcome.
func (p *proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse closes every connection there is, and each new one as soon as it was accepted, until Heal.
func (p *proxy) Refuse() {
	p.setRefusing(true)
	p.Cut()
}

func (p *proxy) setRefusing(refusing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = refusing
}

// Retarget sends new connections to another server. Those there are stay where they are; see Cut.
func (p *proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *proxy) server() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Connections is how many are open now.
func (p *proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close ends the proxy and everything that passes through it.
func (p *proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.running.Wait()
	return err
}

func (p *proxy) accept() {
	defer p.running.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Add(1)
		go p.join(client)
	}
}

func (p *proxy) join(client net.Conn) {
	defer p.running.Done()
	server, err := net.Dial("tcp", p.server())
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server, done: make(chan struct{})}
	defer l.cut()
	if !p.admit(l) {
		return
	}
	defer p.forget(l)
	p.serve(l)
}

func (p *proxy) admit(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// link is one client's connection through the proxy.
type link struct {
	client, server net.Conn
	once           sync.Once
	done           chan struct{} // closed by cut
}

func (l *link) cut() {
	l.once.Do(func() {
		close(l.done)
		l.client.Close()
		l.server.Close()
	})
}

// both runs the two directions until both have ended; the first to end cuts the link.
func (l *link) both(requests, replies func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer l.cut()
		replies()
	}()
	requests()
	l.cut()
	<-ended
}

// wait lets d pass, and reports whether the link is still there.
func (l *link) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}
