package main

// managing: what services and people do, and the purge.
func managing() []mutant {
	return []mutant{
		{
			name: "changes-end-later-attempts", oracle: safety,
			what: "a requeue whose answer comes late ends the attempt that it has made possible: a false failure",
			edits: []edit{
				{"internal/engine/holdings.go", "a.row.ID == before.ID && a.row.Version <= before.Version", "a.row.ID == before.ID"},
			},
			sees: tests("TestChangeEndsOnlyTheAttemptsThatItHasOvertaken"),
		},
		{
			name: "requeue-keeps-epoch", oracle: safety,
			what: "a person's requeue starts no new generation: a late success of the one before ends it",
			edits: []edit{
				{"processlog/change.go", "		after.ProcessCount, after.CompensateCount = 0, 0\n		after.Epoch++\n", "		after.ProcessCount, after.CompensateCount = 0, 0\n"},
			},
			sees: tests("TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration").and(simulation, "300").and(model, "m:same-epoch-again"),
		},
		{
			name: "cancel-completes", oracle: safety,
			what: "Cancel tells the database to complete: what nobody wanted any more is told as done",
			edits: []edit{
				{"manage.go", "return cancelled(c.change(ctx, processlog.Change{Ref: ref, Action: ActionCancel}))", "return cancelled(c.change(ctx, processlog.Change{Ref: ref, Action: ActionComplete}))"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "requeue-keeps-counts", oracle: safety,
			what: "a requeued entry has no attempts left",
			edits: []edit{
				{"processlog/change.go", "		after.ProcessCount, after.CompensateCount = 0, 0\n", ""},
			},
			sees: tests("TestActionsFollowTheContract").and(simulation, "300"),
		},
		{
			name: "cancel-keeps-version", oracle: safety,
			what: "an action of a person leaves the version as it is: the attempt that runs keeps its fence",
			edits: []edit{
				{"processlog/change.go", "	after.Version++\n", ""},
			},
			sees: tests("TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration", "TestActionsFollowTheContract"),
		},
		{
			name: "undone-is-cancelled", oracle: safety,
			what: "a service cancels or completes a dead entry whose compensation has begun: half undone, and nobody is asked",
			edits: []edit{
				{"processlog/change.go", "	case before.State == Dead && before.CompensateCount > 0 && !ch.persons():\n", "	case before.State == Dead && before.CompensateCount < 0:\n"},
			},
			sees: tests("TestDeadEntryIsEndedByAServiceUnlessItsCompensationHasBegun").and(simulation, "300").and(model, "m:ends-the-undone"),
		},
		{
			name: "crashed-undo-uncounted", oracle: safety,
			what: "a compensation that killed its processes leaves no trace in the row: a service may cancel what is half undone",
			edits: []edit{
				{"internal/engine/outcome.go", "		o.CompensateCount++ // it has begun, and nothing else in the row tells: see processlog.Change\n", ""},
			},
			sees: tests("TestCrashedEntryIsTakenOutUncounted", "TestCompensationThatCrashedHasBegun").and(model, "m:undo-crash-uncounted"),
		},
		{
			name: "counted-beside-its-transaction", oracle: safety,
			what: "what a handler counts in its transaction is read beside it: on SQLite it waits for itself, elsewhere it misses what it has written",
			edits: []edit{
				{"internal/sqlstore/rows.go", "	if tx == nil {\n		tx = s.pool()\n	}\n	return tx.QueryContext(ctx, s.ended(ctx, query))\n", "	return s.pool().QueryContext(ctx, s.ended(ctx, query))\n"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CountsAreRightUpToTheirBound"),
		},
		{
			name: "already-succeeded-is-nil", oracle: duplicates,
			what: "to complete what has succeeded is no error: a consumer that reads a message twice does the work twice",
			edits: []edit{
				{"processlog/change.go", "	case ch.Action == ActionCancel && before.State == Cancelled:\n", "	case before.State == rule.to && rule.to.Terminal() && !ch.Audited():\n"},
			},
			sees: tests("TestWorkThatHasSucceededIsNotDoneAgain"),
		},
		{
			name: "cancelled-again-and-written", oracle: safety,
			what: "the cancellation of what is cancelled writes the row once more",
			edits: []edit{
				{"processlog/change.go", "	case ch.Action == ActionCancel && before.State == Cancelled:\n		return before, nil\n", "	case ch.Action == ActionCancel && before.State == Cancelled:\n"},
			},
			sees: tests("TestCancelledEntryCanBeCancelledAgain").and(simulation, "1000"),
		},
		{
			name: "change-of-any-type", oracle: safety,
			what: "what a service cancels or completes as one type's is done to another type's entry",
			edits: []edit{
				{"processlog/change.go", "	if ch.BusinessType != \"\" && ch.BusinessType != before.BusinessType {\n", "	if ch.BusinessType != \"\" && before.BusinessType == \"\" {\n"},
			},
			sees: tests("TestChangeThroughATypeRefusesEntriesOfAnother"),
		},
		{
			name: "cancellation-untold", oracle: duplicates,
			what: "a running handler is not told that its entry was cancelled",
			edits: []edit{
				{"internal/engine/engine.go", "		e.holdings.cancel(&before, fmt.Errorf(\"%w: %s\", processlog.ErrCancelled, ch.Action))\n", "		_ = fmt.Errorf\n"},
			},
			sees: tests("TestCancelledEntryTakesNoOutcomeOfTheAttemptThatRan"),
		},
		{
			name: "cancelled-before-commit", oracle: safety,
			what: "a handler is told of a cancellation that is rolled back afterwards",
			edits: []edit{
				{"manage.go", "			if outcome == txwatch.Committed {\n", "			if outcome != txwatch.Unknown {\n"},
			},
			sees: tests("TestCancellationRolledBackDisturbsNobody"),
		},
		{
			name: "reschedule-not-announced", oracle: lateness,
			what: "an entry moved to an earlier moment keeps its place in the queue",
			edits: []edit{
				{"internal/engine/announcer.go", "n.handOver(&n.moved, ", "n.handOver(&n.fresh, "},
			},
			sees: tests("TestEntryMovedForwardDoesNotWaitForTheReconciler"),
		},
		{
			name: "audit-apart", oracle: safety,
			what: "what a person did is not kept",
			edits: []edit{
				{"internal/sqlstore/change.go", "	if ch.Audited() { // first: whoever swallows its error and commits has changed nothing\n", "	if ch.Audited() && ch.Actor == \"\" {\n"},
			},
			sees: tests("TestWhatPeopleDoIsKeptWithTheChange"),
		},
		{
			name: "audit-swallowed", oracle: safety,
			what: "what a person does in the caller's transaction is done, and commits, although its record could not be written",
			edits: []edit{
				{"internal/sqlstore/change.go", "	if ch.Audited() { // first: whoever swallows its error and commits has changed nothing\n		if err := s.audit(ctx, tx, ch, rows); err != nil {\n			return err\n		}\n	}\n	err := s.rewrite(ctx, tx, ch, rows)\n",
					"	err := s.rewrite(ctx, tx, ch, rows)\n	if err == nil && ch.Audited() {\n		err = s.audit(ctx, tx, ch, rows)\n	}\n"},
			},
			sees: tests("TestSettlingByHandThatCannotBeKeptChangesNothing"),
		},
		{
			name: "requeued-unseen", oracle: safety,
			what: "what has moved on since a person looked at it is requeued with the rest: work that somebody has done or cancelled runs again",
			edits: []edit{
				{"processlog/change.go", "	if before.Version != seen.Number || before.IdempotentID != seen.IdempotentID {\n", "	if before.IdempotentID != seen.IdempotentID {\n"},
			},
			sees: tests("TestEntryThatChangedSinceItWasSeenIsNotRequeued", "TestMemoryStoreKeepsEveryPromise/RequeueAllTakesWhatStandsAsItWasSeen").and(simulation, "1000"),
		},
		{
			name: "erased-runs-again", oracle: safety,
			what: "an erased entry is requeued: its handler is given nothing",
			edits: []edit{
				{"processlog/change.go", "	case ch.Action == ActionRequeue && before.Erased:\n", "	case ch.Action == ActionRequeue && before.Erased && before.State == Pending:\n"},
			},
			sees: tests("TestErasedEntryHoldsNothingPersonalAndStaysKnown").and(simulation, "1000"),
		},
		{
			name: "erased-but-for-its-records", oracle: safety,
			what: "an erasure leaves what the audit table has copied of the entry",
			edits: []edit{
				{"internal/sqlstore/erase.go", "		if blank == r.AuditRecord || r.Action == processlog.ActionErase {", "		if blank == r.AuditRecord || r.Action != processlog.ActionErase {"},
			},
			sees: tests("TestErasedEntryHoldsNothingPersonalAndStaysKnown"),
		},
		{
			name: "erased-in-its-epoch", oracle: lateness,
			what: "an erasure begins no epoch, and is taken for a success that was lost and written over: everything stops",
			edits: []edit{
				{"processlog/change.go", "	if ch.Action == ActionErase { // ids, state and times stay: what happened, and that it must not happen again\n		after.Epoch++\n", "	if ch.Action == ActionErase { // ids, state and times stay: what happened, and that it must not happen again\n"},
			},
			sees: tests("TestNothingIsTakenForALossThatIsNone").and(simulation, "1000"),
		},
		{
			name: "erased-guards-no-more", oracle: safety,
			what: "an event that comes again after its entry was erased is refused for other content: its service cannot go on",
			edits: []edit{
				{"internal/sqlstore/insert.go", "ContentMatches: row.Erased || bytes", "ContentMatches: bytes"},
			},
			sees: tests("TestErasedEntryHoldsNothingPersonalAndStaysKnown"),
		},
		{
			name: "erased-in-two", oracle: safety,
			what: "what the audit table has copied is blanked outside the erasure's transaction: of an entry whose erasure never happened it is gone",
			edits: []edit{
				{"internal/sqlstore/erase.go", "s.eraseHistory(ctx, tx, row.before.ID)", "s.eraseHistory(ctx, s.pool(), row.before.ID)"},
			},
			sees: selection{crash: "audit-written|audit-written,staffed"},
		},
		{
			name: "purge-takes-what-moved-on", oracle: safety,
			what: "a purge deletes rows that a person has set in motion since it found them",
			edits: []edit{
				{"internal/sqlstore/purge.go", "\"state+0=%d AND %s\", p.group.state", "\"state+0<>%d+100 AND %s<>-1\", p.group.state"},
			},
			sees: tests("TestPurgeSparesWhatHasMovedOnSinceItWasFound"),
		},
		{
			name: "purge-locks-the-row-first", oracle: lateness,
			what: "a purge looks at the rows alone, and then waits for whoever has recorded one of their ids again",
			edits: []edit{
				{"internal/sqlstore/purge.go", "p.s.table.quoted(\"\"), p.s.d.by(\"uk_idempotent_id\"), strings.Join(literals, \",\")", "p.s.table.quoted(\"\"), p.s.d.idIndex, strings.Join(literals, \",\")+\") AND id IN (\"+idList(ids)"},
			},
			sees: tests("TestPurgePassesByAnEntryThatAnOpenTransactionHolds"),
		},
		{
			name: "change-locks-the-key", oracle: lateness,
			what: "a change by idempotent id waits for whoever has recorded the id again",
			edits: []edit{
				{"internal/sqlstore/rows.go", "		if lock != \"\" {\n", "		if lock == \"never\" {\n"},
			},
			sees: tests("TestEntryIsChangedByItsKeyWhileThatIsRecordedAgain"),
		},
		{
			name: "refused-entry-keeps-the-others", oracle: lateness,
			what: "an entry that a foreign key refers to keeps all others of its type from being purged",
			edits: []edit{
				{"internal/sqlstore/purge.go", "refused, left, err := writeApart(p.s, entries, p.try(ctx))", "refused, left, err := []refusal[ended]{}, []ended{}, p.try(ctx)(entries)"},
			},
			sees: tests("TestPurgeTakesTheRestOfEntriesThatTheDatabaseRefusesToDelete"),
		},
		{
			name: "refused-entry-is-tried-for-ever", oracle: lateness,
			what: "an entry that the database refuses to delete costs failing statements with every purge",
			edits: []edit{
				{"internal/sqlstore/purge.go", "after, looked, err := known.passed, 0,", "after, looked, err := ended{}, 0,"},
			},
			sees: tests("TestPurgeTakesTheRestOfEntriesThatTheDatabaseRefusesToDelete"),
		},
		{
			name: "outcomes-wait-their-turn", oracle: lateness,
			what: "on SQLite outcomes stand in the line of those who want to write, behind all handlers that begin",
			edits: []edit{
				{"internal/sqlstore/writer.go", "	if len(w.urgent) > 0 && (!w.before || len(w.others) == 0) {", "	if len(w.urgent) > 0 && len(w.others) == 0 {"},
			},
			sees: tests("TestTurnsComeInOrderAndOutcomesGoFirstButNotTwiceInARow"),
		},
		{
			name: "turn-is-waited-for-for-ever", oracle: lateness,
			what: "on SQLite a handler that begins a transaction beside its own waits for itself",
			edits: []edit{
				{"internal/sqlstore/writer.go", "time.NewTimer(patience)", "time.NewTimer(patience + 1000*time.Hour)"},
			},
			sees: tests("TestNobodyWaitsForATurnLongerThanForALock"),
		},
		{
			name: "purge-takes-what-waits", oracle: safety,
			what: "dead entries are purged while their cases wait for somebody, who never hears of them",
			edits: []edit{
				{"keep.go", "return s == Dead })", "return s == Dead && c.closed() })"},
			},
			sees: tests("TestPurgeTakesNoDeadEntryWhileItWaitsForSomebody"),
		},
		{
			name: "purge-takes-young", oracle: safety,
			what: "a purge deletes entries that have only just ended: their idempotent ids guard no longer",
			edits: []edit{
				{"internal/sqlstore/purge.go", "old: fmt.Sprintf(\"next_at<%s-%d\",", "old: fmt.Sprintf(\"next_at<%s+0*%d\","},
			},
			sees: tests("TestPurgeDeletesOnlyWhatIsOldAndTerminal").and(crash, "purge-part,old"),
		},
		{
			name: "cancelled-counts", oracle: safety,
			what: "a handler that was told to stop for a cancellation which a savepoint undid has failed",
			edits: []edit{
				{"internal/engine/outcome.go", " || errors.Is(err, processlog.ErrCancelled)\n", "\n"},
			},
			sees: tests("TestOutcomeFollowsTheContract/cancelled_by_somebody", "TestCancellationThatASavepointUndoesCostsNothing"),
		},
		{
			name: "handler-ends-its-own", oracle: safety,
			what: "a transactional handler that ends its own entry in its transaction is let, and its success dropped",
			edits: []edit{
				{"manage.go", "scopedOf(tx).refuseOwn(ch.Ref))", "scopedOf(nil).refuseOwn(ch.Ref))"},
			},
			sees: tests("TestTransactionalHandlerDoesNotEndItsOwnEntry"),
		},
		{
			name: "handler-ends-its-own-by-a-tracer", oracle: safety,
			what: "the same through a tracer's handle on its transaction",
			edits: []edit{
				{"connector.go", "cmp.Or(s.joins(ctx, q.c), s.refuseOwn(q.ref))", "s.joins(ctx, q.c)"},
			},
			sees: tests("TestTransactionalHandlerDoesNotEndItsOwnEntry"),
		},
		{
			name: "reference-alike", oracle: safety,
			what: "an id with a space behind it names the entry of the id without",
			edits: []edit{
				{"internal/sqlstore/rows.go", "byKey && rows[0].IdempotentID != key", "byKey && strings.TrimRight(string(rows[0].IdempotentID), \" \") != strings.TrimRight(string(key), \" \")"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ReferenceThatOnlyLooksAlikeIsNotFound"),
		},
	}
}
