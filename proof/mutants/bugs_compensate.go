package main

// compensating: after the last attempt.
func compensating() []mutant {
	return []mutant{
		{
			name: "compensation-without-fence", oracle: safety,
			what: "the failure of a compensation is written whoever has taken the entry over since",
			edits: []edit{
				{"internal/sqlstore/settle.go", "	switch {\n	case g.undone:\n", `	others := func(id processlog.ID) bool { return v.of(id).To == processlog.Compensated || v.of(id).CompensateCount == 0 }
	switch {
	case !slices.ContainsFunc(v.ids, others):
		return "state+0=-3"
	case g.undone:
`},
				{"compensatortest/memory/settle.go", "	case outcome.Absorb:\n", "	case outcome.To != processlog.Compensated && outcome.CompensateCount > 0:\n		return v.entry.State == processlog.Compensating\n	case outcome.Absorb:\n"},
			},
			sees: tests("TestStaleFailureOfACompensationIsDropped").and(model, "m:undo-unfenced").and(simulation, "2000"),
		},
		{
			name: "compensation-not-absorbed", oracle: duplicates,
			what: "a compensation's success that comes after its lease has ended is dropped, although all is undone: it runs again, or the entry is taken out",
			edits: []edit{
				{"internal/engine/outcome.go", "o.To, o.EndedBy, o.Absorb = processlog.Succeeded, processlog.EndedByHandler, true\n", "o.To, o.EndedBy, o.Absorb = processlog.Succeeded, processlog.EndedByHandler, row.State != processlog.Compensating\n"},
			},
			sees: tests("TestStuckCompensationsSuccessCountsAlthoughItsLeasesAreLost", "TestCrashBudgetLeavesALeaseToTheCompensationOfALivingProcess").
				and(simulation, "4000").and(model, "m:undo-fenced"),
		},
		{
			name: "compensation-absorbed-without-epoch", oracle: safety,
			what: "the success of a compensation of the generation before ends the compensation that a person has asked for",
			edits: []edit{
				{"internal/sqlstore/settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0=-3\", g.epoch)", "return \"state+0=-3\""},
				{"compensatortest/memory/settle.go", "return v.entry.Epoch == outcome.Epoch && v.entry.State == processlog.Compensating", "return v.entry.State == processlog.Compensating"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessOfACompensationIsAbsorbedWithinItsEpochOnly").and(model, "m:epoch-ignored"),
		},
		{
			name: "compensation-absorbed-when-dead", oracle: safety,
			what: "a late success of a compensation moves an entry that waits for a person: terminal is not terminal",
			edits: []edit{
				{"internal/sqlstore/settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0=-3\", g.epoch)", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (-2,-3)\", g.epoch)"},
				{"compensatortest/memory/settle.go", "v.entry.State == processlog.Compensating\n", "(v.entry.State == processlog.Compensating || v.entry.State == processlog.Dead)\n"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessOfACompensationIsAbsorbedWhileCompensating").and(model, "m:absorb-terminal"),
		},
		{
			name: "compensation-exhausted-late", oracle: safety,
			what: "a compensation has one attempt too many",
			edits: []edit{
				{"internal/engine/outcome.go", "case o.CompensateCount >= t.MaxCompensateCount:", "case o.CompensateCount > t.MaxCompensateCount:"},
			},
			sees: tests("TestCompensationHasABudgetOfItsOwn").and(simulation, "300"),
		},
		{
			name: "crash-compensated", oracle: safety,
			what: "an entry that killed its process is undone although nobody asked for that: whether it was done is unknown",
			edits: []edit{
				{"internal/engine/outcome.go", "if t.CompensateCrashed && t.compensates()", "if t.compensates()"},
			},
			sees: tests("TestCrashedEntryIsCompensatedOnlyWhereItsTypeAsksForIt").and(simulation, "300"),
		},
		{
			name: "compensated-from-memory", oracle: safety,
			what: "an exhausted entry is undone before it is durable that it is exhausted",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	switch {\n	case end.unstarted:\n", "	if s.outcome.To == processlog.Compensating && a.row.State != processlog.Compensating && a.t.Undo != nil {\n		_ = a.t.Undo(d.work, &a.row)\n	}\n	switch {\n	case end.unstarted:\n"},
			},
			sees: tests("TestExhaustionIsDurableBeforeTheCompensationRuns", "TestExhaustionLosesAgainstASuccessRecordedMeanwhile").and(simulation, "300"),
		},
	}
}
