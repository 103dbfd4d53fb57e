package delay

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"
)

// Each note is a single write to a pipe, so a kill loses no written note and leaves no partial note.
type note struct {
	what  string // isRecorded, isFired or allRecorded
	n     int
	at    int64 // µs since 1970; all processes here share one clock
	entry uint64
}

const (
	// The time of this note is the time just before the mechanism receives the deadline. The due time is this time plus
	// the delay. With a later time, a punctual firing could look early.
	isRecorded  = "recorded"
	isFired     = "fired"
	allRecorded = "all"
)

// notes is the service's end of the pipe. Its methods may be called concurrently.
type notes struct{ pipe *os.File }

// notesDescriptor is the file descriptor of the pipe in the service: the first of exec.Cmd's ExtraFiles.
const notesDescriptor = 3

func (w notes) write(n note) error {
	_, err := fmt.Fprintf(w.pipe, "%s %d %d %d\n", n.what, n.n, n.at, n.entry)
	return err
}

// The pipe ends when the service ends.
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
