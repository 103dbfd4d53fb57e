package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func Now() int64 { return time.Now().UnixMicro() }

// Hash returns the hash of an entry's content that Insert and Attempt lines carry.
func Hash(content []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range content {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// Several goroutines may use a Writer.
type Writer struct {
	file *os.File
}

// Create makes a new file for a restarted app.
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

// After Write returns nil, the lines survive a crash of the process, but not of the machine. After an error the
// process must end, because its history has a gap.
func (w *Writer) Write(records ...Record) error {
	lines, err := Encode(records...)
	if err != nil {
		return err
	}
	_, err = w.file.Write(lines)
	return err
}

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

func (w *Writer) Close() error { return w.file.Close() }
