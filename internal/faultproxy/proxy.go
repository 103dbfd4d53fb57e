// Package faultproxy provides proxies between a client and a server that break traffic at a chosen place.
//
// MySQL parses the protocol, so it can break one statement.
//
// Every proxy listens on a port of 127.0.0.1 and forwards all bytes unchanged until a fault is requested. All methods
// may be called concurrently.
package faultproxy

import (
	"net"
	"sync"
	"time"
)

type proxy struct {
	listener   net.Listener
	serve      func(*link)
	goroutines sync.WaitGroup

	mu         sync.Mutex // guards the fields below
	target     string
	links      map[*link]struct{}
	isRefusing bool
	isClosed   bool
}

func (p *proxy) start(target string, serve func(*link)) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.target, p.listener, p.serve = target, listener, serve
	p.links = make(map[*link]struct{})
	p.goroutines.Add(1)
	go p.accept()
	return nil
}

// Addr returns the address for clients, host:port.
func (p *proxy) Addr() string { return p.listener.Addr().String() }

// New connections are accepted.
func (p *proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse closes every open connection, and each new one directly after accepting it, until Heal is called.
func (p *proxy) Refuse() {
	p.setRefusing(true)
	p.Cut()
}

func (p *proxy) setRefusing(isRefusing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isRefusing = isRefusing
}

// Open connections stay on the old server.
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

// Connections returns the number of open connections.
func (p *proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close stops the proxy and closes all its connections.
func (p *proxy) Close() error {
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.goroutines.Wait()
	return err
}

func (p *proxy) accept() {
	defer p.goroutines.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.goroutines.Add(1)
		go p.join(client)
	}
}

func (p *proxy) join(client net.Conn) {
	defer p.goroutines.Done()
	server, err := net.Dial("tcp", p.server())
	if err != nil {
		client.Close()
		return
	}
	l := &link{client: client, server: server, closedCh: make(chan struct{})}
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
	if p.isClosed || p.isRefusing {
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

type link struct {
	client, server net.Conn
	once           sync.Once
	closedCh       chan struct{}
}

func (l *link) cut() {
	l.once.Do(func() {
		close(l.closedCh)
		l.client.Close()
		l.server.Close()
	})
}

func (l *link) runBoth(requests, replies func()) {
	repliesEnded := make(chan struct{})
	go func() {
		defer close(repliesEnded)
		defer l.cut()
		replies()
	}()
	requests()
	l.cut()
	<-repliesEnded
}

// wait returns false if the link was closed meanwhile.
func (l *link) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closedCh:
		return false
	}
}
