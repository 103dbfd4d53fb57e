package main

import (
	"context"
	"fmt"
	"io"
	"strings"
)

type hunt struct {
	tree    *tree
	mutants []mutant
	layers  []layer
	out     io.Writer
}

func (h hunt) baseline(ctx context.Context) error {
	for _, l := range h.layers {
		var all []string
		for _, m := range h.mutants {
			if what := m.sees[l]; what != "" {
				all = append(all, what)
			}
		}
		if len(all) == 0 {
			continue
		}
		v, err := run(ctx, h.tree, l, l.union(all), nil)
		if err != nil {
			return err
		}
		h.report("no mutant", l, v, describe(v))
		if v.kind != green {
			return fmt.Errorf("the tests of %s fail without a mutant", l)
		}
	}
	return nil
}

// runAll continues after a mutant that survives.
func (h hunt) runAll(ctx context.Context) error {
	runs := 0
	var bad []string
	for _, m := range h.mutants {
		for _, l := range h.layers {
			what := m.sees[l]
			if what == "" {
				continue
			}
			v, err := run(ctx, h.tree, l, what, m.edits)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				v = verdict{kind: broken, why: err.Error()}
			}
			runs++
			good, text := accept(l, what, v)
			h.report(m.name, l, v, text)
			if !good {
				bad = append(bad, m.name+" ("+string(l)+")")
			}
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d runs failed to kill their mutant: %s", len(bad), runs, strings.Join(bad, ", "))
	}
	fmt.Fprintf(h.out, "%d mutants, %d runs: every mutant was killed\n", len(h.mutants), runs)
	return nil
}

func (h hunt) report(name string, l layer, v verdict, text string) {
	fmt.Fprintf(h.out, "%-36s %-10s %4.0fs  %s\n", name, l, v.took.Seconds(), text)
}

func accept(l layer, what string, v verdict) (good bool, text string) {
	missed := v.missed(l.names(what))
	switch {
	case v.kind == broken:
		return false, describe(v)
	case v.kind == green:
		return false, "SURVIVED"
	case l == simulation && !v.saw("seed"): // A run may have failed only because it lacked variety.
		return false, "SURVIVED in every seed; " + describe(v)
	case len(missed) > 0:
		return false, "SURVIVED in " + strings.Join(missed, ", ") + "; " + describe(v)
	}
	return true, describe(v)
}

func describe(v verdict) string {
	switch v.kind {
	case green:
		return "green"
	case red:
		return "killed by " + v.killers()
	}
	return "ERROR: " + v.why
}
