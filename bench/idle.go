package bench

import (
	"fmt"
	"runtime"
	"syscall"
	"time"
)

type idle struct {
	Entries    int     `json:"entries"` // number of entries that are due beyond the horizon; the log holds as many settled entries
	Types      int     `json:"types"`
	Statements float64 `json:"statements"`
	Rows       float64 `json:"rows_read"`
	Redis      float64 `json:"redis_calls"`
	Database   float64 `json:"database_cpu_percent"`
	Process    float64 `json:"process_cpu_percent"`
	Heap       uint64  `json:"heap_bytes"` // bytes of heap after a garbage collection
}

const idleHead = "| at rest: waiting + settled | types | statements /s | rows read /s | Redis calls /s | database CPU % | process CPU % | heap MB |\n" +
	"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"

func (i idle) String() string {
	return fmt.Sprintf("| %d + %d | %d | %.2f | %.0f | %.2f | %.2f | %.2f | %.1f |",
		i.Entries, i.Entries, i.Types, i.Statements, i.Rows, i.Redis, i.Database, i.Process, float64(i.Heap)/1e6)
}

// measureIdle measures a process at rest. It records no entries. The caller has filled the table with waiting entries
// and passes their number as the parameter entries, which measureIdle copies to the result.
func (a *arena) measureIdle(entries, types int, rest time.Duration) idle {
	a.Helper()
	l := a.newLibrary(100, nothing)
	defer l.close()
	a.must(l.addTypes(types-1, nothing))
	l.run()
	time.Sleep(3 * time.Second) // Wait until the process has done the work of its start.
	before, spent := a.serverWork(), processCPU()
	time.Sleep(rest)
	used := processCPU() - spent
	after := a.serverWork()
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	seconds := rest.Seconds()
	return idle{
		Entries: entries, Types: types,
		Statements: (after.statements - before.statements - 2) / seconds, // Subtract the two statements of this measurement.
		Rows:       (after.rows - before.rows) / seconds,
		Redis:      (after.redis - before.redis) / seconds,
		Database:   100 * (after.cpu - before.cpu) / seconds,
		Process:    100 * used / seconds,
		Heap:       memory.HeapAlloc,
	}
}

// processCPU returns the CPU time of this process in seconds.
func processCPU() float64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
