package delay

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"
)

// note is a line the service writes to the benchmark. Each is one write to a pipe: a kill loses none that was
// written, and leaves no half of one.
type note struct {
	what  string // recorded, fired, or one of the words below
	n     int
	at    int64 // µs since 1970, by the one clock all processes here share
	entry uint64
}

const (
	isRecorded  = "recorded" // at: just before the mechanism was given it, so that nothing early can look on time
	isFired     = "fired"
	allRecorded = "all"
)

// notes is the service's end of the pipe. Its methods may be called concurrently.
type notes struct{ pipe *os.File }

// notesDescriptor is the pipe's in the service: the first of exec.Cmd's ExtraFiles.
const notesDescriptor = 3

func (w notes) write(n note) error {
	_, err := fmt.Fprintf(w.pipe, "%s %d %d %d\n", n.what, n.n, n.at, n.entry)
	return err
}

// readNotes hands every note on until the pipe ends, which it does when the service does.
func readNotes(pipe io.Reader, take func(note)) error {
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		var n note
		if _, err := fmt.Sscanf(lines.Text(), "%s %d %d %d", &n.what, &n.n, &n.at, &n.entry); err != nil {
			return fmt.Errorf("note %q: %w", lines.Text(), err)
		}
		take(n)
	}
	return lines.Err()
}

func now() int64 { return time.Now().UnixMicro() }
