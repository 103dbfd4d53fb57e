package verdict

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// Load returns an error if the directory holds no history, or if records contradict each other.
func Load(dir string) (*Ledger, error) {
	files, err := history.Files(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no history", dir)
	}
	return load(files)
}

type chunk struct {
	file    int32
	lines   []int32
	records []history.Record
	err     error
}

const chunkLines = 2000

func load(files []string) (*Ledger, error) {
	chunks := make(chan chunk, 8)
	var readers sync.WaitGroup
	turn := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range files {
		readers.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			decode(int32(i), name, chunks)
		})
	}
	go func() {
		readers.Wait()
		close(chunks)
	}()
	b := newBuilder(files)
	var firstErr error
	// Receive until the channel is closed, even after an error. Otherwise the goroutines that read the files would
	// block forever when they send.
	for c := range chunks {
		if firstErr == nil {
			firstErr = c.err
		}
		for i, r := range c.records {
			if firstErr != nil {
				break
			}
			place := Place{file: c.file, line: c.lines[i]}
			if err := b.add(place, r); err != nil {
				firstErr = fmt.Errorf("%s: %w", b.l.placeName(place), err)
			}
		}
	}
	if firstErr != nil {
		return nil, firstErr
	}
	return &b.l, b.l.finish()
}

func decode(file int32, name string, into chan<- chunk) {
	c := chunk{file: file}
	c.err = history.ReadFile(name, func(at history.Line, r history.Record) error {
		c.lines, c.records = append(c.lines, int32(at.Number)), append(c.records, r)
		if len(c.records) == chunkLines {
			into <- c
			c = chunk{file: file}
		}
		return nil
	})
	into <- c
}
