package bench

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// leaseBytes holds how many bytes of log the claim and the settle of one entry write.
type leaseBytes struct {
	Form    string  `json:"form"`
	Content int     `json:"content"`
	Redo    float64 `json:"redo"`
	Log     float64 `json:"binary_log"`
}

func (a *arena) bytesOf(n, content int, form leaseForm) leaseBytes {
	a.emptyLeases()
	a.fillLeases(form, n, content)
	a.enqueue(0)
	a.writeBack()
	redo, log := a.redoBytes(), a.logBytes()
	a.must(a.drainLeases(form, n, 1))
	each := func(bytes float64) float64 { return bytes / float64(n) }
	return leaseBytes{form.name, content, each(a.redoBytes() - redo), each(a.logBytes() - log)}
}

func (a *arena) redoBytes() (total float64) {
	a.Helper()
	var name string
	a.must(a.admin.QueryRowContext(a.Context(), "SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current','Innodb_redo_log_current_lsn')").Scan(&name, &total))
	return total
}

func (a *arena) logBytes() (total float64) {
	a.Helper()
	rows, err := a.admin.QueryContext(a.Context(), "SHOW BINARY LOGS")
	a.must(err)
	defer rows.Close()
	columns, err := rows.Columns()
	a.must(err)
	values := make([]any, len(columns))
	var name, other string
	var size float64
	for i := range values {
		values[i] = &other
	}
	values[0], values[1] = &name, &size
	for rows.Next() {
		a.must(rows.Scan(values...))
		total += size
	}
	a.must(rows.Err())
	return total
}

// leaseCalm holds how long a business transaction takes, in ms, while entries are claimed and settled in one form.
type leaseCalm struct {
	Form     string `json:"form"`
	P50, P99 spread
}

// With this pause, the claims and settles of 1,000 entries a second make as many commits as the library does.
const calmPause = 3 * time.Millisecond

func (a *arena) calmLeases(seconds, rounds int) (found []leaseCalm) {
	forms := []leaseForm{{name: "idle"}, formToday, formVarchar, formFused, formRow, formFusedRow}
	p50, p99 := make([][]float64, len(forms)), make([][]float64, len(forms))
	for range rounds {
		for i, form := range forms {
			took := a.calmLease(form, seconds, i > 0)
			p50[i], p99[i] = append(p50[i], took.P50.Seconds()*1000), append(p99[i], took.P99.Seconds()*1000)
			a.Logf("%s: p50 %.2f ms, p99 %.2f ms", form.name, p50[i][len(p50[i])-1], p99[i][len(p99[i])-1])
		}
	}
	for i, form := range forms {
		found = append(found, leaseCalm{form.name, spreadOf(p50[i]), spreadOf(p99[i])})
	}
	return found
}

func (a *arena) calmLease(form leaseForm, seconds int, busy bool) lags {
	a.emptyLeases()
	a.fillLeases(form, 1000*seconds+1000, payload)
	a.enqueue(0)
	a.writeBack()
	db, own := a.openPlain(producers), a.openPlain(1)
	defer db.Close()
	defer own.Close()
	ctx, stop := context.WithCancel(a.Context())
	defer stop()
	worked := make(chan error, 1)
	go func() {
		if !busy {
			worked <- nil
			return
		}
		worked <- a.workCalmly(ctx, own, form)
	}()
	took := lagsOf(form.name, 0, slices.Collect(maps.Values(atRate(500, 500*seconds, func() (string, time.Duration) {
		began := time.Now()
		id, err := floorRecord(a.Context(), db, 1, floorTuple, time.Hour)
		a.must(err)
		return strconv.FormatInt(id, 10), time.Since(began)
	}))))
	stop()
	a.must(<-worked)
	return took
}

// leaseClaim is how long a claim and its settle take, in ms.
type leaseClaim struct {
	Work    string `json:"work"`
	Form    string `json:"form"`
	Entries int    `json:"entries"`
	Took    spread `json:"took"`
}

func (a *arena) workCalmly(ctx context.Context, own *sql.DB, form leaseForm) error {
	l, q, closeBoth, err := a.leaseWorker(a.Context(), own, form)
	if err != nil {
		return err
	}
	defer closeBoth()
	claimed := 0
	for began := time.Now(); ctx.Err() == nil; {
		due := int(time.Since(began).Milliseconds()) + 1
		ids, err := q.claim(a.Context(), due-claimed)
		if err != nil {
			return err
		}
		claimed += len(ids)
		settled, err := l.step(a.Context(), ids)
		if err != nil {
			return err
		}
		if err := q.ack(a.Context(), settled); err != nil {
			return err
		}
		time.Sleep(time.Until(began.Add(time.Duration(due)*time.Millisecond + calmPause - time.Millisecond)))
	}
	return nil
}

func (a *arena) claimSizes(rounds int) (found []leaseClaim) {
	for _, entries := range []int{1, 4, 16, 64, 500} {
		for _, form := range []leaseForm{formToday, formVarchar, formRow, formRewrite} {
			found = append(found, a.timedClaims("alone", form, entries, rounds, func() {}))
		}
	}
	return found
}

// A claim must decode each lease row whose range of ids includes one of its entries. Wide ranges arise when one lease
// row lists both old and new entries.
func (a *arena) claimsInACrowd(rounds int) (found []leaseClaim) {
	for _, crowd := range []struct {
		work       string
		rows       int
		overlapped bool
	}{{"beside 100 lease rows, other ranges", 100, false}, {"beside 10 lease rows, overlapping", 10, true}, {"beside 100 lease rows, overlapping", 100, true}} {
		for _, entries := range []int{4, 500} {
			found = append(found, a.timedClaims(crowd.work, formToday, entries, rounds, func() {}))
			found = append(found, a.timedClaims(crowd.work, formRewrite, entries, rounds, func() { a.leaseCrowd(crowd.rows, crowd.overlapped) }))
		}
	}
	return found
}

// leaseCrowd inserts lease rows of entries that do not exist. The ids of these entries are larger than any real id. If
// the parameter overlapped is true, the first id of each row is 1 instead. Then the id range of each row includes the
// entries that the benchmark claims, so each claim must read all the rows.
func (a *arena) leaseCrowd(rows int, overlapped bool) {
	a.Helper()
	for i := range rows {
		held := make([]floorFound, floorBatch)
		for n := range held {
			held[n].id = uint64(1)<<40 + uint64(i+n*rows)
		}
		if overlapped {
			held[0] = floorFound{id: 1, version: 7} // an entry of an older version
		}
		token := uuid.New()
		a.exec(fmt.Sprintf(leaseInsert, token[:], token[:], held[0].id, held[len(held)-1].id, packEntries(held)))
	}
}

func (a *arena) timedClaims(work string, form leaseForm, entries, rounds int, prepare func()) leaseClaim {
	a.Helper()
	var took []float64
	claims := min(400, max(20, 4000/entries))
	for range rounds {
		a.emptyLeases()
		a.fillLeases(form, entries*claims, payload)
		prepare()
		took = append(took, a.timeOf(form, a.ids(), entries)...)
	}
	return leaseClaim{work, form.name, entries, spreadOf(took)}
}

func (a *arena) ids() (ids []string) {
	a.Helper()
	rows, err := a.admin.QueryContext(a.Context(), "SELECT id FROM common_process_log ORDER BY id")
	a.must(err)
	defer rows.Close()
	var id string
	for rows.Next() {
		a.must(rows.Scan(&id))
		ids = append(ids, id)
	}
	a.must(rows.Err())
	return ids
}

// timeOf claims and settles entries in chunks. The parameter ids lists their ids, and the parameter entries is the
// number of entries of a chunk. timeOf returns a list of one number, the mean time of a chunk in ms.
func (a *arena) timeOf(form leaseForm, ids []string, entries int) []float64 {
	a.Helper()
	own := a.openPlain(1)
	defer own.Close()
	l, err := newLeaseLoop(a.Context(), own, form)
	a.must(err)
	defer l.conn.Close()
	began, n := time.Now(), 0
	for chunk := range slices.Chunk(ids, entries) {
		_, err := l.step(a.Context(), chunk)
		a.must(err)
		n++
	}
	_, err = l.flush(a.Context())
	a.must(err)
	return []float64{time.Since(began).Seconds() * 1000 / float64(n)}
}

// Because of the snapshot, the server must keep rows that are deleted meanwhile.
func (a *arena) claimsBesideASnapshot(n int) (found []leaseClaim) {
	for _, form := range []leaseForm{formToday, formRow, formRewrite} {
		a.emptyLeases()
		a.fillLeases(form, n, payload)
		a.writeBack()
		backup := a.openPlain(1)
		tx, err := backup.BeginTx(a.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		a.must(err)
		var rows int
		a.must(tx.QueryRowContext(a.Context(), "SELECT COUNT(*) FROM common_process_log").Scan(&rows))
		ids := a.ids()
		for part := range slices.Chunk(ids, len(ids)/4) {
			took := a.timeOf(form, part, 4)
			found = append(found, leaseClaim{fmt.Sprintf("while a snapshot is open, quarter %d", len(found)%4+1), form.name, 4, spreadOf(took)})
		}
		a.must(tx.Rollback())
		a.must(backup.Close())
	}
	return found
}
