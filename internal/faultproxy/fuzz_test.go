package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func packet(sequence byte, payload ...byte) []byte {
	header := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	header[3] = sequence
	return append(header, payload...)
}

func greeting() []byte {
	payload := append([]byte("\x0a10.11.19-MariaDB\x00"), 1, 0, 0, 0)
	payload = append(payload, "12345678\x00"...)
	return packet(0, append(payload, 0xff, 0xff, 33, 2, 0, 0xff, 0xff, 21)...)
}

var conversations = [][2][]byte{
	{nil, nil},
	{packet(1, 0xff, 0xff, 0xff, 0x01), greeting()},
	{
		bytes.Join([][]byte{packet(1, 0, 0, 0, 1), packet(0, append([]byte{comQuery}, "COMMIT"...)...), packet(0, comQuit)}, nil),
		bytes.Join([][]byte{greeting(), packet(2, okPacket, 0, 0, 2, 0), packet(1, okPacket, 0, 0, 2, 0, 0, 0)}, nil),
	},
	{
		bytes.Join([][]byte{packet(1, 0, 0, 0, 0), packet(0, append([]byte{comStmtPrepare}, "SELECT ?"...)...), packet(0, comStmtExecute, 7, 0, 0, 0), packet(0, comStmtClose, 7, 0, 0, 0)}, nil),
		bytes.Join([][]byte{
			greeting(), packet(2, okPacket, 0, 0), packet(1, okPacket, 7, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0), packet(2, 3, 'd', 'e', 'f'), packet(3, eofPacket, 0, 0, 2, 0),
			packet(4, 3, 'd', 'e', 'f'), packet(5, eofPacket, 0, 0, 2, 0), packet(1, 1), packet(2, 3, 'd', 'e', 'f'), packet(3, eofPacket, 0, 0, 2, 0), packet(4, 0, 0, 1), packet(5, eofPacket, 0, 0, 10, 0), packet(6),
		}, nil),
	},
	{packet(0), bytes.Join([][]byte{packet(0), packet(1), packet(2), packet(3, errPacket), packet(0, 0xfe), packet(0, 0xfc), packet(0, 0xfb)}, nil)},
	{[]byte{0xff, 0xff, 0xff, 0, 1}, []byte{0xff, 0xff, 0xff, 0}},
}

// However the network splits the bytes, readMessage must return exactly the bytes on the wire.
func FuzzReadMessage(f *testing.F) {
	for _, c := range conversations {
		f.Add(c[0], 1)
		f.Add(c[1], 3)
	}
	f.Fuzz(func(t *testing.T, wire []byte, piece int) {
		r := bufio.NewReader(&pieces{wire, int(uint(piece)%64) + 1})
		raw := []byte{}
		for {
			m, err := readMessage(r)
			if err != nil {
				break
			}
			require.GreaterOrEqual(t, len(m.wireBytes), headerSize)
			require.LessOrEqual(t, len(m.payload), len(m.wireBytes)-headerSize)
			_, _ = m.isCommand(), m.kind()
			_ = deprecatesEOF(m)
			raw = append(raw, m.wireBytes...)
		}
		require.True(t, bytes.Equal(wire[:len(raw)], raw), "got %q, want %q", raw, wire[:len(raw)])
	})
}

type pieces struct {
	left []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.left)
	p.left = p.left[n:]
	return n, nil
}

func FuzzReply(f *testing.F) {
	for _, c := range conversations {
		for _, command := range []byte{comQuery, comStmtPrepare, comStmtExecute, comStmtFetch, comFieldList, comQuit, 0} {
			f.Add(c[1], command, command%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, wire []byte, command byte, lacksEOF bool) {
		r := bufio.NewReader(bytes.NewReader(wire))
		answer := newReply(command, lacksEOF)
		for answer != nil {
			m, err := readMessage(r)
			if err != nil {
				return
			}
			if answer.isEnd(m) {
				answer = newReply(command, lacksEOF)
			}
		}
	})
}

// Without a fault, each side must get the bytes of the other unchanged, except for the TLS and compression flags. A
// fault may at most break the session. When both sides have closed, no goroutine may remain.
func FuzzMySQLSession(f *testing.F) {
	for _, c := range conversations {
		for fault := range DelayReply + 2 {
			f.Add(c[0], c[1], 5, byte(fault), false)
			f.Add(c[0], c[1], 64, byte(fault), true)
		}
	}
	f.Fuzz(func(t *testing.T, said, answered []byte, piece int, number byte, hang bool) {
		ignore := goleak.IgnoreCurrent()
		p, fault := new(MySQL), Fault(number%byte(DelayReply+2))
		if fault <= DelayReply {
			p.Arm(Rule{Fault: fault, Delay: time.Microsecond, Hang: hang})
		}
		client, clientSide := net.Pipe()
		server, serverSide := net.Pipe()
		l := &link{client: clientSide, server: serverSide, closedCh: make(chan struct{})}
		served := make(chan struct{})
		go func() {
			defer close(served)
			s := &session{link: l, proxy: p, texts: make(map[uint32]string)}
			l.runBoth(s.requests, s.replies)
		}()
		atServer, atClient := hear(server), hear(client)
		spoken := make(chan struct{}, 2)
		go speak(client, said, piece, spoken)
		go speak(server, answered, piece, spoken)
		if fault == Count || fault > DelayReply || fault == DelayRequest || fault == DelayReply {
			atServer.await(t, whole(said))
			atClient.await(t, cleartext(whole(answered)))
			<-spoken
			<-spoken
		}
		_ = client.Close()
		_ = server.Close()
		l.cut()
		for _, ended := range []chan struct{}{served, atServer.ended, atClient.ended} {
			<-ended
		}
		require.True(t, bytes.HasPrefix(whole(said), atServer.heard()), "the server got bytes that the client did not send")
		require.NoError(t, goleak.Find(ignore))
	})
}

func speak(to net.Conn, all []byte, piece int, spoken chan<- struct{}) {
	defer func() { spoken <- struct{}{} }()
	for b := range slices.Chunk(all, int(uint(piece)%512)+1) {
		if _, err := to.Write(b); err != nil {
			return
		}
	}
}

type listener struct {
	mu              sync.Mutex // guards all fields
	all             []byte
	moreDefinitions chan struct{}
	ended           chan struct{}
}

func hear(source net.Conn) *listener {
	l := &listener{moreDefinitions: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		pump(source, func(b []byte) bool {
			l.mu.Lock()
			l.all = append(l.all, b...)
			l.mu.Unlock()
			select {
			case l.moreDefinitions <- struct{}{}:
			default:
			}
			return true
		})
	}()
	return l
}

func (l *listener) heard() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.all)
}

func (l *listener) await(t *testing.T, want []byte) {
	t.Helper()
	for deadline := time.After(time.Minute); len(l.heard()) < len(want); {
		select {
		case <-l.moreDefinitions:
		case <-deadline:
			require.Equal(t, want, l.heard(), "not all was forwarded")
		}
	}
	require.True(t, bytes.Equal(want, l.heard()), "got %q, want %q", l.heard(), want)
}

// The proxy never forwards an incomplete message.
func whole(wire []byte) []byte {
	at := 0
	for end := 0; len(wire)-end >= headerSize; {
		size := int(wire[end]) | int(wire[end+1])<<8 | int(wire[end+2])<<16
		if len(wire)-end-headerSize < size {
			break
		}
		end += headerSize + size
		if size < maxPayload {
			at = end
		}
	}
	return wire[:at]
}

func cleartext(wire []byte) []byte {
	wire = bytes.Clone(wire)
	if len(wire) < headerSize {
		return wire
	}
	size := int(wire[0]) | int(wire[1])<<8 | int(wire[2])<<16
	greeting := wire[headerSize : headerSize+size]
	version := bytes.IndexByte(greeting, 0)
	low, high := version+14, version+15
	if size > 0 && greeting[0] != errPacket && version >= 0 && high < size {
		greeting[low] &^= 0x20  // CLIENT_COMPRESS
		greeting[high] &^= 0x08 // CLIENT_SSL
	}
	return wire
}
