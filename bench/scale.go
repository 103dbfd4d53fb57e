package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

type growth struct {
	Entries   int           `json:"entries"` // waiting entries; the log holds as many settled entries
	Record    row           `json:"record"`
	Drain     row           `json:"drain"`
	Purge     float64       `json:"purge_per_second"`
	Start     time.Duration `json:"start_ns"` // time from New to the handler of a due entry
	List      time.Duration `json:"list_ns"`  // time to list the newest 50 waiting entries of a type
	Deep      time.Duration `json:"deep_ns"`  // time for the tenth page, with 1,000 entries a page
	Count     time.Duration `json:"count_ns"`
	TableSize int64         `json:"table_bytes"`
}

const growthHead = "| waiting + settled | record /s | floor | ratio | drain /s | floor | ratio | purge /s | start ms | list ms | page 10 ms | count ms | table + indexes MB |\n" +
	"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"

func (g growth) String() string {
	return fmt.Sprintf("| %d + %d | %.0f | %.0f | %.2f | %.0f | %.0f | %.2f | %.0f | %s | %s | %s | %s | %.0f |",
		g.Entries, g.Entries, g.Record.Ours.Median, g.Record.Theirs.Median, g.Record.Ratio.Median,
		g.Drain.Ours.Median, g.Drain.Theirs.Median, g.Drain.Ratio.Median, g.Purge, ms(g.Start), ms(g.List), ms(g.Deep), ms(g.Count),
		float64(g.TableSize)/1e6)
}

func (a *arena) grow(entries int) growth {
	a.Helper()
	a.fill(entries)
	g := growth{Entries: entries}
	a.exec("ANALYZE TABLE common_process_log")
	a.writeBack()
	filled := a.filled()
	g.Record = a.onTop(filled, a.records(10_000, 1))
	g.Drain = a.onTop(filled, a.drain(60_000, 4))
	a.forget(filled)
	g.Purge = a.purge(20_000)
	g.Start = a.start()
	g.List, g.Deep, g.Count = a.dashboard()
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT data_length+index_length FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name='common_process_log'").Scan(&g.TableSize))
	return g
}

func (a *arena) onTop(filled uint64, c contest) row {
	c.reset = func() { a.forget(filled) }
	return c.runPairs(a, 5)
}

// Without writeBack, later measurements would include writing the filled rows. With the default I/O capacity, this wait
// would take most of the benchmark's time.
func (a *arena) writeBack() {
	a.Helper()
	var usual, highest int
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT @@innodb_io_capacity, @@innodb_io_capacity_max").Scan(&usual, &highest))
	a.exec("SET GLOBAL innodb_io_capacity_max=?", 100*highest)
	a.exec("SET GLOBAL innodb_io_capacity=?", 100*highest)
	defer func() {
		a.exec("SET GLOBAL innodb_io_capacity=?", usual)
		a.exec("SET GLOBAL innodb_io_capacity_max=?", highest)
	}()
	a.exec("SET GLOBAL innodb_max_dirty_pages_pct=0")
	for a.status("Innodb_buffer_pool_pages_dirty") > 100 {
		time.Sleep(100 * time.Millisecond)
	}
	a.exec("SET GLOBAL innodb_max_dirty_pages_pct=90")
}

// While InnoDB purges deleted rows, a measurement would read twice as many pages per entry.
func (a *arena) awaitPurge() {
	a.Helper()
	for last, still := 0.0, 0; still < 3; still++ {
		time.Sleep(100 * time.Millisecond)
		reads := a.status("Innodb_buffer_pool_read_requests")
		if reads > last+50 {
			still = 0
		}
		last = reads
	}
}

// filled returns the largest id of the rows that the method fill has inserted. Rows with larger ids belong to
// measurements.
func (a *arena) filled() (id uint64) {
	a.Helper()
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT COALESCE(MAX(id),0) FROM common_process_log WHERE user_id='fill'").Scan(&id))
	return id
}

// forget deletes the rows of a measurement, so that the next measurement does not pay for them. The ids of these rows
// are larger than the parameter filled.
func (a *arena) forget(filled uint64) {
	a.Helper()
	a.exec("DELETE FROM common_process_log WHERE id>?", filled)
	a.exec("TRUNCATE TABLE orders")
	client := a.client()
	defer client.Close()
	a.must(client.FlushAll(a.Context()).Err())
	a.awaitPurge()
}

// The waiting rows are due between one hour and 30 days from now. As in production, ids grow with the time of
// recording.
func (a *arena) fill(entries int) {
	a.Helper()
	var have int
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT COUNT(*) DIV 2 FROM common_process_log WHERE user_id='fill'").Scan(&have))
	const step = 100_000
	for have < entries {
		n := min(step, entries-have)
		for state, due := range map[int]string{0: "+3600000+MOD(seq*7919,30*86400000)", 1: "-MOD(seq*7919,3000000)"} {
			a.exec(fmt.Sprintf("INSERT INTO common_process_log (idempotent_id, business_type, user_id, content, state, version, next_at, created_at, updated_at) "+
				"SELECT CONCAT('0192', LPAD(HEX(seq),12,'0'), '-%d-7000-8000-000000000000'), '%s', 'fill', ?, %d, %d, %s%s, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM %s",
				state, benchType, state, 2*state, floorNow, due, numbers(have+1, have+n)), content)
		}
		have += n
	}
}

// purge returns the number of deleted rows a second.
func (a *arena) purge(n int) float64 {
	a.Helper()
	a.exec(fmt.Sprintf("INSERT INTO common_process_log (idempotent_id, business_type, content, state, version, next_at, created_at, updated_at) "+
		"SELECT CONCAT('old ', seq), '%s', ?, 1, 2, %s-3*86400000, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM %s", benchType, floorNow, numbers(1, n)), content)
	l := a.newLibrary(0, nil)
	defer l.close()
	began := time.Now()
	purged, err := admin.Of(l.Compensator).Purge(a.Context(), 24*time.Hour)
	a.must(err)
	if purged != n {
		a.Fatalf("purged %d of %d", purged, n)
	}
	return float64(n) / time.Since(began).Seconds()
}

func (a *arena) start() time.Duration {
	a.Helper()
	a.backlog(1)
	ran := make(chan struct{}, 1)
	began := time.Now()
	l := a.newLibrary(1, func(context.Context, *compensator.Entry) error {
		ran <- struct{}{}
		return nil
	})
	defer l.close()
	l.run()
	<-ran
	return time.Since(began)
}

func (a *arena) dashboard() (list, deep, count time.Duration) {
	a.Helper()
	l := a.newLibrary(0, nil)
	defer l.close()
	began := time.Now()
	_, err := admin.Of(l.Compensator).List(a.Context(), admin.Filter{States: []compensator.State{compensator.Pending}, BusinessType: benchType, Newest: true})
	a.must(err)
	list = time.Since(began)
	filter := admin.Filter{BusinessType: benchType, Limit: 1000}
	for range 10 {
		began = time.Now()
		page, err := admin.Of(l.Compensator).List(a.Context(), filter)
		a.must(err)
		deep = time.Since(began)
		filter.Cursor = cmp.Or(page.Next, filter.Cursor)
	}
	began = time.Now()
	_, err = admin.Of(l.Compensator).Count(a.Context(), admin.CountFilter{})
	a.must(err)
	return list, deep, time.Since(began)
}
