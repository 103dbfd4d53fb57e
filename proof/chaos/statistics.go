package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

// processVariable holds the name of the process, so that triggers can store which process made a change.
const (
	processVariable  = "@chaos_process"
	processOfSession = "COALESCE(" + processVariable + ", '')"
)

func withProcess(dsn, process string) string {
	config, err := mysql.ParseDSN(dsn)
	must(err)
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	config.Params[processVariable] = "'" + process + "'"
	return config.FormatDSN()
}

var statColumns = []string{"recorded", "succeeded", "compensated", "dead", "failed"}

// FoldStats replaces the rows of single processes by the sums of all processes. So triggers copy each row of a process
// to the table stat_trail as soon as the row is written. If the row is written again, the copy gets the new counts.
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

type logChange struct {
	at     time.Duration
	counts statCounts
}

type processOfType struct{ process, businessType string }

// checkStatistics asserts G43 when all apps have ended: each count of the statistics is stored once.
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
	dropped, err := st.droppedOutcomes()
	if err != nil {
		st.tb.Errorf("reading the outcomes that were dropped: %v", err)
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
		least, most := expectedCounts(list, until, dropped[of])
		certain.add(least)
		for i, n := range counted[of] {
			// Column 0 counts recorded entries. Without Careful, producers also report entries as committed that a
			// rollback to a savepoint has undone.
			if i == 0 && !st.cfg.Careful {
				continue
			}
			if n < least[i] || n > most[i] {
				st.tb.Errorf("G43: process %s of type %s (closed: %v) counted %d %s; want %d to %d", of.process, of.businessType, slices.Contains(closed, of.process), n, statColumns[i], least[i], most[i])
			}
		}
	}
	drops := int64(0)
	for _, n := range dropped {
		drops += n
	}
	st.tb.Logf("statistics of %d processes: %v; at least %v must be there; %d outcomes were reported as dropped", len(stored), total, certain, drops)
	st.checkFoldedStatistics(total)
}

// expectedCounts returns the lowest and the highest right counts of one process and type.
//
// A process repeats the write of an outcome if it got no answer to the first write. Another process may have changed
// the entry in between. Then the first process reports its outcome as dropped and does not count it, although the log
// has the change. So each dropped outcome lowers the lower bounds by 1.
//
// The lower bound of recorded entries is 0, because a process counts an entry as recorded only if it has seen the
// commit.
func expectedCounts(list []logChange, until time.Duration, dropped int64) (least, most statCounts) {
	for _, change := range list {
		if most.add(change.counts); change.at <= until {
			least.add(change.counts)
		}
	}
	for i, n := range least {
		least[i] = max(0, n-dropped)
	}
	least[0] = 0
	return least, most
}

func (st *stage) droppedOutcomes() (dropped map[processOfType]int64, err error) {
	dropped = make(map[processOfType]int64)
	files, err := history.Files(st.cfg.Dir)
	for _, file := range files {
		process := ""
		err = errors.Join(err, history.ReadFile(file, func(_ history.Line, record history.Record) error {
			switch r := record.(type) {
			case *history.Process:
				for _, a := range st.apps {
					if a.name == r.App {
						process = a.nameOf(r.PID)
					}
				}
			case *history.Event:
				if r.Event == history.EventOutcomeDropped {
					dropped[processOfType{process, r.Type}]++
				}
			}
			return nil
		}))
	}
	return dropped, err
}

const (
	// The row of a minute surely counts the changes in the first 25 s of this minute. The process may count a change
	// after that in the next minute, because faults move the database's clock by up to 8 s and delay answers by some
	// seconds.
	storedSurely = 25 * time.Second
	// Faults may delay the write of a minute's counts by another minute.
	lostAtMost = 2 * time.Minute
)

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
