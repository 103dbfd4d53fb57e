package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/ui"
)

const (
	adminTypes    = 40
	adminDeadOf   = 2 // number of types that have dead entries
	adminOpen     = 100_000
	adminCases    = 20_000
	adminFailures = 12      // groups of similar cases in each type that has cases
	adminRecords  = 10_000  // rows in each of the tables that record people's actions
	adminStep     = 200_000 // rows per filling statement
)

func adminType(n int) string { return fmt.Sprintf("type_%02d", n) }

func operations() *compensator.Operations {
	worth := compensator.CaseConfig{Amount: func(*compensator.Entry) (compensator.Amount, error) {
		return compensator.Amount{Minor: 12900, Currency: "CNY"}, nil
	}}
	types := make(map[string]compensator.CaseConfig, adminDeadOf)
	for n := range adminDeadOf {
		types[adminType(n)] = worth
	}
	return &compensator.Operations{Types: types}
}

func everyOperation() *compensator.Operations {
	every := operations()
	every.Attempts, every.Statistics, every.Instances = true, true, true
	return every
}

var adminServer = []string{"--innodb-buffer-pool-size=8G", "--innodb-io-capacity=10000"}

func (a *arena) fillAdminLog(ended int) {
	a.Helper()
	a.exec("SET GLOBAL innodb_flush_log_at_trx_commit=0")
	const columns = "(idempotent_id, business_type, business_id, content, state, process_count, version, next_at, ended_by, last_error, created_at, updated_at)"
	insert := func(kind string, first, last int, state, count, next, by, text string) {
		for from := first; from <= last; from += adminStep {
			a.exec(fmt.Sprintf("INSERT INTO common_process_log %s SELECT CONCAT('%s-', LPAD(seq,12,'0'), '-7000-8000-000000000000'), CONCAT('type_', LPAD(MOD(seq,%d),2,'0')), "+
				"CONCAT('o-', LPAD(seq DIV 3,10,'0')), ?, %s, %s, 2, %s, %s, %s, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM %s",
				columns, kind, adminTypes, state, count, next, by, text, numbers(from, min(last, from+adminStep-1))), content)
		}
	}
	now := fmt.Sprint(time.Now().UnixMilli())
	// 98 of 100 ended entries have succeeded, over the last 30 days.
	insert("e", 1, ended, "IF(MOD(seq,100)<98,1,2+MOD(seq DIV 100,3))", "0", fmt.Sprintf("%s-30*86400000+seq*%d", now, 30*86_400_000/(ended+1)), "'handler'", "''")
	// Of ten open entries eight are pending, one is retrying and one is being compensated.
	insert("o", 1, adminOpen, "CASE MOD(seq DIV 40,10) WHEN 0 THEN -1 WHEN 1 THEN -3 ELSE 0 END", "1",
		fmt.Sprintf("%s+IF(MOD(seq,%d)=1,-600000,3600000)+MOD(seq*7919,5*86400000)*IF(MOD(seq,%d)=1,0,1)", now, adminTypes, adminTypes), "''", "''")
	dead := fmt.Sprintf("CONCAT('POST https://psp.example/v2/refund: status ', 500+MOD(seq DIV %d,%d), ': upstream busy (order o-', seq, ')')", adminTypes, adminFailures)
	for n := range adminDeadOf {
		a.exec(fmt.Sprintf("INSERT INTO common_process_log %s SELECT CONCAT('d%d-', LPAD(seq,12,'0')), '%s', CONCAT('o-', LPAD(seq DIV 3,10,'0')), ?, -2, 10, 20, %s-MOD(seq*7919,86400000), "+
			"'exhausted', %s, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3) FROM %s", columns, n, adminType(n), now, dead, numbers(1, adminCases/adminDeadOf)), content)
	}
	a.exec(fmt.Sprintf("INSERT INTO common_process_log_case (entry_id, epoch, kind, business_type, business_id, fingerprint, ended_by, error, amount, currency, opened_at, due_at) "+
		"SELECT id, 0, IF(MOD(id,20)=0,2,1), business_type, business_id, UNHEX(LPAD(HEX(1+MOD(id,%d)),16,'0')), ended_by, LEFT(last_error,200), "+
		"IF(MOD(id,50)=0,NULL,100+MOD(id*7919,60000)), IF(MOD(id,50)=0,'',IF(MOD(id,4)=0,'USD','CNY')), next_at, next_at+86400000 FROM common_process_log WHERE state=-2", adminFailures))
	a.exec(fmt.Sprintf("INSERT INTO common_process_log_operation (at, actor, action, entry_id, business_type, reason) SELECT %s-seq*1000, 'mei', 'note', seq, CONCAT('type_', LPAD(MOD(seq,%d),2,'0')), "+
		"'[OPS-988] asked the bank' FROM %s", now, adminTypes, numbers(1, adminRecords)))
	a.exec(fmt.Sprintf("INSERT INTO common_process_log_audit (entry_id, action, actor, reason, before_state, after_state, created_at) SELECT seq, 'requeue', 'bob', '[OPS-991] PSP is back', '{}', '{}', "+
		"UTC_TIMESTAMP(3)-INTERVAL seq SECOND FROM %s", numbers(1, adminRecords)))
	a.exec("SET GLOBAL innodb_flush_log_at_trx_commit=1")
	a.exec("ANALYZE TABLE common_process_log, common_process_log_case")
	a.writeBack()
}

type adminLog struct {
	*library
	pages http.Handler
	seen  [viewers]string // ETag of the page that each viewer holds
}

func (a *arena) adminLog() *adminLog {
	a.Helper()
	a.operations = operations()
	defer func() { a.operations = nil }()
	h := &adminLog{library: a.newLibrary(0, nil)}
	h.pages = h.newPages()
	return h
}

func (h *adminLog) newPages() http.Handler {
	everything := admin.AccessFunc(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })
	d, err := admin.New(h.Compensator, admin.Options{Access: everything})
	h.a.must(err)
	pages, err := ui.New(ui.Options{Base: "/ops/", Identify: func(r *http.Request) (admin.Actor, bool) { return admin.Actor{ID: adminReader(r)}, true }}, d)
	h.a.must(err)
	return pages
}

// Each request without X-Who has a new reader, because the pages allow a reader only twenty requests a second.
func adminReader(r *http.Request) string {
	if name := r.Header.Get("X-Who"); name != "" {
		return name
	}
	return fmt.Sprint("reader ", time.Now().UnixNano())
}

func (h *adminLog) getPage(pages http.Handler, path string, set ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(h.a.Context(), http.MethodGet, "/ops/"+path, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i < len(set); i += 2 {
		r.Header.Set(set[i], set[i+1])
	}
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	if w.Code != http.StatusOK && w.Code != http.StatusNotModified {
		h.a.Fatalf("/%s: %d %s", path, w.Code, w.Body)
	}
	return w
}

type figure struct {
	What  string    `json:"what"`
	Unit  string    `json:"unit,omitempty"`
	Most  []float64 `json:"limit,omitempty"` // limit for each measured value; empty means no limit
	Got   []float64 `json:"measured"`
	Least bool      `json:"at_least,omitempty"` // the values must be at least the limit, not at most
}

const figureHead = "| what | limit | measured | |\n| --- | ---: | ---: | --- |"

func (f figure) String() string {
	numbers := func(all []float64) string {
		texts := make([]string, len(all))
		for i, n := range all {
			texts[i] = strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", n), "0"), ".")
		}
		return strings.Join(texts, " / ")
	}
	limit, verdict := "", ""
	if len(f.Most) > 0 {
		limit, verdict = "≤ "+numbers(f.Most), "ok"
	}
	if f.Least {
		limit = strings.Replace(limit, "≤", "≥", 1)
	}
	for i := range f.Most {
		if f.Least && f.Got[i] < f.Most[i] || !f.Least && f.Got[i] > f.Most[i] {
			verdict = "short"
		}
	}
	what := f.What
	if f.Unit != "" {
		what += ", " + f.Unit
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", what, limit, numbers(f.Got), verdict)
}

// quantiles returns the median and the 95th percentile in ms.
func quantiles(all []time.Duration) []float64 {
	slices.Sort(all)
	at := func(q int) float64 { return all[min(len(all)-1, len(all)*q/100)].Seconds() * 1000 }
	return []float64{at(50), at(95)}
}
