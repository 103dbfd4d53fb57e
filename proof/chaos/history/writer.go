package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Now is the wall clock in µs since 1970, for the At of a record.
func Now() int64 { return time.Now().UnixMicro() }

// Hash is the content's hash that Insert and Attempt carry: FNV-1a, 64 bits.
func Hash(content []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range content {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// Writer appends to the file of one process. It may be used by several goroutines.
type Writer struct {
	file *os.File
}

// Create makes the file of this process in dir, which exists, and writes its Process line. An app that is
// started again gets a new file.
func Create(dir, app string) (*Writer, error) {
	p := &Process{App: app, PID: os.Getpid(), At: Now()}
	name := filepath.Join(dir, fmt.Sprintf("%s-%d-%d%s", app, p.At, p.PID, suffix))
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: file}
	return w, w.Write(p)
}

// Write appends records, one line each, with a single write(2). When it returns nil they outlive the process, but
// not the machine. After an error the process must end: its history has a hole.
func (w *Writer) Write(records ...Record) error {
	lines, err := Encode(records...)
	if err != nil {
		return err
	}
	// os.File writes on after a short write; on a local file there is none but for a full disk.
	_, err = w.file.Write(lines)
	return err
}

// Encode makes the lines of records.
func Encode(records ...Record) ([]byte, error) {
	var lines []byte
	for _, r := range records {
		fields, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("history: %s: %w", r.Kind(), err)
		}
		lines = append(lines, `{"kind":"`...)
		lines = append(lines, r.Kind()...)
		lines = append(lines, `",`...)
		lines = append(lines, fields[1:]...)
		lines = append(lines, '\n')
	}
	return lines, nil
}

// Close closes the file; what is written stays.
func (w *Writer) Close() error { return w.file.Close() }
