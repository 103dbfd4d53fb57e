package main

// adopting: rows of an old table into the log, and rows that others have written.
func adopting() []mutant {
	return []mutant{
		{
			name: "adopt-dry-run-commits", oracle: safety,
			what: "a dry run commits what it has tried",
			edits: []edit{
				{"adopt/turn.go", "	if t.dry {\n", "	if t.dry && len(t.entries) == 0 {\n"},
			},
			sees: tests("TestDryRunCountsAndChangesNothing"),
		},
		{
			name: "adopt-id-drawn", oracle: safety,
			what: "a row's entry has an id of its own each time: what is found again is recorded again",
			edits: []edit{
				{"adopt/turn.go", "			entry.IdempotentID = t.idempotentID(k.text)\n", "			_ = t.idempotentID(k.text)\n"},
			},
			sees: tests("TestTableThatIsLeftAsItIsGivesEachRowOneEntry", "TestNoRowIsLostOrDoubledWhileImportersAreKilled"),
		},
		{
			name: "adopt-take-left-out", oracle: safety,
			what: "rows are recorded, and left to the old system as well",
			edits: []edit{
				{"adopt/turn.go", "	if t.cfg.Take == \"\" {\n", "	if t.cfg.Take != \"\" {\n"},
			},
			sees: tests("TestEveryOldRowBecomesOneEntryAndIsTakenWithIt", "TestOldScannerAndImportSideBySideRunEachRowOnce").and(crash, "rows-adopted,adopting"),
		},
		{
			name: "adopt-take-unchecked", oracle: safety,
			what: "a Take after which the old system still finds the row is not noticed",
			edits: []edit{
				{"adopt/turn.go", "	if left > 0 {\n", "	if left > len(args) {\n"},
			},
			sees: tests("TestTakeThatLeavesRowsToTheOldSystemIsRefused"),
		},
		{
			name: "adopt-takes-what-is-held", oracle: producers,
			what: "rows that somebody holds are waited for, with the locks on all the others of their page",
			edits: []edit{
				{"adopt/turn.go", "\" FOR UPDATE SKIP LOCKED\"", "\" FOR UPDATE\""},
			},
			sees: tests("TestRowThatSomebodyHoldsIsPassedOver"),
		},
		{
			name: "adopt-refused-drops-its-page", oracle: safety,
			what: "one entry that the log refuses keeps its whole page from being recorded",
			edits: []edit{
				{"adopt/adopt.go", "			err = im.oneByOne(ctx, t, report, named)\n", "			err = nil\n"},
			},
			sees: tests("TestBadRowIsNamedAndInNobodysWay", "TestDryRunCountsAndChangesNothing"),
		},
		{
			name: "adopt-refused-is-taken", oracle: safety,
			what: "a row whose mapping fails is taken from the old system, and has no entry",
			edits: []edit{
				{"adopt/turn.go", "		t.tally.refuse(refusal)\n	default:", "		t.tally.refuse(refusal)\n		t.taken = append(t.taken, k)\n	default:"},
			},
			sees: tests("TestBadRowIsNamedAndInNobodysWay"),
		},
		{
			name: "adopt-keeps-a-position", oracle: safety,
			what: "a pass goes on behind the last row of the one before: what is committed late is never taken",
			edits: []edit{
				{"adopt/adopt.go", "	running atomic.Bool\n}", "	running atomic.Bool\n	last    *key\n}"},
				{"adopt/adopt.go", "for after := (*key)(nil); ; {", "for after := im.last; ; {"},
				{"adopt/adopt.go", "			return report, err\n		}\n		after =", "			if n := len(t.keys); n > 0 && err == nil && !dry {\n				im.last = &t.keys[n-1]\n			}\n			return report, err\n		}\n		after ="},
			},
			sees: tests("TestRowThatIsCommittedLateIsTakenToo", "TestBadRowIsNamedAndInNobodysWay"),
		},
		{
			name: "odd-moment-fails-its-page", oracle: lateness,
			what: "the server computes with a moment at the end of its column: the statement fails, and with it every other row",
			edits: []edit{
				{"internal/sqlstore/scan.go", "s.d.numbers(\"next_at\"), s.d.numbers(\"lease_until\"), s.d.now, s.table.quoted(\"\"), s.d.dueIndex, g.where(s),", "s.d.numbers(\"next_at\"), \"lease_until - \"+s.d.now+\" + \"+s.d.now, s.d.now, s.table.quoted(\"\"), s.d.dueIndex, g.where(s),"},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
		{
			name: "odd-version-fails-its-claim", oracle: lateness,
			what: "a version that cannot be raised is raised: no claim succeeds that has the row in it",
			edits: []edit{
				{"internal/sqlstore/claim.go", "	if g.version >= lastVersion {\n		next", "	if g.version == 0 && lastVersion == 0 {\n		next"},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
		{
			name: "odd-count-fails-its-claim", oracle: lateness,
			what: "a count of deliveries that cannot be raised is raised: no claim succeeds that has the row in it",
			edits: []edit{
				{"internal/sqlstore/claim.go", " || row.DeliveryCount >= processlog.MaxCount\n", "\n"},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
		{
			name: "odd-date-fails-its-page", oracle: lateness,
			what: "a date of zeros, which is NULL to the server's functions, fails whoever reads it, with every other row",
			edits: []edit{
				{"internal/sqlstore/mysql.go", "return \"COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',\" + col + \") DIV 1000,0)\"", "return \"(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',\" + col + \") DIV 1000)\""},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
		{
			name: "misfits-untold", oracle: lateness,
			what: "rows that never run as they stand wait in silence",
			edits: []edit{
				{"internal/engine/misfits.go", "r.base.saw(troubleMisfits, misfitsError(found))", "r.base.saw(troubleMisfits, misfitsError(found[:0]))"},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
	}
}
