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
			sees: tests("TestEntryCommittedLateRunsBesideNone").and(simulation, "4000").and(model, "m:turn-beside-a-lease"),
		},
		{
			name: "turn-out-of-order", oracle: safety,
			what: "whoever finds nobody at work starts, whether or not somebody stands in front of it",
			edits: []edit{
				{"internal/engine/turns.go", "l.First == w.row.ID && !l.Taken", "!l.Taken"},
			},
			sees: tests("TestWaitingFirstKeepsTheOthersWaiting", "TestOpenBreakersLeaveLinesInTheirOrder", "TestLinesThatAnOpenBreakerLeavesAloneAreWorkedOffInOrderElsewhere").and(simulation, "300").
				and(crash, "turns-joined,in-line").and(model, "m:turn-out-of-order"),
		},
		{
			name: "turn-placed-by-id", oracle: safety,
			what: "entries of one call stand in the order of their ids, which is that of their idempotent ids: step 10 runs before step 2",
			edits: []edit{
				{"internal/engine/turns.go", "	placeAsGiven(joining)\n", ""},
			},
			sees: tests("TestEntriesOfOneCallRunInTheOrderInWhichTheyWereGiven", "TestCrossedCallsDoNotDeadlock").and(simulation, "300"),
		},
		{
			name: "turn-placed-anew", oracle: safety,
			what: "an entry that is parked takes the place of its id, and leaves that of its call",
			edits: []edit{
				{"internal/sqlstore/turns.go", "s.d.again(\"entry_id, turn_key\", \"epoch\", \"parked\")", "s.d.again(\"entry_id, turn_key\", \"place\", \"epoch\", \"parked\")"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/PlaceDecides"),
		},
		{
			name: "turn-inserted-as-given", oracle: producers,
			what: "rows are inserted in the caller's order: two calls with the same entries deadlock",
			edits: []edit{
				{"internal/sqlstore/insert.go", "	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(drafts[a].IdempotentID, drafts[b].IdempotentID) })\n", "	_ = cmp.Compare[int]\n"},
			},
			sees: tests("TestCrossedCallsDoNotDeadlock"),
		},
		{
			name: "turn-seen-beside-a-lease", oracle: duplicates,
			what: "entries are taken for looked at although one behind them is claimed: they run beside it",
			edits: []edit{
				{"internal/sqlstore/turns.go", "		if is {\n			a.lines[key].Members = nil\n", "		if is && len(key) > processlog.MaxTurnKey {\n			a.lines[key].Members = nil\n"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/MembersAreToldWhereNoneIsClaimed").and(model, "m:turn-seen-beside-a-lease"),
		},
		{
			name: "turn-seen-in-any-epoch", oracle: duplicates,
			what: "a requeued entry is taken for looked at, as it was before it ended: it runs beside one that has started since",
			edits: []edit{
				{"internal/engine/seen.go", "	return found && epoch == turn.Epoch\n", "	return found && epoch <= turn.Epoch\n"},
			},
			sees: tests("TestSeenEntriesAreOfOneEpoch").and(model, "m:turn-seen-in-any-epoch"),
		},
		{
			name: "turn-blocked-and-claimed", oracle: lateness,
			what: "entries that wait for another of their key are claimed and put back, a claim and three writes each time",
			edits: []edit{
				{"internal/engine/turns.go", "	blocked, err := n.Store.Blocked(ctx, businessType, ids, !s.PassDead)\n	n.saw(troubleTurns, err)\n	return blocked, err\n", "	_ = s\n	return nil, nil\n"},
			},
			sees: tests("TestWhatTurnsCost", "TestOtherKeysAndEntriesWithNoneRunBeside"),
		},
		{
			name: "turn-blocked-in-any-epoch", oracle: lateness,
			what: "a requeued entry is left alone for its note of the epoch before, which somebody deletes: it waits for a round that looks at all that is due",
			edits: []edit{
				{"internal/sqlstore/turns.go", " ON e.id=o.entry_id AND e.epoch=o.epoch WHERE", " ON e.id=o.entry_id WHERE"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/NoteOfAnEarlierEpochBlocksNothing").and(model, "m:turn-blocked-in-any-epoch"),
		},
		{
			name: "turn-retry-untold", oracle: lateness,
			what: "an attempt that fails tells nobody: one that was committed late in front of its entry stays parked",
			edits: []edit{
				{"internal/engine/turns.go", "		n.rested.Add(processlog.Turn{BusinessType: turn.BusinessType, Key: turn.Key})\n		return\n", "		return\n"},
			},
			sees: tests("TestLateEntryRunsOnceTheOneBesideItWaits").and(model, "m:turn-tells-no-retry"),
		},
		{
			name: "turn-sweep-stops", oracle: lateness,
			what: "after one look at all keys there is no other: where nobody tells the next of a key, it waits for ever",
			edits: []edit{
				{"internal/engine/sweep.go", "		if w.ended {\n", "		if w.ended && w.pages > sweepPages {\n"},
			},
			sees: tests("TestDeadFirstKeepsTheOthersWaitingForAPerson"),
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
				{"internal/sqlstore/turns.go", "THEN NOT %[3]s ELSE 0 END", "THEN 1 OR %[3]s ELSE 0 END"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/FirstOfALineIsMadeDue"),
		},
		{
			name: "turn-passes-untold", oracle: lateness,
			what: "an entry that ends tells nobody: the next of its key waits for a round that looks at all keys",
			edits: []edit{
				{"internal/engine/turns.go", "			n.follow(nextEntry{businessType: turn.BusinessType, id: next, behind: turn})\n		} else {\n			n.rested.Add(turn)\n		}\n", "			_ = next\n		}\n"},
			},
			sees: tests("TestNextOfALineIsTold").and(model, "m:turn-tells-nobody"),
		},
		{
			name: "turn-parked-blindly", oracle: lateness,
			what: "who is parked does not look again: the first may have ended before there was anybody to tell",
			edits: []edit{
				{"internal/engine/turns.go", "next, advanceErr := d.Store.Advance(ctx, t.Name, keys, !s.PassDead)\n	_ = d.turns", "next, advanceErr := []processlog.ID(nil), ctx.Err()\n	_, _ = s, keys\n	_ = d.turns"},
			},
			sees: tests("TestEntryWithoutANoteRunsAtOnce").and(model, "m:turn-no-second-look"),
		},
		{
			name: "turn-wakes-early", oracle: safety,
			what: "the first of a line is made due although it has asked to wait, by its delay or its schedule",
			edits: []edit{
				{"internal/sqlstore/turns.go", "p.parked>0 AND p.parked=l.version AND l.lease_until=0", "l.lease_until=0"},
				{"compensatortest/memory/turns.go", "p == 0 || p != v.entry.Version || ", "p>>63 > 0 || "},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/OnlyWhatIsParkedIsMadeDue", "TestMemoryStoreKeepsEveryPromise/OnlyWhatIsParkedIsMadeDue").and(simulation, "300").and(model, "m:turn-wakes-anybody"),
		},
		{
			name: "turn-wait-counts", oracle: safety,
			what: "a wait for a turn counts as a lost lease: an entry in a long line is taken out as if it had killed processes",
			edits: []edit{
				{"internal/sqlstore/turns.go", "version=version+1, delivery_count=delivery_count-1, lease_until=0, next_at", "version=version+1, lease_until=0, next_at"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ParkedEntryIsGivenBackForAWhile", "TestOtherKeysAndEntriesWithNoneRunBeside"),
		},
		{
			name: "turn-not-asked-by-a-test", oracle: safety,
			what: "an attempt that a user's test makes runs an entry whose turn has not come: the test sees an order that Run never does",
			edits: []edit{
				{"internal/engine/single.go", "	if err := e.behind(ctx, row); err != nil {\n", "	if err := e.behind(ctx, row); err != nil && ctx.Err() != nil {\n"},
				{"internal/engine/single.go", "e.dispatcher.inTurn(t, e.dispatcher.attempts(t, found.Mine, found.asked, 0))", "e.dispatcher.attempts(t, found.Mine, found.asked, 0), []others(nil)"},
			},
			sees: tests("TestAttemptLeavesAnEntryAloneWhoseTurnHasNotCome"),
		},
	}
}

// meeting: where turns, batches and pauses meet each other, and what goes wrong.
func meeting() []mutant {
	return []mutant{
		{
			name: "paused-hanging-counted", oracle: safety,
			what: "what hangs loses its leases also while its type is paused, and is taken out",
			edits: []edit{
				{"internal/engine/reconciler.go", "		if t.slots.paused.Load() {\n			continue\n		}\n		var ids", "		var ids"},
			},
			sees: tests("TestStuckEntryOfAPausedTypeIsNotTakenOut"),
		},
		{
			name: "taken-out-untold", oracle: lateness,
			what: "who is taken out tells nobody: the next of its line waits until its patience ends",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	a.turn = d.turns.place(&a.row) // those behind it may go on\n", ""},
			},
			sees: tests("TestEntryThatIsTakenOutLetsItsLineGoOn").and(model, "m:turn-out-untold"),
		},
		{
			name: "put-back-leased", oracle: lateness,
			what: "who is put back for want of a line stays leased in the queue",
			edits: []edit{
				{"internal/engine/turns.go", "		d.settler.offerAgain(w.attempt, refusedRetry)\n", "		_ = w\n"},
			},
			sees: tests("TestEntryThatIsPutBackForWantOfALineComesSoon"),
		},
		{
			name: "parked-unknown-forgotten", oracle: lateness,
			what: "who is parked, though the answer that says so is lost, is not looked for: the first may have ended before",
			edits: []edit{
				{"internal/engine/turns.go", "		d.putBack(t, wait)\n	}\n", "		d.putBack(t, wait)\n		return err\n	}\n"},
			},
			sees: tests("TestEntryThatWaitsWithoutItsProcessKnowingIsWoken"),
		},
		{
			name: "refused-turns-unpaced", oracle: leak,
			what: "while the store refuses turns, the same entries are claimed and put back as fast as the servers answer",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	return d.putOff(t, spare, others)\n", "	_ = d.putOff(t, spare, others)\n	return nil\n"},
			},
			sees: tests("TestClaimsRestWhileTheStoreRefusesTurns"),
		},
		{
			name: "born-parked-unnoted", oracle: lateness,
			what: "who is parked as it was born, written by nobody since, is not known to be parked, and waits until its patience ends",
			edits: []edit{
				{"internal/sqlstore/turns.go", "noted{p.Turn, p.Version + 1}", "noted{p.Turn, p.Version + min(p.Version, 1)}"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ParkedAsItWasBornIsMadeDue"),
		},
		{
			name: "forgotten-before-woken", oracle: lateness,
			what: "the next entry of a key is told when the notes of those that have ended are gone: it waits for a lock, or for the next try",
			edits: []edit{
				{"internal/engine/turns.go", "			next, err := n.Store.Advance(ctx, businessType, byType.Groups[businessType], !s.PassDead)\n			cancel()\n",
					"			next, err := []processlog.ID(nil), n.Store.Forget(ctx, byType.Groups[businessType])\n			if err == nil {\n				next, err = n.Store.Advance(ctx, businessType, byType.Groups[businessType], !s.PassDead)\n			}\n			cancel()\n"},
			},
			sees: tests("TestNextOfALineWaitsForNoNoteToGo"),
		},
		{
			name: "spare-calls-miscounted", oracle: leak,
			what: "how many calls those that wait leave free is counted when what starts has been sorted out in place: slots are freed twice",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	spare := callsOf(t, claimed) - callsOf(t, first)\n	d.startAttempts(t, first)\n",
					"	d.startAttempts(t, first)\n	spare := callsOf(t, claimed) - callsOf(t, first)\n"},
			},
			sees: tests("TestCallsThatWaitForTheirTurnsFreeTheirSlotsOnce"),
		},
		{
			name: "declared-over-its-handler", oracle: safety,
			what: "a Declare makes the type of a handler in the same process serial, by another key or at all",
			edits: []edit{
				{"internal/engine/turns.go", "	if e.types.named(businessType) != nil {\n", "	if e.types.named(businessType) != nil && s.Key == nil {\n"},
			},
			sees: tests("TestTypeThatHasAHandlerStaysAsThatOneHasIt"),
		},
		{
			name: "pauses-fail-open", oracle: safety,
			what: "a process that could not read what is paused runs it",
			edits: []edit{
				{"internal/engine/pause.go", "slots.paused.Swap(paused[name] || !known)", "slots.paused.Swap(paused[name])"},
			},
			sees: tests("TestNothingRunsBeforeItIsKnownWhatIsPaused"),
		},
		{
			name: "hung-batch-is-full", oracle: lateness,
			what: "a batch that hangs, whose leases have ended, is taken for one that is full, look by look, and what waits for others runs alone",
			edits: []edit{
				{"internal/engine/linger.go", "return held[e.ID] }", "return held[e.ID] && false }"},
			},
			sees: tests("TestBatchThatHangsIsNotTakenForOneThatIsFull"),
		},
		{
			name: "hung-batch-is-overdue", oracle: lateness,
			what: "the reconciler takes a batch that hangs for a backlog, claims it in vain round by round, and what waits for others with it",
			edits: []edit{
				{"internal/engine/reconciler.go", "return held[e.ID] }", "return held[e.ID] && false }"},
			},
			sees: tests("TestBatchThatHangsIsNotTakenForOneThatIsFull"),
		},
		{
			name: "erased-in-another-order", oracle: leak,
			what: "an erasure blanks what was done before it has the case: what whoever holds that records of it meanwhile stays",
			edits: []edit{
				{"internal/sqlstore/erase.go", "	if _, err := execCount(ctx, tx, \"UPDATE \"+s.casesByID()+\" SET error=\"+s.d.empty+\", version", "	if _, err := execCount(ctx, tx, \"UPDATE \"+s.table.quoted(\"_operation\")+\" SET reason=\"+s.d.empty+\" WHERE entry_id=\"+id.String()); err != nil {\n		return err\n	}\n	if _, err := execCount(ctx, tx, \"UPDATE \"+s.casesByID()+\" SET error=\"+s.d.empty+\", version"},
				{"internal/sqlstore/erase.go", "	_, err := execCount(ctx, tx, \"UPDATE \"+s.table.quoted(\"_operation\")+\" SET reason=\"+s.d.empty+\" WHERE entry_id=\"+id.String())\n	return err\n", "	return nil\n"},
			},
			sees: tests("TestErasureLocksInTheOrderOfWhoeverTakesTheCase"),
		},
		{
			name: "erased-but-for-its-turn", oracle: safety,
			what: "an erasure leaves the key of the entry's line, which may be made of its content",
			edits: []edit{
				{"internal/sqlstore/change.go", "			if err := s.leaveLine(ctx, tx, after); err != nil {\n				return err\n			}\n", "			continue\n"},
			},
			sees: tests("TestErasureReachesTheKeyOfALineOnceItsEntryHasEnded", "TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ErasedEntryLeavesItsLineOnceItHasEnded"),
		},
		{
			name: "erased-and-passed", oracle: safety,
			what: "a dead entry that is erased holds its turn no more: those behind it run although nobody has decided about it",
			edits: []edit{
				{"internal/sqlstore/change.go", "after.State.Terminal() && after.State != processlog.Dead {", "after.State.Terminal() {"},
			},
			sees: tests("TestErasureReachesTheKeyOfALineOnceItsEntryHasEnded", "TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ErasedEntryLeavesItsLineOnceItHasEnded"),
		},
		{
			name: "turns-noted-as-they-came", oracle: producers,
			what: "two who note the same turns in two orders deadlock",
			edits: []edit{
				{"internal/sqlstore/turns.go", "	slices.SortFunc(turns, func(a, b noted) int { return compareTurns(a.Turn, b.Turn) })\n", ""},
			},
			sees: tests("TestTurnsAreWrittenInOneOrder"),
		},
		{
			name: "turns-forgotten-as-they-came", oracle: producers,
			what: "turns are deleted in the order in which they were read, which is no order",
			edits: []edit{
				{"internal/sqlstore/turns.go", "	slices.SortFunc(gone, compareTurns)\n", ""},
			},
			sees: tests("TestTurnsAreWrittenInOneOrder"),
		},
	}
}
