package faultproxy

import (
	"bytes"
	"encoding/binary"
	"io"
)

const (
	headerSize = 4         // 3 bytes length, 1 byte sequence number
	maxPayload = 1<<24 - 1 // a packet this long is continued by the next
)

// message is one or more packets that make up one unit of the protocol.
type message struct {
	raw     []byte // as on the wire
	payload []byte // without the headers
}

// readMessage reads up to the end of a message, which may be less or more than one TCP segment.
func readMessage(r io.Reader) (message, error) {
	var m message
	for {
		var header [headerSize]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return m, err
		}
		size := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
		start := len(m.raw) + headerSize
		m.raw = append(m.raw, header[:]...)
		m.raw = append(m.raw, make([]byte, size)...)
		if _, err := io.ReadFull(r, m.raw[start:]); err != nil {
			return m, err
		}
		if start == headerSize {
			m.payload = m.raw[headerSize:]
		} else {
			m.payload = append(m.payload[:len(m.payload):len(m.payload)], m.raw[start:]...)
		}
		if size < maxPayload {
			return m, nil
		}
	}
}

// isCommand tells a command from the client's part in the handshake and from uploaded file content: only a
// command starts the numbering anew.
func (m message) isCommand() bool { return m.raw[3] == 0 && len(m.payload) > 0 }

func (m message) kind() byte {
	if len(m.payload) == 0 {
		return okPacket
	}
	return m.payload[0]
}

// The first byte of a server's packet.
const (
	okPacket      = 0x00
	infilePacket  = 0xfb
	eofPacket     = 0xfe
	errPacket     = 0xff
	maxEOFPayload = 8 // a longer one is a row that begins with a very long value
)

// Capabilities of the handshake.
const (
	capCompress     = 1 << 5
	capTLS          = 1 << 11
	capDeprecateEOF = 1 << 24
)

// hideTLS takes out of the server's greeting what would make the rest unreadable to us.
func hideTLS(greeting message) {
	p := greeting.payload
	version := bytes.IndexByte(p, 0)
	if greeting.kind() == errPacket || version < 0 {
		return // "too many connections"
	}
	at := version + 1 + 4 + 8 + 1 // thread id, half the salt, a zero
	if at+2 <= len(p) {
		flags := binary.LittleEndian.Uint16(p[at:])
		binary.LittleEndian.PutUint16(p[at:], flags&^(capTLS|capCompress))
	}
}

// deprecatesEOF reads the client's answer to the greeting.
func deprecatesEOF(answer message) bool {
	return len(answer.payload) >= 4 && binary.LittleEndian.Uint32(answer.payload)&capDeprecateEOF != 0
}
