package faultproxy

import (
	"bytes"
	"encoding/binary"
	"io"
)

const (
	headerSize = 4
	maxPayload = 1<<24 - 1 // a packet of this size is continued by the next
)

type message struct {
	wireBytes []byte
	payload   []byte // without the packet headers
}

func readMessage(r io.Reader) (message, error) {
	var m message
	for {
		var header [headerSize]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return m, err
		}
		size := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
		start := len(m.wireBytes) + headerSize
		m.wireBytes = append(m.wireBytes, header[:]...)
		m.wireBytes = append(m.wireBytes, make([]byte, size)...)
		if _, err := io.ReadFull(r, m.wireBytes[start:]); err != nil {
			return m, err
		}
		if start == headerSize {
			m.payload = m.wireBytes[headerSize:]
		} else {
			m.payload = append(m.payload[:len(m.payload):len(m.payload)], m.wireBytes[start:]...)
		}
		if size < maxPayload {
			return m, nil
		}
	}
}

// isCommand reports whether the message is a command. The sequence number, which is the fourth byte of a packet, is 0
// only in the first packet of a command.
func (m message) isCommand() bool { return m.wireBytes[3] == 0 && len(m.payload) > 0 }

func (m message) kind() byte {
	if len(m.payload) == 0 {
		return okPacket
	}
	return m.payload[0]
}

const (
	okPacket      = 0x00
	infilePacket  = 0xfb
	eofPacket     = 0xfe
	errPacket     = 0xff
	maxEOFPayload = 8 // a longer packet is a row that begins with a very long value
)

const (
	capCompress     = 1 << 5
	capTLS          = 1 << 11
	capDeprecateEOF = 1 << 24
)

func hideTLS(greeting message) {
	p := greeting.payload
	version := bytes.IndexByte(p, 0)
	if greeting.kind() == errPacket || version < 0 {
		return
	}
	at := version + 1 + 4 + 8 + 1 // thread id, first half of the salt, a zero byte
	if at+2 <= len(p) {
		flags := binary.LittleEndian.Uint16(p[at:])
		binary.LittleEndian.PutUint16(p[at:], flags&^(capTLS|capCompress))
	}
}

func deprecatesEOF(answer message) bool {
	return len(answer.payload) >= 4 && binary.LittleEndian.Uint32(answer.payload)&capDeprecateEOF != 0
}
