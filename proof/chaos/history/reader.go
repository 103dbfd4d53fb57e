package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const suffix = ".history.jsonl"

func Files(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "*"+suffix))
}

type Line struct {
	File   string
	Number int // number of the line, counted from 1
}

func (l Line) String() string { return fmt.Sprintf("%s:%d", filepath.Base(l.File), l.Number) }

// ReadFile calls the function each for every record of the file, in order. ReadFile stops when the function each
// returns an error. An incomplete last line is ignored, because a killed process may leave such a line.
func ReadFile(name string, each func(Line, Record) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	for at := (Line{File: name, Number: 1}); ; at.Number++ {
		line, err := readLine(in)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%v: %w", at, err)
		}
		record, err := Decode(line)
		if err == nil {
			err = each(at, record)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", at, err)
		}
	}
}

// The slice that readLine returns is valid until the next read. If the file ends without a line end, readLine returns
// io.EOF.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	long := bytes.Clone(line)
	rest, err := in.ReadBytes('\n')
	return append(long, rest...), err
}

func Decode(line []byte) (Record, error) {
	kind, ok := kindOf(line)
	if !ok {
		return nil, fmt.Errorf("history: not a record: %.100q", line)
	}
	make, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("history: unknown kind %q", kind)
	}
	record := make()
	if err := json.Unmarshal(line, record); err != nil {
		return nil, fmt.Errorf("history: %s: %w", kind, err)
	}
	return record, nil
}

func kindOf(line []byte) (string, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"kind":"`))
	if !ok {
		return "", false
	}
	kind, _, ok := bytes.Cut(rest, []byte(`"`))
	return string(kind), ok
}
