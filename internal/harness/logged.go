package harness

import (
	"bytes"
	"log/slog"

	"github.com/compensator-go/compensator"
)

type Log chan string

func (l Log) Write(line []byte) (int, error) {
	select {
	case l <- string(bytes.TrimSpace(line)):
	default:
	}
	return len(line), nil
}

func CaptureLog(cfg *compensator.Config) Log {
	lines := make(Log, 1000)
	cfg.Logger = slog.New(slog.NewTextHandler(lines, nil))
	return lines
}

func (l Log) Contains(w *World, parts ...string) string {
	w.T.Helper()
	for {
		line := Receive(w.T, l)
		hasAll := true
		for _, part := range parts {
			hasAll = hasAll && bytes.Contains([]byte(line), []byte(part))
		}
		if hasAll {
			return line
		}
	}
}
