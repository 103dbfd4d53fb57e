package main

// takingTurns: serial types.
func takingTurns() []mutant {
	return []mutant{
		{
			name: "turn-beside-a-lease", oracle: duplicates,
			what: "whoever is first in its line starts, although one behind it runs already: of a late commit, or a requeue, two run at once",
			edits: []edit{
				{"internal/engine/turns.go", "l.First == w.row.ID && !l.Taken", "l.First == w.row.ID"},
			},
			sees: tests("TestEntryCommittedLateRunsBesideNone").and(simulation, "4000"),
		},
		{
			name: "turn-out-of-order", oracle: safety,
			what: "whoever finds nobody at work starts, whether or not somebody stands in front of it",
			edits: []edit{
				{"internal/engine/turns.go", "l.First == w.row.ID && !l.Taken", "!l.Taken"},
			},
			sees: tests("TestWaitingFirstKeepsTheOthersWaiting").and(simulation, "300"),
		},
		{
			name: "turn-not-recorded", oracle: safety,
			what: "an entry stands in its line only from its first claim on: what is not due yet is overtaken",
			edits: []edit{
				{"record.go", "if err := rec.Join(ctx, tx); err != nil {\n		return nil, err\n	}\n", ""},
			},
			sees: tests("TestDeclaredTypeRecordsTurns", "TestWaitingFirstKeepsTheOthersWaiting").and(simulation, "300"),
		},
		{
			name: "turn-comes-in-vain", oracle: lateness,
			what: "who is parked is made due although another of its line runs already: it comes, is parked and made due again, as fast as the servers answer",
			edits: []edit{
				{"internal/sqlstore/turns.go", "THEN NOT %[4]s) ELSE 0 END", "THEN 1 OR %[4]s) ELSE 0 END"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/FirstOfALineIsMadeDue"),
		},
		{
			name: "turn-passes-untold", oracle: lateness,
			what: "who ends tells nobody: the next of its line waits until its patience ends",
			edits: []edit{
				{"internal/engine/turns.go", "n.rested.Add(restedLine{turn.BusinessType, turn.Key})", "_ = s"},
			},
			sees: tests("TestNextOfALineIsTold"),
		},
		{
			name: "turn-parked-blindly", oracle: lateness,
			what: "who is parked does not look again: the first may have ended before there was anybody to tell",
			edits: []edit{
				{"internal/engine/turns.go", "woken, advanceErr := d.Store.Advance(ctx, t.Name, keys, !s.PassDead)\n	d.saw", "woken, advanceErr := []processlog.ID(nil), ctx.Err()\n	_ = s\n	d.saw"},
			},
			sees: tests("TestNextOfALineIsTold"),
		},
		{
			name: "turn-wakes-early", oracle: safety,
			what: "the first of a line is made due although it has asked to wait, by its delay or its schedule",
			edits: []edit{
				{"internal/sqlstore/turns.go", "CASE WHEN %[2]s.parked>0 AND %[2]s.parked=l.version AND l.lease_until=0", "CASE WHEN l.lease_until=0"},
				{"compensatortest/memory/turns.go", "p == 0 || p != v.entry.Version || ", "p>>63 > 0 || "},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/OnlyWhatIsParkedIsMadeDue", "TestMemoryStoreKeepsEveryPromise/OnlyWhatIsParkedIsMadeDue").and(simulation, "300"),
		},
		{
			name: "turn-wait-counts", oracle: safety,
			what: "a wait for a turn counts as a lost lease: an entry in a long line is taken out as if it had killed processes",
			edits: []edit{
				{"internal/sqlstore/turns.go", "version=version+1, delivery_count=delivery_count-1, lease_until=0, next_at", "version=version+1, lease_until=0, next_at"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ParkedEntryIsGivenBackForAWhile", "TestOtherKeysAndEntriesWithNoneRunBeside"),
		},
	}
}
