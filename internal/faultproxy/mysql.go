package faultproxy

import (
	"bufio"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// MySQL forwards the MySQL protocol one message at a time, and breaks the requests that its traps match. It removes TLS
// and compression from the server's capabilities. A client that insists on them cannot connect.
type MySQL struct {
	proxy
	connections atomic.Uint64 // connections so far

	trapsMu sync.Mutex // guards the fields below
	traps   []*Trap
	hanging map[*session]struct{}
}

// NewMySQL starts a proxy to target, which is host:port.
func NewMySQL(target string) (*MySQL, error) {
	p := new(MySQL)
	return p, p.start(target, func(l *link) {
		s := &session{link: l, number: p.connections.Add(1), proxy: p, texts: make(map[uint32]string)}
		l.both(s.requests, s.replies)
		p.ended(s)
	})
}

// Arm activates a rule. If several rules match a request, only the one that was armed first has an effect.
func (p *MySQL) Arm(rule Rule) *Trap {
	t := &Trap{rule: rule, first: make(chan struct{})}
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// Heal disarms all traps and ends Refuse. Hanging connections stay open. See Cut.
func (p *MySQL) Heal() {
	p.setRefusing(false)
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	for _, t := range p.traps {
		t.Disarm()
	}
	p.traps = nil
}

// HangUp closes the server side of all hanging connections, so the server rolls their transactions back. The clients
// keep waiting.
func (p *MySQL) HangUp() {
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	for s := range p.hanging {
		_ = s.server.Close()
	}
}

func (p *MySQL) hangs(s *session) {
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	if p.hanging == nil {
		p.hanging = make(map[*session]struct{})
	}
	p.hanging[s] = struct{}{}
}

func (p *MySQL) ended(s *session) {
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	delete(p.hanging, s)
}

func (p *MySQL) trap(r Request) *Trap {
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	var sprung *Trap
	for _, t := range p.traps {
		if t.springs(r) && sprung == nil {
			sprung = t
		}
	}
	return sprung
}

// session is the connection of one client. Each direction runs in a separate goroutine. A client waits for the reply
// before it sends the next command.
type session struct {
	*link
	number uint64
	proxy  *MySQL

	mu       sync.Mutex // guards the fields below
	noEOF    bool
	texts    map[uint32]string // texts of prepared statements by id
	prepared *string           // the statement text whose id the server will send next
	broken   *Trap             // the trap that breaks the current reply
	answer   *reply            // finds the end of the current reply; set together with broken
	hung     bool
}

func (s *session) requests() {
	r := bufio.NewReader(s.client)
	for first := true; ; first = false {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		switch {
		case first:
			s.mu.Lock()
			s.noEOF = deprecatesEOF(m)
			s.mu.Unlock()
		case m.isCommand() && !s.request(m):
			return
		}
		if !write(s.server, m.raw) {
			return
		}
	}
}

// request applies the traps to a command and reports whether to forward it.
func (s *session) request(m message) bool {
	req := s.read(m)
	t := s.proxy.trap(req)
	if t == nil || t.rule.Fault == Count {
		return true
	}
	switch t.rule.Fault {
	case DropRequest:
		if t.rule.Hang {
			s.hang() // Hang before fire, because a caller that waits for the trap may call HangUp at once.
		}
		t.fire()
		if t.rule.Hang {
			<-s.done
		}
		return false
	case DelayRequest:
		t.fire()
		return s.wait(t.rule.Delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := newReply(req.Command, s.noEOF); answer != nil {
		s.broken, s.answer = t, answer
	}
	return true
}

// read parses a command and records prepared statements.
func (s *session) read(m message) Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	req := Request{Connection: s.number, Command: m.payload[0]}
	body := m.payload[1:]
	s.prepared = nil
	switch req.Command {
	case comQuery:
		req.Text = string(body)
	case comStmtPrepare:
		req.Text = string(body)
		s.prepared = &req.Text
	case comStmtExecute, comStmtClose:
		if len(body) >= 4 {
			id := binary.LittleEndian.Uint32(body)
			req.Text = s.texts[id]
			if req.Command == comStmtClose {
				delete(s.texts, id)
			}
		}
	}
	return req
}

func (s *session) hang() {
	s.mu.Lock()
	s.hung = true
	s.mu.Unlock()
	s.proxy.hangs(s)
}

func (s *session) replies() {
	r := bufio.NewReader(s.server)
	for first := true; ; first = false {
		m, err := readMessage(r)
		if err != nil {
			if s.isHung() {
				<-s.done // The client must not see the end of the connection.
			}
			return
		}
		if first {
			hideTLS(m)
		}
		if !s.reply(m) {
			return
		}
	}
}

func (s *session) isHung() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung
}

// reply forwards a server's message, or does to it what the trap says. It returns false if the connection must be
// closed.
func (s *session) reply(m message) bool {
	t, last := s.follow(m)
	if t == nil {
		return s.isHung() || write(s.client, m.raw)
	}
	if t.rule.Fault == DelayReply {
		t.fire()
		return s.wait(t.rule.Delay) && write(s.client, m.raw)
	}
	if !last {
		return true
	}
	if t.rule.Hang {
		s.hang()
	}
	t.fire()
	return t.rule.Hang
}

// follow returns the trap of the current reply, and whether this message is the last of the reply.
func (s *session) follow(m message) (t *Trap, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prepared != nil && m.kind() == okPacket && len(m.payload) >= 5 {
		s.texts[binary.LittleEndian.Uint32(m.payload[1:])] = *s.prepared
	}
	s.prepared = nil
	t = s.broken
	if t == nil {
		return nil, false
	}
	if t.rule.Fault == DelayReply {
		s.broken, s.answer = nil, nil // If the first message is delayed, the rest of the reply comes later too.
		return t, false
	}
	if last = s.answer.ends(m); last {
		s.broken, s.answer = nil, nil
	}
	return t, last
}
