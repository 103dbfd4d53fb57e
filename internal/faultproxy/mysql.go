package faultproxy

import (
	"bufio"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// MySQL forwards the MySQL protocol one message at a time, and breaks the requests that its traps match. It removes TLS
// and compression from the server's capabilities. A client that requires TLS or compression cannot connect.
type MySQL struct {
	proxy
	connections atomic.Uint64

	trapsMu         sync.Mutex // guards the fields below
	traps           []*Trap
	hangingSessions map[*session]struct{}
}

func NewMySQL(target string) (*MySQL, error) {
	p := new(MySQL)
	return p, p.start(target, func(l *link) {
		s := &session{link: l, number: p.connections.Add(1), proxy: p, texts: make(map[uint32]string)}
		l.runBoth(s.requests, s.replies)
		p.removeSession(s)
	})
}

// Arm activates a rule. If several rules match a request, only the one that was armed first has an effect.
func (p *MySQL) Arm(rule Rule) *Trap {
	t := &Trap{rule: rule, firstFired: make(chan struct{})}
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// Heal disarms all traps and ends Refuse.
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
	for s := range p.hangingSessions {
		_ = s.server.Close()
	}
}

func (p *MySQL) addHanging(s *session) {
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	if p.hangingSessions == nil {
		p.hangingSessions = make(map[*session]struct{})
	}
	p.hangingSessions[s] = struct{}{}
}

func (p *MySQL) removeSession(s *session) {
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	delete(p.hangingSessions, s)
}

func (p *MySQL) trap(r Request) *Trap {
	p.trapsMu.Lock()
	defer p.trapsMu.Unlock()
	var match *Trap
	for _, t := range p.traps {
		if t.matches(r) && match == nil {
			match = t
		}
	}
	return match
}

// A client waits for the reply before it sends the next command.
type session struct {
	*link
	number uint64
	proxy  *MySQL

	mu           sync.Mutex // guards the fields below
	lacksEOF     bool
	texts        map[uint32]string
	preparedText *string // the statement text whose id the server will send next
	activeTrap   *Trap
	currentReply *reply // progress of the reply that activeTrap breaks. Set and cleared together with activeTrap
	hung         bool
}

func (s *session) requests() {
	r := bufio.NewReader(s.client)
	for isFirst := true; ; isFirst = false {
		m, err := readMessage(r)
		if err != nil {
			return
		}
		switch {
		case isFirst:
			s.mu.Lock()
			s.lacksEOF = deprecatesEOF(m)
			s.mu.Unlock()
		case m.isCommand() && !s.request(m):
			return
		}
		if !write(s.server, m.wireBytes) {
			return
		}
	}
}

func (s *session) request(m message) bool {
	req := s.read(m)
	t := s.proxy.trap(req)
	if t == nil || t.rule.Fault == Count {
		return true
	}
	switch t.rule.Fault {
	case DropRequest:
		if t.rule.Hang {
			s.waitHung() // Call this before markFired. Then a test that Await wakes can call HangUp at once, and HangUp finds this session.
		}
		t.markFired()
		if t.rule.Hang {
			<-s.closedCh
		}
		return false
	case DelayRequest:
		t.markFired()
		return s.wait(t.rule.Delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := newReply(req.Command, s.lacksEOF); answer != nil {
		s.activeTrap, s.currentReply = t, answer
	}
	return true
}

func (s *session) read(m message) Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	req := Request{Connection: s.number, Command: m.payload[0]}
	body := m.payload[1:]
	s.preparedText = nil
	switch req.Command {
	case comQuery:
		req.Text = string(body)
	case comStmtPrepare:
		req.Text = string(body)
		s.preparedText = &req.Text
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

func (s *session) waitHung() {
	s.mu.Lock()
	s.hung = true
	s.mu.Unlock()
	s.proxy.addHanging(s)
}

func (s *session) replies() {
	r := bufio.NewReader(s.server)
	for isFirst := true; ; isFirst = false {
		m, err := readMessage(r)
		if err != nil {
			if s.isHung() {
				<-s.closedCh // Keep the client's connection open. The client must wait for an answer that never comes.
			}
			return
		}
		if isFirst {
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

// reply returns false if the connection must be closed.
func (s *session) reply(m message) bool {
	t, isLast := s.trackReply(m)
	if t == nil {
		return s.isHung() || write(s.client, m.wireBytes)
	}
	if t.rule.Fault == DelayReply {
		t.markFired()
		return s.wait(t.rule.Delay) && write(s.client, m.wireBytes)
	}
	if !isLast {
		return true
	}
	if t.rule.Hang {
		s.waitHung()
	}
	t.markFired()
	return t.rule.Hang
}

func (s *session) trackReply(m message) (t *Trap, isLast bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.preparedText != nil && m.kind() == okPacket && len(m.payload) >= 5 {
		s.texts[binary.LittleEndian.Uint32(m.payload[1:])] = *s.preparedText
	}
	s.preparedText = nil
	t = s.activeTrap
	if t == nil {
		return nil, false
	}
	if t.rule.Fault == DelayReply {
		s.activeTrap, s.currentReply = nil, nil // Delay only the first message. The rest of the reply follows it, and so comes late too.
		return t, false
	}
	if isLast = s.currentReply.isEnd(m); isLast {
		s.activeTrap, s.currentReply = nil, nil
	}
	return t, isLast
}
