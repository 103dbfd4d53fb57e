package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

type point struct {
	at    float64 // in seconds since the soak began
	value float64
}

type soak struct {
	began  time.Time
	series map[string][]point
	faults []interval // times of faults, in seconds since the soak began
	late   []point    // lateness of each attempt, in ms
	ended  float64    // end of the load, in seconds since the soak began

	purger *compensator.Compensator
	counts claimCounts
}

type interval struct{ from, to float64 }

const (
	sqlConnections = "database: connections"
	sqlPrepared    = "database: prepared statements"
	sqlHistory     = "database: history list"
	redisMemory    = "redis: used memory, MB"
	queueMembers   = "queue: members"
	queueExcess    = "queue: members neither due within the horizon nor settled within the last lease"
	queueExpected  = "queue: entries due within the horizon"
	claimsWanted   = "claims: ids requested"
	claimsTaken    = "claims: ids taken"
	purged         = "purged"
)

func (s *soak) add(what string, value float64) {
	s.series[what] = append(s.series[what], point{time.Since(s.began).Seconds(), value})
}

func (s *soak) sample(st *stage) {
	if s.series == nil {
		s.series, s.began = make(map[string][]point), time.Now()
		for _, a := range st.apps {
			a.proxies.sql.Arm(faultproxy.Rule{Match: s.counts.countIDs, Fault: faultproxy.Count})
		}
	}
	for _, a := range st.apps {
		s.sampleProcess(a)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.sampleServer(ctx, st)
	s.sampleQueue(ctx, st)
	wanted, taken := s.counts.read()
	s.add(claimsWanted, wanted)
	s.add(claimsTaken, taken)
	s.purge(st)
}

func (s *soak) sampleProcess(a *app) {
	pid := a.pid()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	files, filesErr := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if pid == 0 || err != nil || filesErr != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kb, _ := strconv.ParseFloat(fields[1], 64)
			s.add(a.name+": RSS, MB", kb/1024)
		}
	}
	s.add(a.name+": open files", float64(len(files)))
}

func (s *soak) sampleServer(ctx context.Context, st *stage) {
	rows, err := st.db.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected','Prepared_stmt_count','Innodb_history_list_length')")
	if err != nil {
		return
	}
	defer rows.Close()
	names := map[string]string{"threads_connected": sqlConnections, "prepared_stmt_count": sqlPrepared, "innodb_history_list_length": sqlHistory}
	for rows.Next() {
		var name string
		var value float64
		if rows.Scan(&name, &value) == nil {
			s.add(names[strings.ToLower(name)], value)
		}
	}
	// MariaDB reports the length of InnoDB's history list as a status variable, and MySQL in the table innodb_metrics.
	var length float64
	if st.sql.Flavor == "mysql" && st.db.QueryRowContext(ctx, "SELECT count FROM information_schema.innodb_metrics WHERE name='trx_rseg_history_len'").Scan(&length) == nil {
		s.add(sqlHistory, length)
	}
}

// sampleQueue compares the number of members in the queue with the number that the table implies. It cannot read the
// queue and the table at the same time. So it reads the table before and after the queue, and takes the larger number.
func (s *soak) sampleQueue(ctx context.Context, st *stage) {
	before, _, err := s.expected(ctx, st)
	if err != nil {
		return
	}
	members, err := st.members(ctx)
	if err != nil {
		return
	}
	after, settled, err := s.expected(ctx, st)
	if err != nil {
		return
	}
	s.add(queueMembers, members)
	s.add(queueExpected, max(before, after))
	s.add(queueExcess, members-max(before, after)-settled)
	client := st.mainRedis()
	defer client.Close()
	if memory, err := usedMemory(ctx, client); err == nil {
		s.add(redisMemory, memory/(1<<20))
	}
}

// The method expected returns two numbers of entries. The result due is the number of open entries that are due soon
// enough to be in the queue. The result settled is the number of entries that were settled less than a lease ago. The
// queue may still hold a settled entry, because its acknowledgement was late or lost.
func (s *soak) expected(ctx context.Context, st *stage) (due, settled float64, err error) {
	within := (horizon + 2*reconcileInterval + lease).Milliseconds()
	err = st.db.QueryRowContext(ctx, fmt.Sprintf(
		"SELECT (SELECT COUNT(*) FROM common_process_log WHERE state IN (0,-1,-3) AND next_at <= %[1]s DIV 1000 + %[2]d), "+
			"(SELECT COUNT(*) FROM common_process_log WHERE state IN (1,2,3,4,-2) AND next_at >= %[1]s DIV 1000 - %[3]d)", dbNow, within, lease.Milliseconds()),
	).Scan(&due, &settled)
	return due, settled, err
}

func (st *stage) members(ctx context.Context) (n float64, err error) {
	keys, err := st.dueKeys(ctx)
	if err != nil {
		return 0, err
	}
	client := st.mainRedis()
	defer client.Close()
	for key := range keys {
		members, err := client.ZCount(ctx, key, "-inf", lastDue).Result()
		if err != nil {
			return 0, err
		}
		n += float64(members)
	}
	return n, nil
}

func usedMemory(ctx context.Context, client *redis.Client) (float64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	_, value, _ := strings.Cut(info, "\nused_memory:")
	value, _, _ = strings.Cut(value, "\r\n")
	return strconv.ParseFloat(value, 64)
}

func (s *soak) purge(st *stage) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	if s.purger == nil {
		if s.purger, err = compensator.New(ctx, compensator.Config{DB: st.db, Operations: &compensator.Operations{Attempts: true}}); err != nil {
			return
		}
	}
	if n, err := admin.Of(s.purger).Purge(ctx, purgeAge); err == nil {
		s.add(purged, float64(n))
	}
}

type claimCounts struct{ wanted, taken atomic.Int64 }

func (c *claimCounts) countIDs(r faultproxy.Request) bool {
	switch {
	case !strings.Contains(r.Text, "common_process_log"):
	case strings.Contains(r.Text, " id, CAST(idempotent_id AS BINARY), CAST(business_type AS BINARY)") && strings.HasSuffix(r.Text, "ORDER BY id FOR UPDATE SKIP LOCKED"):
		c.wanted.Add(idsIn(r.Text))
	case strings.Contains(r.Text, "UPDATE ") && strings.Contains(r.Text, " SET version=version+1") && strings.Contains(r.Text, ", token="):
		c.taken.Add(idsIn(r.Text))
	}
	return false
}

func idsIn(statement string) int64 {
	_, list, found := strings.Cut(statement, "id IN (")
	if !found {
		return 0
	}
	list, _, _ = strings.Cut(list, ")")
	return int64(strings.Count(list, ",") + 1)
}

func (c *claimCounts) read() (wanted, taken float64) {
	return float64(c.wanted.Load()), float64(c.taken.Load())
}

// readDir drops readings that were taken after the load ended.
func (s *soak) readDir(t *testing.T, dir string) {
	t.Helper()
	usage, err := filepath.Glob(filepath.Join(dir, "*"+usageSuffix))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range usage {
		s.readUsage(t, name)
	}
	files, err := history.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	began := make(map[uint64]float64)
	s.ended = math.Inf(1)
	for _, name := range files {
		err := history.ReadFile(name, func(_ history.Line, r history.Record) error {
			switch r := r.(type) {
			case *history.Fault:
				began[r.N] = s.since(r.At)
			case *history.FaultEnd:
				s.faults = append(s.faults, interval{began[r.N], s.since(r.At)})
			case *history.Mark:
				if r.What == history.MarkHealed {
					s.ended = s.since(r.At)
				}
			case *history.Attempt:
				s.late = append(s.late, point{s.since(r.At), float64(r.At)/1000 - float64(r.NextAt)})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	over := func(p point) bool { return p.at > s.ended-2 } // Remove the last two seconds: when the faults end, the test cuts every connection.
	s.late = slices.DeleteFunc(s.late, over)
	for name := range s.series {
		s.series[name] = slices.DeleteFunc(s.series[name], over)
	}
}

func (s *soak) since(unixMicro int64) float64 {
	return time.UnixMicro(unixMicro).Sub(s.began).Seconds()
}

func (s *soak) readUsage(t *testing.T, name string) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	app := strings.TrimSuffix(filepath.Base(name), usageSuffix)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var u ownUsage
		if json.Unmarshal(lines.Bytes(), &u) != nil {
			continue
		}
		for what, value := range map[string]float64{app + ": goroutines": float64(u.Goroutines), app + ": live heap, MB": float64(u.HeapLive) / (1 << 20)} {
			s.series[what] = append(s.series[what], point{s.since(u.At), value})
		}
	}
}

// settlesAfter is the time in seconds from the end of a fault to the end of its effects.
const settlesAfter = 10.0

func (s *soak) calm(at float64) bool {
	return !slices.ContainsFunc(s.faults, func(f interval) bool { return f.from <= at && at <= f.to+settlesAfter })
}
