package verdict

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// Each entry has one failed attempt and one renewal, so it makes about 18 lines of history.
func BenchmarkRun(b *testing.B) {
	entries, err := strconv.Atoi(os.Getenv("CHECK_ENTRIES"))
	if err != nil {
		entries = 5000
	}
	dir := b.TempDir()
	lines := writeLargeRun(b, dir, entries)
	b.ResetTimer()
	for b.Loop() {
		l, err := Load(dir)
		require.NoError(b, err)
		v := Judge(l)
		require.False(b, v.Violated())
		l.Timeline()
	}
	b.ReportMetric(float64(lines), "lines")
}

func writeLargeRun(b *testing.B, dir string, entries int) (lines int) {
	s := newStory(b)
	out := make(map[string]*bufio.Writer)
	for _, file := range s.order {
		f, err := os.Create(filepath.Join(dir, file+".history.jsonl"))
		require.NoError(b, err)
		defer f.Close()
		out[file] = bufio.NewWriterSize(f, 1<<20)
		defer out[file].Flush()
	}
	s.records["driver"] = append(s.records["driver"], &s.run)
	spill := func() {
		for file, records := range s.records {
			text, err := history.Encode(records...)
			require.NoError(b, err)
			_, err = out[file].Write(text)
			require.NoError(b, err)
			lines += len(records)
			s.records[file] = s.records[file][:0]
		}
	}
	for i := range entries {
		e := s.committed("ship").claim()
		e.run("app1").end(history.OutcomeFail).fail()
		e.claim()
		r := e.run("app2")
		e.renew()
		r.end(history.OutcomeOK).succeed()
		if i%100 == 0 {
			s.fault("kill", "redis", 1, history.TouchesQueue)
			s.clock()
			spill()
		}
	}
	s.rest()
	spill()
	return lines
}
