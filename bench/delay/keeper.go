package delay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// If the mechanism loses a recorded deadline, the keeper still knows the deadline.
type keeper struct {
	cfg serviceConfig
	log string // path of the service's log

	mu    sync.Mutex // guards facts and all
	facts []fact
	all   int64 // time at which all deadlines were recorded, in µs since 1970; 0 until then

	process *exec.Cmd     // nil if no service runs; only the benchmark's goroutine uses it
	ended   chan struct{} // closed when the last note of the process is read
}

// The times of a fact are in µs since 1970.
type fact struct {
	recorded int64 // time just before the mechanism received the deadline; 0 until the mechanism has recorded it
	due      int64
	fired    []firing
}

type firing struct {
	at    int64
	entry uint64
}

func newKeeper(cfg serviceConfig, dir string) *keeper {
	return &keeper{cfg: cfg, log: filepath.Join(dir, "service.log"), facts: make([]fact, cfg.Plan.Deadlines)}
}

func (k *keeper) start(record bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	k.cfg.Record = record
	text, err := json.Marshal(k.cfg)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(k.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serviceEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.SysProcAttr = log, log, []*os.File{write}, childAttributes()
	if err := cmd.Start(); err != nil {
		return errors.Join(err, read.Close())
	}
	k.process, k.ended = cmd, make(chan struct{})
	go k.listen(read, k.ended)
	return nil
}

func (k *keeper) listen(pipe *os.File, ended chan struct{}) {
	defer close(ended)
	defer pipe.Close()
	delays := k.cfg.Plan.delays()
	err := readNotes(pipe, func(n note) {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch n.what {
		case isRecorded:
			k.facts[n.n].recorded, k.facts[n.n].due = n.at, n.at+delays[n.n].Microseconds()
		case isFired:
			k.facts[n.n].fired = append(k.facts[n.n].fired, firing{n.at, n.entry})
		case allRecorded:
			k.all = n.at
		}
	})
	if err != nil {
		panic(err) // Notes are written and read by this package only, so an error is a bug.
	}
}

// kill returns when the process has ended and all its notes are read. It returns an error if the service had already
// ended.
func (k *keeper) kill() error {
	if k.process == nil {
		return nil
	}
	alive := !k.isOver()
	_ = k.process.Process.Kill()
	<-k.ended
	_ = k.process.Wait()
	k.process = nil
	if !alive {
		return fmt.Errorf("the service ended by itself:\n%s", k.lastWords())
	}
	return nil
}

func (k *keeper) isOver() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

func (k *keeper) lastWords() string {
	log, err := os.ReadFile(k.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(log), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// recorded returns the time of the last record in µs since 1970, or 0 before it.
func (k *keeper) recorded() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all
}

func (k *keeper) allFired() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.facts {
		if len(f.fired) == 0 {
			return false
		}
	}
	return true
}
