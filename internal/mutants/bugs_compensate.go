package main

// compensating: after the last attempt.
func compensating() []mutant {
	return []mutant{
		{
			name: "compensation-without-fence", oracle: safety,
			what: "the outcome of a compensation is written whoever has taken the entry over since",
			edits: []edit{
				{"internal/sqlstore/settle.go", "	if g.absorb {\n		return fmt.Sprintf(\"epoch", `	others := func(id processlog.ID) bool { return v.of(id).To != processlog.Compensated && v.of(id).CompensateCount == 0 }
	if !slices.ContainsFunc(v.ids, others) {
		return "state+0=-3"
	}
	if g.absorb {
		return fmt.Sprintf("epoch`},
				{"compensatortest/memory_settle.go", "	if outcome.Absorb {\n		return v", "	if outcome.To == processlog.Compensated || outcome.CompensateCount > 0 {\n		return v.entry.State == processlog.Compensating\n	}\n	if outcome.Absorb {\n		return v"},
			},
			sees: tests("TestStaleFailureOfACompensationIsDropped").and(model, "m:undo-unfenced").and(simulation, "2000"),
		},
		{
			name: "compensation-exhausted-late", oracle: safety,
			what: "a compensation has one attempt too many",
			edits: []edit{
				{"outcome.go", "case o.CompensateCount >= t.cfg.MaxCompensateCount:", "case o.CompensateCount > t.cfg.MaxCompensateCount:"},
			},
			sees: tests("TestCompensationHasABudgetOfItsOwn").and(simulation, "300"),
		},
		{
			name: "crash-compensated", oracle: safety,
			what: "an entry that killed its process is undone although nobody asked for that: whether it was done is unknown",
			edits: []edit{
				{"outcome.go", "if t.cfg.CompensateCrashed && t.compensates()", "if t.compensates()"},
			},
			sees: tests("TestCrashedEntryIsCompensatedOnlyWhereItsTypeAsksForIt").and(simulation, "300"),
		},
		{
			name: "compensated-from-memory", oracle: safety,
			what: "an exhausted entry is undone before it is durable that it is exhausted",
			edits: []edit{
				{"dispatcher.go", "	switch {\n	case end.unstarted:\n", "	if s.outcome.To == Compensating && a.row.State != Compensating && a.t.undo != nil {\n		_ = a.t.undo(d.c.work, d.entry(a))\n	}\n	switch {\n	case end.unstarted:\n"},
			},
			sees: tests("TestExhaustionIsDurableBeforeTheCompensationRuns", "TestExhaustionLosesAgainstASuccessRecordedMeanwhile").and(simulation, "300"),
		},
	}
}
