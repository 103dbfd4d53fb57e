package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// cost includes the statements of the business transaction.
type cost struct {
	Statements float64 `json:"statements"` // including BEGIN and COMMIT
	Redis      float64 `json:"redis_calls"`
	Allocs     float64 `json:"allocations"`
	Bytes      float64 `json:"allocated_bytes"`
}

const costHead = "| an entry costs | whose | statements | Redis calls | allocations | bytes |\n| --- | --- | ---: | ---: | ---: | ---: |"

func (c cost) String() string {
	return fmt.Sprintf("%.2f | %.3f | %.0f | %.0f", c.Statements, c.Redis, c.Allocs, c.Bytes)
}

func (a *arena) costOf(n int, run func()) cost {
	a.Helper()
	var before, after runtime.MemStats
	served := a.serverWork()
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	all := a.serverWork()
	each := func(total float64) float64 { return total / float64(n) }
	return cost{
		Statements: each(all.statements - served.statements), Redis: each(all.redis - served.redis),
		Allocs: each(float64(after.Mallocs - before.Mallocs)), Bytes: each(float64(after.TotalAlloc - before.TotalAlloc)),
	}
}

// serverWork holds counters that the servers have kept since they started.
type serverWork struct {
	statements, rows, redis float64
	cpu                     float64 // CPU seconds of the database
}

func (a *arena) serverWork() serverWork {
	a.Helper()
	var work serverWork
	rows, err := a.admin.QueryContext(a.Context(), "SHOW GLOBAL STATUS WHERE Variable_name='Questions' OR Variable_name LIKE 'Handler_read_%'")
	a.must(err)
	defer rows.Close()
	for rows.Next() {
		var name string
		var value float64
		a.must(rows.Scan(&name, &value))
		if name == "Questions" {
			work.statements = value
		} else {
			work.rows += value
		}
	}
	a.must(rows.Err())
	work.redis, work.cpu = a.redisCalls(), a.databaseCPU()
	return work
}

func (a *arena) status(name string) (value float64) {
	a.Helper()
	a.must(a.admin.QueryRowContext(a.Context(), "SHOW GLOBAL STATUS WHERE Variable_name=?", name).Scan(&name, &value))
	return value
}

// redisCalls leaves out calls that a script makes.
func (a *arena) redisCalls() (calls float64) {
	a.Helper()
	client := a.client()
	defer client.Close()
	info, err := client.InfoMap(a.Context(), "commandstats").Result()
	a.must(err)
	for _, name := range []string{"evalsha", "eval", "publish", "subscribe", "ping"} {
		stat, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_"+name], "calls="), ",")
		n, _ := strconv.ParseFloat(stat, 64) // A command that was never called is absent, and n is then 0.
		calls += n
	}
	return calls
}

// redisCPU returns the CPU time of Redis in seconds.
func (a *arena) redisCPU() (seconds float64) {
	a.Helper()
	client := a.client()
	defer client.Close()
	info, err := client.InfoMap(a.Context(), "cpu").Result()
	a.must(err)
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, err := strconv.ParseFloat(info["CPU"][name], 64)
		a.must(err)
		seconds += n
	}
	return seconds
}

// databaseCPU returns the CPU time of the database process in seconds. It returns 0 on systems without /proc.
func (a *arena) databaseCPU() float64 {
	a.Helper()
	var dir, file string
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT @@datadir, @@pid_file").Scan(&dir, &file))
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	pid, err := os.ReadFile(file)
	a.must(err)
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // /proc counts in USER_HZ, 100 a second.
}
