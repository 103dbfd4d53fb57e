package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/metrics"
	"time"
)

// A soak is a long run under load.
const soakEnv = "CHAOS_SOAK"

const soakEvery = 2 * time.Second

func init() {
	dir, text := os.Getenv(soakEnv), os.Getenv(appEnv)
	if dir == "" || text == "" {
		return
	}
	var cfg appConfig
	must(json.Unmarshal([]byte(text), &cfg))
	file, err := os.OpenFile(filepath.Join(dir, cfg.Name+usageSuffix), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(err)
	go writeUsage(file)
}

const usageSuffix = ".usage"

type ownUsage struct {
	At         int64 // Unix time in µs
	PID        int
	Goroutines uint64
	HeapLive   uint64 // bytes that were alive after the last garbage collection
}

func writeUsage(file *os.File) {
	readings := []metrics.Sample{{Name: "/sched/goroutines:goroutines"}, {Name: "/gc/heap/live:bytes"}}
	out := json.NewEncoder(file)
	for range time.Tick(soakEvery) {
		metrics.Read(readings)
		_ = out.Encode(ownUsage{time.Now().UnixMicro(), os.Getpid(), readings[0].Value.Uint64(), readings[1].Value.Uint64()})
	}
}
