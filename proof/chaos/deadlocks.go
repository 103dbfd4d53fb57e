package chaos

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

var (
	deadlockPart   = regexp.MustCompile(`\*\*\* \((\d+)\) TRANSACTION:`)
	deadlockVictim = regexp.MustCompile(`\*\*\* WE ROLL BACK TRANSACTION \((\d+)\)`)
)

const longestStatement = 300

func deadlocks(log string) (found []*history.Deadlock) {
	var d *history.Deadlock
	reading := false
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.Contains(strings.ToLower(line), "deadlock detected"):
			d, reading = &history.Deadlock{Victim: -1}, false
			found = append(found, d)
		case d == nil:
		case deadlockPart.MatchString(line):
			d.Statements, reading = append(d.Statements, ""), false
		case deadlockVictim.MatchString(line):
			n, _ := strconv.Atoi(deadlockVictim.FindStringSubmatch(line)[1])
			d.Victim, d = n-1, nil
		case strings.Contains(line, " thread id ") && len(d.Statements) > 0:
			reading = true
		case strings.HasPrefix(line, "***"), strings.HasPrefix(line, "RECORD LOCKS"), strings.HasPrefix(line, "TABLE LOCK"), strings.Contains(line, "InnoDB"):
			reading = false
		case reading:
			last := &d.Statements[len(d.Statements)-1]
			if *last != "" {
				*last += " "
			}
			*last += strings.TrimSpace(line)
			*last = (*last)[:min(len(*last), longestStatement)]
		}
	}
	return found
}
