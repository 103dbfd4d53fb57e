package faultproxy

import "encoding/binary"

type reply struct {
	command         byte
	lacksEOF        bool // no EOF packet follows the column definitions
	phase           phase
	columns         uint64 // number of definitions that are still to come, of columns or of parameters
	moreDefinitions uint64 // number of column definitions that follow the parameter definitions, in the reply to COM_STMT_PREPARE
}

type phase int

const (
	head phase = iota
	definitions
	definitionsEOF
	rows
)

func newReply(command byte, lacksEOF bool) *reply {
	switch command {
	case comQuit, comStmtClose, comStmtSendLongData:
		return nil
	case comStmtFetch, comFieldList:
		return &reply{command: command, lacksEOF: lacksEOF, phase: rows}
	}
	return &reply{command: command, lacksEOF: lacksEOF}
}

func (r *reply) isEnd(m message) bool {
	if m.kind() == errPacket {
		return true
	}
	switch r.phase {
	case head:
		return r.readHead(m)
	case definitions:
		if r.columns--; r.columns > 0 {
			return false
		}
		if !r.lacksEOF {
			r.phase = definitionsEOF
			return false
		}
		return r.endDefinitions()
	case definitionsEOF:
		return r.endDefinitions()
	}
	if m.kind() != eofPacket || !r.lacksEOF && len(m.payload) > maxEOFPayload || len(m.payload) >= maxPayload {
		return false
	}
	return r.resultSetEnds(statusFlags(m, r.lacksEOF))
}

func (r *reply) readHead(m message) bool {
	switch {
	case r.command == comStmtPrepare && len(m.payload) >= 9:
		r.columns = uint64(binary.LittleEndian.Uint16(m.payload[7:]))
		r.moreDefinitions = uint64(binary.LittleEndian.Uint16(m.payload[5:]))
		return r.readDefinition()
	case r.command != comQuery && r.command != comStmtExecute:
		return true
	case m.kind() == okPacket:
		return r.resultSetEnds(statusFlags(m, true))
	case m.kind() == infilePacket:
		return false
	}
	r.columns, _ = lengthEncoded(m.payload)
	return r.readDefinition()
}

func (r *reply) readDefinition() bool {
	if r.columns == 0 {
		return r.endDefinitions()
	}
	r.phase = definitions
	return false
}

func (r *reply) endDefinitions() bool {
	if r.command != comStmtPrepare {
		r.phase = rows
		return false
	}
	r.columns, r.moreDefinitions = r.moreDefinitions, 0
	if r.columns == 0 {
		return true
	}
	r.phase = definitions
	return false
}

const moreResults = 0x0008

func (r *reply) resultSetEnds(status uint16) bool {
	r.phase = head
	return status&moreResults == 0
}

// If ok is true, the packet has the layout of an OK packet, whatever its first byte is. Otherwise it has the layout of
// an EOF packet.
func statusFlags(m message, ok bool) uint16 {
	p := m.payload
	at := 3
	if ok && len(p) > 0 {
		_, affected := lengthEncoded(p[1:])
		_, inserted := lengthEncoded(p[1+affected:])
		at = 1 + affected + inserted
	}
	if at+2 > len(p) {
		return 0
	}
	return binary.LittleEndian.Uint16(p[at:])
}

func lengthEncoded(p []byte) (value uint64, size int) {
	if len(p) == 0 {
		return 0, 0
	}
	switch size = map[byte]int{0xfc: 3, 0xfd: 4, 0xfe: 9}[p[0]]; {
	case size == 0:
		return uint64(p[0]), 1
	case len(p) < size:
		return 0, len(p)
	}
	for i := size - 1; i > 0; i-- {
		value = value<<8 | uint64(p[i])
	}
	return value, size
}
