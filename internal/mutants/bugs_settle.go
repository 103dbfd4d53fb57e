package main

// settling: from a handler's verdict to the row.
func settling() []mutant {
	return []mutant{
		{
			name: "settle-without-fence", oracle: safety,
			what: "an outcome is written whoever holds the entry now",
			edits: []edit{
				{"store_settle.go", "return fmt.Sprintf(\"version=%d AND state+0 IN (0,-1,-3)\", g.fence)", "return \"state+0 IN (0,-1,-3)\""},
				{"compensatortest/memory_settle.go", "return v.entry.Version == outcome.Version && !v.entry.State.Terminal()", "return !v.entry.State.Terminal()"},
			},
			sees: tests("TestStaleFailureIsDropped", "TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration"),
		},
		{
			name: "success-not-absorbed", oracle: duplicates,
			what: "a success that comes after its lease has ended is dropped, although the work is done",
			edits: []edit{
				{"outcome.go", "		o.Absorb = true\n", ""},
			},
			sees: tests("TestStaleSuccessIsAbsorbedWhileTheEntryIsOnItsWay"),
		},
		{
			name: "success-without-epoch", oracle: safety,
			what: "a success of the generation before counts for the one a person has started",
			edits: []edit{
				{"store_settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1)\", g.fence)", "return \"state+0 IN (0,-1)\""},
				{"compensatortest/memory_settle.go", "return v.entry.Epoch == outcome.Epoch && (", "return ("},
			},
			sees: tests("TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessIsAbsorbedWithinItsEpochOnly"),
		},
		{
			name: "success-absorbed-while-compensating", oracle: safety,
			what: "a late success ends an entry whose compensation is under way: done and undone",
			edits: []edit{
				{"store_settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1)\", g.fence)", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1,-3)\", g.fence)"},
				{"compensatortest/memory_settle.go", "v.entry.State == compensator.Retrying)", "v.entry.State == compensator.Retrying || v.entry.State == compensator.Compensating)"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessIsNotAbsorbedWhileCompensating"),
		},
		{
			name: "settle-forgets-token", oracle: safety,
			what: "a settle that is repeated because its answer was lost takes what it wrote itself for another's",
			edits: []edit{
				{"store_settle.go", "Settled{Applied: row.Token == token, State: row.State}", "Settled{State: row.State}"},
				{"compensatortest/memory_settle.go", "Applied: before.token == token, State", "State"},
			},
			sees: tests("TestOutcomeWhoseReplyWasLostIsCountedOnce"),
		},
		{
			name: "settle-not-repeated", oracle: safety,
			what: "an outcome that the database did not take at once is given up",
			edits: []edit{
				{"settle.go", "if !c.pause(settleBackoff.delay(failures)) {", "if true || !c.pause(settleBackoff.delay(failures)) {"},
			},
			sees: tests("TestOutcomeWhoseReplyWasLostIsCountedOnce"),
		},
		{
			name: "exhausted-early", oracle: safety,
			what: "an entry is exhausted one failure too soon",
			edits: []edit{
				{"outcome.go", "case o.ProcessCount >= t.maxProcessCount(row):", "case o.ProcessCount+1 >= t.maxProcessCount(row):"},
			},
			sees: tests("TestSuccessIsNeverCompensated", "TestEntrysOwnMaxProcessCountIsItsBudget"),
		},
		{
			name: "exhausted-late", oracle: safety,
			what: "an entry is exhausted one failure too late",
			edits: []edit{
				{"outcome.go", "case o.ProcessCount >= t.maxProcessCount(row):", "case o.ProcessCount > t.maxProcessCount(row):"},
			},
			sees: tests("TestExhaustedEntryIsCompensated", "TestEntrysOwnMaxProcessCountIsItsBudget"),
		},
		{
			name: "count-in-sql", oracle: safety,
			what: "the failure is counted in SQL before the state is computed from the count: exhausted one early",
			edits: []edit{
				{"store_settle.go", "	return fmt.Sprintf(\"state=%d, version=version+1%s, delivery_count=0,", `	if g.to == Retrying {
		return fmt.Sprintf("process_count=process_count+1, state=IF(max_process_count>0 AND process_count+1>=max_process_count,-2,-1), version=version+1, delivery_count=0, lease_until=0, ended_by=IF(state=-2,'exhausted',''), token=%s, updated_at=%s",
			hexLiteral(token[:]), s.d.stamp)
	}
	return fmt.Sprintf("state=%d, version=version+1%s, delivery_count=0,`},
			},
			sees: tests("TestEntrysOwnMaxProcessCountIsItsBudget"),
		},
		{
			name: "deliveries-kept", oracle: safety,
			what: "an outcome does not end the count of deliveries: failures look like crashes",
			edits: []edit{
				{"store_settle.go", "	return fmt.Sprintf(\"state=%d, version=version+1%s, delivery_count=0,", "	return fmt.Sprintf(\"state=%d, version=version+1%s,"},
				{"compensatortest/memory_row.go", "	next.entry.DeliveryCount, next.leaseUntil = 0, 0\n	next.nextAt = now\n", "	next.leaseUntil = 0\n	next.nextAt = now\n"},
			},
			sees: tests("TestFailedEntryIsRetriedUntilItSucceeds"),
		},
		{
			name: "snooze-counts", oracle: safety,
			what: "asking to be called later spends an attempt",
			edits: []edit{
				{"outcome.go", "	case v.kind == snooze:\n", "	case v.kind == snooze:\n		o.ProcessCount, o.To = o.ProcessCount+1, Retrying\n"},
			},
			sees: tests("TestVerdictsOfAHandlerAreObeyed"),
		},
		{
			name: "queue-before-database", oracle: safety,
			what: "the queue forgets an entry before the database has its outcome; a process that dies in between leaves it to the reconciler alone",
			edits: []edit{
				{"settle.go", "	results := c.writeOutcomes(outcomes)\n", `	for _, s := range first {
		if s.a.token != 0 {
			c.ackBatch([]ack{{s.a.t.name, QueueOutcome{ID: s.outcome.ID, Token: s.a.token, Remove: s.outcome.To.Terminal(), In: dueIn(s.outcome.After)}}})
		}
	}
	results := c.writeOutcomes(outcomes)
`},
			},
			sees: tests("TestQueueKeepsAnEntryUntilTheDatabaseHasItsOutcome"),
		},
		{
			name: "settle-by-due-index", oracle: producers,
			what: "a settle finds its rows through the index of what is due: it waits for entries that open transactions hold, and holds its own meanwhile",
			edits: []edit{
				{"store_settle.go", "		return \"UPDATE \" + s.table.quoted(\"\") + \" SET \"", "		return \"UPDATE \" + s.table.quoted(\"\") + s.d.dueIndex + \" SET \""},
				{"store_settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1)\", g.fence)", "return fmt.Sprintf(\"epoch=%d AND state IN (0,-1)\", g.fence)"},
			},
			sees: tests("TestOutcomesOfFreeRowsDoNotWaitForALockedOne"),
		},
		{
			name: "locked-outcomes-block", oracle: lateness,
			what: "an outcome whose row is locked is offered again among the others, which wait with it",
			edits: []edit{
				{"settle.go", "		c.slowLane.add(s)\n", "		c.settleLane.add(s)\n"},
			},
			sees: tests("TestOutcomeOfALockedRowWaitsApartFromTheOthers"),
		},
	}
}
