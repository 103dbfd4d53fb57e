package verdict

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
)

const mostLines = 12

func Print(out io.Writer, l *Ledger, v *Verdict) error {
	texts, err := l.texts(v)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "seed %d: %d lines, %d entries, %d faults\n\n", l.Run.Seed, l.Lines, len(l.IDs), len(l.Faults))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range v.Checks {
		fmt.Fprintf(table, "%s\t%s\t%d looked at\t%d violations\t\n", c.Word(), c.Name, c.Looked, c.Violations)
	}
	table.Flush()
	for _, c := range v.Checks {
		for _, note := range c.Notes {
			fmt.Fprintf(w, "  %s: %s\n", c.Name, note)
		}
	}
	fmt.Fprintf(w, "  machine: %s\n", l.SumStalls())
	starts := l.Starts()
	fmt.Fprintf(w, "  late, no fault felt:  %v\n", Sum(starts, func(s Start) bool { return s.Calm }))
	fmt.Fprintf(w, "  late, during faults:  %v\n", Sum(starts, func(s Start) bool { return !s.Calm }))
	for _, c := range v.Checks {
		l.printFindings(w, c, texts)
	}
	printList(w, "Vacuous. Demands that the run did not meet:", v.Vacuous)
	printList(w, "Demands that this run was excused from:", v.Excused)
	fmt.Fprintf(w, "\n%s\n", v.Sum())
	return w.Flush()
}

func (c *Check) Word() string {
	switch {
	case c.Violations > 0:
		return "VIOLATED"
	case c.Looked == 0:
		return "nothing"
	}
	return "held"
}

func (v *Verdict) Sum() string {
	switch {
	case v.Violated():
		return "VIOLATED"
	case len(v.Vacuous) > 0:
		return "VACUOUS: no check was violated, but the run did not meet all demands"
	}
	return "HELD"
}

func (l *Ledger) printFindings(w io.Writer, c *Check, texts map[Place]string) {
	if c.Violations == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: %s. Violated %d times.\n", c.Name, c.Rule, c.Violations)
	for i, f := range c.Findings {
		fmt.Fprintf(w, "\n  %d. %s\n", i+1, f.What)
		for n, p := range f.Lines {
			if n == mostLines {
				fmt.Fprintf(w, "     … and %d lines more\n", len(f.Lines)-n)
				break
			}
			fmt.Fprintf(w, "     %s: %s\n", l.placeName(p), texts[p])
		}
		if i > 0 || f.Entry == 0 {
			continue
		}
		fmt.Fprintf(w, "     history of the entry:\n")
		for _, line := range l.EntryHistory(f.Entry) {
			fmt.Fprintf(w, "       %s\n", line)
		}
	}
}

func printList(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, line := range lines {
		fmt.Fprintf(w, "  %s\n", line)
	}
}

func (l *Ledger) texts(v *Verdict) (map[Place]string, error) {
	wanted := make(map[int32]map[int32]bool)
	for _, c := range v.Checks {
		for _, f := range c.Findings {
			for _, p := range f.Lines[:min(len(f.Lines), mostLines)] {
				if wanted[p.file] == nil {
					wanted[p.file] = make(map[int32]bool)
				}
				wanted[p.file][p.line] = true
			}
		}
	}
	texts := make(map[Place]string)
	for file, lines := range wanted {
		if err := readLines(l.files[file], lines, func(line int32, text string) { texts[Place{file, line}] = text }); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(l.files[file]), err)
		}
	}
	return texts, nil
}

func readLines(name string, wanted map[int32]bool, each func(line int32, text string)) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	for n := int32(1); len(wanted) > 0; n++ {
		line, err := in.ReadString('\n')
		if wanted[n] {
			each(n, line[:max(0, len(line)-1)])
			delete(wanted, n)
		}
		if err != nil {
			return nil
		}
	}
	return nil
}
