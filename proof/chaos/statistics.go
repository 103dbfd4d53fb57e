package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// processVariable is a session variable of every connection of an app. It holds the name of the process, so that triggers
// can store which process made a change. The driver's own connections do not have it.
const (
	processVariable  = "@chaos_process"
	processOfSession = "COALESCE(" + processVariable + ", '')"
)

// withProcess returns a data source name whose connections carry the name of a process.
func withProcess(dsn, process string) string {
	config, err := mysql.ParseDSN(dsn)
	must(err)
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	config.Params[processVariable] = "'" + process + "'"
	return config.FormatDSN()
}

// statColumns are the counts that the check compares with the changes of the log.
var statColumns = []string{"recorded", "succeeded", "compensated", "dead", "failed"}

// statSchema creates triggers on the table of statistics. They store what each process has written for each minute, before
// FoldStats adds the counts of processes up. If a process writes a minute again, its last values count.
var statSchema = []string{
	"CREATE TABLE stat_trail (process VARCHAR(32) NOT NULL, instance VARCHAR(32) NOT NULL, `at` BIGINT NOT NULL, business_type VARCHAR(64) NOT NULL, " +
		strings.Join(statColumns, " BIGINT NOT NULL, ") + " BIGINT NOT NULL, PRIMARY KEY (instance, `at`, business_type)) ENGINE=InnoDB",
	statTrigger("INSERT"),
	statTrigger("UPDATE"),
}

func statTrigger(event string) string {
	return "CREATE TRIGGER stat_" + strings.ToLower(event) + " AFTER " + event + " ON common_process_log_stat FOR EACH ROW " +
		"REPLACE INTO stat_trail SELECT " + processOfSession + ", NEW.instance, NEW.`at`, NEW.business_type, NEW." + strings.Join(statColumns, ", NEW.") +
		" FROM DUAL WHERE NEW.instance>='0' AND NEW.`at`>0"
}

// statCounts are the numbers of statColumns.
type statCounts [5]int64

func (c *statCounts) scanTargets() (to []any) {
	for i := range c {
		to = append(to, &c[i])
	}
	return to
}

func (c *statCounts) add(o statCounts) {
	for i := range c {
		c[i] += o[i]
	}
}

func (c statCounts) String() string {
	var parts []string
	for i, name := range statColumns {
		parts = append(parts, fmt.Sprint(name, " ", c[i]))
	}
	return strings.Join(parts, ", ")
}

// logChange is a change of the log by a process.
type logChange struct {
	at     time.Duration // by the database's clock
	counts statCounts    // what the process should count for it
}

// processOfType names a process and a type.
type processOfType struct{ process, businessType string }

// checkStatistics asserts G43: the statistics are right up to the last minute of a killed process. It compares the
// statistics of each process with the changes that triggers have written, when all apps have ended:
//
//   - No count is higher than the number of changes that the process has made.
//   - A process that was closed has counted its outcomes. A killed process has counted those that are old enough.
//   - The table has the sums of what the processes have stored, also after counts were folded.
func (st *stage) checkStatistics() {
	changes, last, err := st.logChanges()
	if err != nil {
		st.tb.Errorf("reading the changes of the log: %v", err)
		return
	}
	counted, stored, err := st.countedByProcess()
	if err != nil {
		st.tb.Errorf("reading what the processes have counted: %v", err)
		return
	}
	var closed []string
	for _, a := range st.apps {
		closed = append(closed, a.latest())
	}
	var total, certain statCounts
	for of, c := range counted {
		total.add(c)
		changes[of] = append(changes[of], logChange{}) // Also check the counts of a process that has changed no entry of the type.
	}
	for of, list := range changes {
		until := max(stored[of.process]+storedSurely, last[of.process]-lostAtMost)
		if slices.Contains(closed, of.process) {
			until = last[of.process]
		}
		least, most := expectedCounts(list, until)
		certain.add(least)
		for i, n := range counted[of] {
			if i == 0 && !st.cfg.Careful { // Other producers report entries as committed that they have rolled back to a savepoint.
				continue
			}
			if n < least[i] || n > most[i] {
				st.tb.Errorf("G43: process %s of type %s (closed: %v) counted %d %s; want %d to %d", of.process, of.businessType, slices.Contains(closed, of.process), n, statColumns[i], least[i], most[i])
			}
		}
	}
	st.tb.Logf("statistics of %d processes: %v; at least %v must be there", len(stored), total, certain)
	st.checkFoldedStatistics(total)
}

// expectedCounts returns the bounds of what a process has counted, which made the changes of list. It has counted nearly all
// outcomes up to the time until. The lower bound of recorded entries is 0, because a process counts only entries whose commit it has seen.
func expectedCounts(list []logChange, until time.Duration) (least, most statCounts) {
	for _, change := range list {
		if most.add(change.counts); change.at <= until {
			least.add(change.counts)
		}
	}
	for i, n := range least {
		least[i] = max(0, n-n/10-uncounted)
	}
	least[0] = 0
	return least, most
}

// uncounted is how many outcomes a process may leave out, beside a tenth of all. If a fault takes away the answer to the write of
// an outcome, another process may change the entry before the next try. The process then reports the outcome as dropped. Both
// numbers are estimates: the check does not compare what is missing with the outcomes that the process has reported as dropped.
const uncounted = 20

const (
	// storedSurely is the part of the last minute that a killed process has stored whose events are surely in the counts of
	// this minute or of an earlier one. The faults move the database's clock by up to 8 s, and delay answers by some seconds.
	storedSurely = 25 * time.Second
	// lostAtMost is how long before the end of a process its oldest lost count may be: a minute, and the time for which faults
	// delay the write of that minute.
	lostAtMost = 2 * time.Minute
)

// logChanges returns the changes that each process has made in the log, and the time of its last change.
func (st *stage) logChanges() (changes map[processOfType][]logChange, last map[string]time.Duration, err error) {
	changes, last = make(map[processOfType][]logChange), make(map[string]time.Duration)
	err = st.query(`SELECT process, business_type, now_us, op='i', new_state=1 AND COALESCE(old_state, 0)<>1, new_state=2 AND COALESCE(old_state, 0)<>2,
			new_state=-2 AND COALESCE(old_state, 0)<>-2, COALESCE(old_epoch=new_epoch AND (new_process_count>old_process_count OR new_compensate_count>old_compensate_count), 0)
		FROM audit_trail WHERE op<>'d' AND process<>''`, func(scan func(...any) error) error {
		var of processOfType
		var us int64
		var c logChange
		err := scan(append([]any{&of.process, &of.businessType, &us}, c.counts.scanTargets()...)...)
		c.at = time.Duration(us) * time.Microsecond
		changes[of] = append(changes[of], c)
		last[of.process] = max(last[of.process], c.at)
		return err
	})
	return changes, last, err
}

// countedByProcess returns what each process has counted, and the begin of the last minute that it has stored.
func (st *stage) countedByProcess() (counted map[processOfType]statCounts, stored map[string]time.Duration, err error) {
	counted, stored = make(map[processOfType]statCounts), make(map[string]time.Duration)
	err = st.query("SELECT process, business_type, `at`, "+strings.Join(statColumns, ", ")+" FROM stat_trail", func(scan func(...any) error) error {
		var of processOfType
		var ms int64
		var c statCounts
		err := scan(append([]any{&of.process, &of.businessType, &ms}, c.scanTargets()...)...)
		sum := counted[of]
		sum.add(c)
		counted[of] = sum
		stored[of.process] = max(stored[of.process], time.Duration(ms)*time.Millisecond)
		return err
	})
	return counted, stored, err
}

// checkFoldedStatistics compares the table of statistics with what the processes have written to it.
func (st *stage) checkFoldedStatistics(want statCounts) {
	var got statCounts
	columns := "SUM(" + strings.Join(statColumns, "), SUM(") + ")"
	err := st.query("SELECT "+columns+" FROM common_process_log_stat WHERE (instance='' OR instance>='0') AND `at`>0", func(scan func(...any) error) error { return scan(got.scanTargets()...) })
	if err != nil {
		st.tb.Errorf("reading the statistics: %v", err)
	} else if got != want {
		st.tb.Errorf("G43: the statistics have the sums %v, and the processes have stored %v", got, want)
	}
}
