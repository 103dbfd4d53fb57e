package main

// settling: from a handler's verdict to the row.
func settling() []mutant {
	return []mutant{
		{
			name: "settle-without-fence", oracle: safety,
			what: "an outcome is written whoever holds the entry now",
			edits: []edit{
				{"internal/sqlstore/settle.go", "return \"version=\" + v.number(func(o *processlog.Outcome) int64 { return int64(o.Version) }) + \" AND state", "return \"state"},
				{"compensatortest/memory/settle.go", "return v.entry.Version == outcome.Version && !v.entry.State.Terminal()", "return !v.entry.State.Terminal()"},
			},
			sees: tests("TestStaleFailureIsDropped", "TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration").and(simulation, "300").and(model, "m:failure-unfenced").and(chaos, "60s"),
		},
		{
			name: "success-not-absorbed", oracle: duplicates,
			what: "a success that comes after its lease has ended is dropped, although the work is done",
			edits: []edit{
				{"internal/engine/outcome.go", "o.To, o.EndedBy, o.Absorb = processlog.Succeeded, processlog.EndedByHandler, true\n", "o.To, o.EndedBy, o.Absorb = processlog.Succeeded, processlog.EndedByHandler, row.State == processlog.Compensating\n"},
			},
			sees: tests("TestStaleSuccessIsAbsorbedWhileTheEntryIsOnItsWay").and(simulation, "300"),
		},
		{
			name: "success-without-epoch", oracle: safety,
			what: "a success of the generation before counts for the one a person has started",
			edits: []edit{
				{"internal/sqlstore/settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1)\", g.epoch)", "return \"state+0 IN (0,-1)\""},
				{"compensatortest/memory/settle.go", "return v.entry.Epoch == outcome.Epoch && (", "return ("},
			},
			sees: tests("TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessIsAbsorbedWithinItsEpochOnly").and(model, "m:epoch-ignored"),
		},
		{
			name: "outcome-of-another-entry", oracle: safety,
			what: "an outcome is written to whatever row has the id of its entry: in a database that has gone back, to another entry",
			edits: []edit{
				{"internal/sqlstore/settle.go", "return \" AND \" + s.d.keyed(keys)", "return \"\""},
				{"compensatortest/memory/settle.go", "return v.entry.IdempotentID == outcome.IdempotentID", "return true"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/OutcomeNeverEndsAnEntryThatGotItsId"),
		},
		{
			name: "success-absorbed-while-compensating", oracle: safety,
			what: "a late success ends an entry whose compensation is under way: done and undone",
			edits: []edit{
				{"internal/sqlstore/settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1)\", g.epoch)", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1,-3)\", g.epoch)"},
				{"compensatortest/memory/settle.go", "v.entry.State == processlog.Retrying)", "v.entry.State == processlog.Retrying || v.entry.State == processlog.Compensating)"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessIsNotAbsorbedWhileCompensating").and(model, "m:absorb-compensating"),
		},
		{
			name: "settle-forgets-token", oracle: safety,
			what: "a settle that is repeated because its answer was lost takes what it wrote itself for another's",
			edits: []edit{
				{"internal/sqlstore/settle.go", "processlog.Settled{Applied: row.Token == token, State: row.State}", "processlog.Settled{State: row.State}"},
				{"compensatortest/memory/settle.go", "		if before.token == token {\n", "		if false {\n"},
			},
			sees: tests("TestOutcomeWhoseReplyWasLostIsCountedOnce").and(model, "m:settle-blind"),
		},
		{
			name: "settle-not-repeated", oracle: safety,
			what: "an outcome that the database did not take at once is given up",
			edits: []edit{
				{"internal/engine/settler.go", "if !s.pause(delay(settleBackoff, failures)) {", "if true || !s.pause(delay(settleBackoff, failures)) {"},
			},
			sees: tests("TestOutcomeWhoseReplyWasLostIsCountedOnce").and(simulation, "300"),
		},
		{
			name: "settle-waits-past-the-stop", oracle: duplicates,
			what: "an outcome waits longer for its next try than a stop waits for it: the database is back, and the entry runs again all the same",
			edits: []edit{
				{"internal/engine/settler.go", "Exponential(200*time.Millisecond, stopPatience/2)", "Exponential(200*time.Millisecond, 3*stopPatience)"},
			},
			sees: tests("TestStopStoresOutcomesInADatabaseThatIsBack"),
		},
		{
			name: "exhausted-early", oracle: safety,
			what: "an entry is exhausted one failure too soon",
			edits: []edit{
				{"internal/engine/outcome.go", "case o.ProcessCount >= t.maxProcessCount(row):", "case o.ProcessCount+1 >= t.maxProcessCount(row):"},
			},
			sees: tests("TestSuccessIsNeverCompensated", "TestEntrysOwnMaxProcessCountIsItsBudget").and(simulation, "300").and(model, "m:exhaust-early"),
		},
		{
			name: "exhausted-late", oracle: safety,
			what: "an entry is exhausted one failure too late",
			edits: []edit{
				{"internal/engine/outcome.go", "case o.ProcessCount >= t.maxProcessCount(row):", "case o.ProcessCount > t.maxProcessCount(row):"},
			},
			sees: tests("TestExhaustedEntryIsCompensated", "TestEntrysOwnMaxProcessCountIsItsBudget").and(simulation, "300"),
		},
		{
			name: "permanent-told-as-exhausted", oracle: safety,
			what: "an entry whose handler gave it up for good is told as one whose attempts were used up",
			edits: []edit{
				{"internal/engine/outcome.go", "return t.giveUp(o, processlog.EndedByPermanent)", "return t.giveUp(o, processlog.EndedByExhausted)"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "count-in-sql", oracle: safety,
			what: "the failure is counted in SQL before the state is computed from the count: exhausted one early",
			edits: []edit{
				{"internal/sqlstore/settle.go", "	return \"state=\" + v.number(func(o *processlog.Outcome) int64 { return int64(o.To) }) + \", version=version+1\" + counts +\n", `	state := v.number(func(o *processlog.Outcome) int64 { return int64(o.To) })
	if !g.absorb {
		counts = counts[2:] + ", "
		state = "IF(" + state + "=-1 AND max_process_count>0 AND process_count+1>=max_process_count,-2," + state + ")"
	}
	return counts + "state=" + state + ", version=version+1" +
`},
			},
			sees: tests("TestEntrysOwnMaxProcessCountIsItsBudget"),
		},
		{
			name: "deliveries-kept", oracle: safety,
			what: "an outcome does not end the count of deliveries: failures look like crashes",
			edits: []edit{
				{"internal/sqlstore/settle.go", "\", delivery_count=0, lease_until=0, ended_by=\"", "\", lease_until=0, ended_by=\""},
				{"compensatortest/memory/row.go", "	next.entry.DeliveryCount, next.leaseUntil = 0, 0\n	next.nextAt = now\n", "	next.leaseUntil = 0\n	next.nextAt = now\n"},
			},
			sees: tests("TestFailedEntryIsRetriedUntilItSucceeds").and(simulation, "300"),
		},
		{
			name: "snooze-counts", oracle: safety,
			what: "asking to be called later spends an attempt",
			edits: []edit{
				{"internal/engine/outcome.go", "	case v.kind == snooze:\n", "	case v.kind == snooze:\n		o.ProcessCount, o.To = o.ProcessCount+1, processlog.Retrying\n"},
			},
			sees: tests("TestVerdictsOfAHandlerAreObeyed").and(simulation, "300"),
		},
		{
			name: "server-fault-counts", oracle: safety,
			what: "a lock that was not to be had, or a full disk, spends an attempt of a transactional handler",
			edits: []edit{
				{"internal/engine/transactional.go", "a.ctx.Err() == nil && blame != BlameHandler {", "a == nil && blame != BlameHandler {"},
			},
			sees: tests("TestServersConditionSpendsNoAttempt").and(simulation, "600"),
		},
		{
			name: "whole-server-counts", oracle: safety,
			what: "an entry that meets a full disk, or a server out of connections, for longer than it has attempts is exhausted",
			edits: []edit{
				{"internal/engine/outcome.go", "	if whole {\n", "	if false {\n"},
			},
			sees: tests("TestConditionOfTheWholeServerNeverCounts", "TestPreparedStatementsUsedUpByANeighbourSpendNoAttempt"),
		},
		{
			name: "neighbours-prepared-statements-count", oracle: safety,
			what: "prepared statements that a neighbour has used up are taken for a fault of the handler's statement",
			edits: []edit{
				{"internal/mysqlerr/conditions.go", "	1461: {Server, \"max", "	1461: {Statement, \"max"},
			},
			sees: tests("TestPreparedStatementsUsedUpByANeighbourSpendNoAttempt"),
		},
		{
			name: "statement-time-counts", oracle: safety,
			what: "a statement that the server has ended for its time, as it waited for a row, spends an attempt",
			edits: []edit{
				{"internal/mysqlerr/conditions.go", "	1969: {Doubtful, ", "	1969: {Statement, "},
				{"internal/mysqlerr/conditions.go", "	3024: {Doubtful, ", "	3024: {Statement, "},
			},
			sees: tests("TestStatementEndedForItsTimeSpendsNoAttempt"),
		},
		{
			name: "server-fault-never-counts", oracle: safety,
			what: "an entry that always meets a lock is tried for ever, and no person hears of it",
			edits: []edit{
				{"internal/engine/outcome.go", "		if times <= t.budget(row) {\n", "		if true {\n"},
			},
			sees: tests("TestOutcomeFollowsTheContract", "TestEntryThatAlwaysMeetsTheServersConditionReachesAPerson").and(simulation, "600"),
		},
		{
			name: "refused-commit-never-counts", oracle: safety,
			what: "an entry whose COMMIT is always refused is tried for ever, and no person hears of it",
			edits: []edit{
				{"internal/engine/transactional.go", "	default:\n		return ending{err: d.refused(fmt", "	default:\n		return ending{err: Unavailable(fmt"},
			},
			sees: tests("TestCommitThatIsAlwaysRefusedReachesAPerson"),
		},
		{
			name: "server-faults-forgotten", oracle: safety,
			what: "how often in a row a handler has met the database's condition is not kept",
			edits: []edit{
				{"internal/engine/outcome.go", "	return min(n, processlog.MaxCount)\n", "	return 0\n"},
			},
			sees: tests("TestOutcomeFollowsTheContract", "TestEntryThatAlwaysMeetsTheServersConditionReachesAPerson").and(simulation, "600"),
		},
		{
			name: "wait-never-counts", oracle: safety,
			what: "what a handler waits for beyond MaxWait is waited for without end, and no person hears of it",
			edits: []edit{
				{"internal/engine/outcome.go", "	case t.waitedOut(row, v):\n", "	case false:\n"},
			},
			sees: tests("TestHandlersWaitsAreFailuresOnceMaxWaitIsOver", "TestWaitsCountOnceMaxWaitIsOver").and(simulation, "1000"),
		},
		{
			name: "compensation-waits-for-free", oracle: safety,
			what: "a compensation that waits beyond MaxWait waits without end, and no person hears of it",
			edits: []edit{
				{"internal/engine/outcome.go", "return waits && t.hadItsTime(row)", "return waits && t.hadItsTime(row) && row.State != processlog.Compensating"},
			},
			sees: tests("TestHandlersWaitsAreFailuresOnceMaxWaitIsOver", "TestWaitsCountOnceMaxWaitIsOver"),
		},
		{
			name: "wait-counts-at-once", oracle: safety,
			what: "a type with a MaxWait has its entries' waits counted from the first on",
			edits: []edit{
				{"internal/engine/outcome.go", "t.MaxWait > 0 && row.Age() >= t.MaxWait", "t.MaxWait > 0"},
			},
			sees: tests("TestHandlersWaitsAreFailuresOnceMaxWaitIsOver", "TestWaitsCountOnceMaxWaitIsOver").and(simulation, "1000"),
		},
		{
			name: "max-wait-without-a-bound", oracle: safety,
			what: "a type without MaxWait has its entries' waits counted",
			edits: []edit{
				{"internal/engine/outcome.go", "t.MaxWait > 0 && row.Age() >= t.MaxWait", "row.Age() >= t.MaxWait"},
			},
			sees: tests("TestWaitsCountOnceMaxWaitIsOver", "TestVerdictsOfAHandlerAreObeyed").and(simulation, "300"),
		},
		{
			name: "batch-out-of-patience", oracle: safety,
			what: "an entry that comes after a batch fails, unrun, when the batch takes longer than its MaxWait",
			edits: []edit{
				{"internal/engine/dispatcher.go", "usererr.Of(Free(err))", "usererr.Of(err)"},
			},
			sees: tests("TestFollowUpRunsOnceAllOfItsBatchHaveEnded").and(simulation, "1000"),
		},
		{
			name: "wait-until-then-counts", oracle: safety,
			what: "a service that is down and says until when spends an attempt",
			edits: []edit{
				{"internal/engine/outcome.go", "within != nil && within.kind == unavailable {", "within != nil && false && within.kind == unavailable {"},
			},
			sees: tests("TestOutcomeFollowsTheContract", "TestWaitsCountOnceMaxWaitIsOver"),
		},
		{
			name: "breaker-outlasts-max-wait", oracle: lateness,
			what: "while a breaker is open entries whose MaxWait is over come to their end one after the other, an attempt a pause: a thousand take days",
			edits: []edit{
				{"internal/engine/breaker.go", "	if t == down && slices.ContainsFunc(", "	if false && slices.ContainsFunc("},
			},
			sees: tests("TestEntryThatHasHadItsTimeOpensNoBreaker", "TestOpenBreakerHoldsUpNoEntryThatHasHadItsTime"),
		},
		{
			name: "database-blamed-for-a-wait", oracle: safety,
			what: "the warning about a wait that counts says that the database is in a condition",
			edits: []edit{
				{"internal/engine/trouble.go", "	case kind == serverFault && counts:\n", "	case (kind == serverFault || kind == unavailable) && counts:\n"},
			},
			sees: tests("TestWaitsCountOnceMaxWaitIsOver"),
		},
		{
			name: "breaker-deaf-to-until", oracle: duplicates,
			what: "a service that is down and says until when never opens a breaker: a thousand entries ask it a thousand times",
			edits: []edit{
				{"internal/engine/breaker.go", "	v := judged(err)\n", "	v := &plain\n	errors.As(err, &v)\n"},
			},
			sees: tests("TestWhatACallTellsOfWhatItNeeds"),
		},
		{
			name: "busy-service-uses-attempts-up", oracle: safety,
			what: "an answer over HTTP that the service is busy or down spends an attempt: entries are compensated for it",
			edits: []edit{
				{"httpcall/httpcall.go", "			return compensator.RetryAfter(min(wait, longestWait), compensator.Unavailable(err))\n", "			return compensator.RetryAfter(min(wait, longestWait), err)\n"},
			},
			sees: tests("TestAnswerBecomesAnOutcome"),
		},
		{
			name: "call-without-its-key", oracle: duplicates,
			what: "a call over HTTP goes without the entry's key: one that is made again is done again",
			edits: []edit{
				{"httpcall/httpcall.go", "		request.Header.Set(KeyHeader, key)\n", ""},
			},
			sees: tests("TestKeyGoesWithTheCall", "TestJSONIsPostedAndItsAnswerRead"),
		},
		{
			name: "redirect-taken-for-an-answer", oracle: safety,
			what: "a payment that is redirected becomes a GET of a page, whose 200 ends the entry: nothing was paid",
			edits: []edit{
				{"httpcall/httpcall.go", "	if cmp.Or(next.Method, http.MethodGet) != cmp.Or(via[0].Method, http.MethodGet) {", "	if false {"},
			},
			sees: tests("TestRedirectThatWouldMakeAGetOfACallIsNotFollowed"),
		},
		{
			name: "connection-read-as-a-body", oracle: leak,
			what: "of a 101 what follows is read: a call hangs until the service hangs up, past every timeout, and with it its slot",
			edits: []edit{
				{"httpcall/httpcall.go", "answer.Body != nil && answer.StatusCode/100 != 1 {", "answer.Body != nil {"},
			},
			sees: tests("TestAnswerThatSwitchesProtocolsIsNoAnswer"),
		},
		{
			name: "url-told-in-errors", oracle: safety,
			what: "an error of a call over HTTP, which the log keeps and pages show, says the URL with the secrets in its query",
			edits: []edit{
				{"httpcall/httpcall.go", "		err = about.Err // it names", "		_ = about.Err // it names"},
			},
			sees: tests("TestWhoIsNotThereIsUnavailable"),
		},
		{
			name: "snooze-cut", oracle: safety,
			what: "a handler that asks to be called in 90 days is called in 30: early",
			edits: []edit{
				{"internal/engine/outcome.go", "min(max(d, minBackoff), processlog.MaxDelay)", "min(max(d, minBackoff), 30*24*time.Hour)"},
			},
			sees: tests("TestOutcomeFollowsTheContract", "TestWaitThatAHandlerAsksForIsStoredAsGiven").and(simulation, "300"),
		},
		{
			name: "snooze-hot-loop", oracle: duplicates,
			what: "a handler that asks to be called in no time is called as fast as it can return",
			edits: []edit{
				{"internal/engine/outcome.go", "	if v.after > 0 {\n", "	if v.after > 0 || v.kind == snooze {\n"},
			},
			sees: tests("TestSnoozeOfNothingFollowsTheTypesSchedule"),
		},
		{
			name: "queue-before-database", oracle: safety,
			what: "the queue forgets an entry before the database has its outcome; a process that dies in between leaves it to the reconciler alone",
			edits: []edit{
				{"internal/engine/settler.go", "	batch, results, asked := s.writeOutcomes(token, batch)\n", "	for _, o := range batch {\n		if o.a.token != 0 {\n			s.announcer.ackBatch([]ack{{o.a.t.Name, processlog.QueueOutcome{ID: o.outcome.ID, Token: o.a.token, Remove: o.outcome.To.Terminal(), In: processlog.DueIn(o.outcome.After)}}})\n		}\n	}\n	batch, results, asked := s.writeOutcomes(token, batch)\n"},
			},
			sees:     tests("TestQueueKeepsAnEntryUntilTheDatabaseHasItsOutcome").and(model, "m:queue-first"),
			survives: selection{crash: "outcomes-stored"},
		},
		{
			name: "settle-by-due-index", oracle: producers,
			what: "a settle finds its rows through the index of what is due: it waits for entries that open transactions hold, and holds its own meanwhile",
			edits: []edit{
				{"internal/sqlstore/settle.go", "return \"UPDATE \" + s.byID() + \" SET \" + g.set(s, token, v)", "return \"UPDATE \" + s.table.quoted(\"\") + s.d.dueIndex + \" SET \" + g.set(s, token, v)"},
				{"internal/sqlstore/settle.go", "return fmt.Sprintf(\"epoch=%d AND state+0 IN (0,-1)\", g.epoch)", "return fmt.Sprintf(\"epoch=%d AND state IN (0,-1)\", g.epoch)"},
			},
			sees: tests("TestOutcomesOfFreeRowsDoNotWaitForALockedOne"),
		},
		{
			name: "locked-outcomes-block", oracle: lateness,
			what: "an outcome whose row is locked is offered again among the others, which wait with it",
			edits: []edit{
				{"internal/engine/settler.go", "	s.slow.Add(done)\n", "	s.lane.Add(done)\n"},
			},
			sees: tests("TestOutcomeOfALockedRowWaitsApartFromTheOthers"),
		},
		{
			name: "former-primary-kept", oracle: lateness,
			what: "the library's own connections stay on a server that has become read-only",
			edits: []edit{
				{"internal/sqlstore/mysql.go", "	if mysqlerr.IsReadOnly(err) {\n		s.own", "	if false {\n		s.own"},
			},
			sees: tests("TestEntriesRunOnTheNewPrimaryAfterASwitchover/connector"),
		},
		{
			name: "former-primary-kept-by-users", oracle: lateness,
			what: "a pool on Connector stays on a server that has become read-only",
			edits: []edit{
				{"internal/txwatch/watch.go", "func (t *txWatch) failed(err error) {\n	t.discard = t.discard || unfit(err)\n", "func (t *txWatch) failed(err error) {\n"},
			},
			sees: tests("TestEntriesRunOnTheNewPrimaryAfterASwitchover/connector"),
		},
		{
			name: "remedy-untold", oracle: lateness,
			what: "where a plain pool stays on a server that has become read-only nothing says what would help",
			edits: []edit{
				{"internal/sqlstore/mysql.go", "	if s.own != nil || !mysqlerr.IsReadOnly(err) ||", "	if err != nil || !mysqlerr.IsReadOnly(err) ||"},
			},
			sees: tests("TestPoolThatStaysOnAFormerPrimarySaysWhatWouldHelp"),
		},
		{
			name: "dead-loans-returned", oracle: lateness,
			what: "a borrowed connection that turned out dead goes back into the user's pool, and is lent again",
			edits: []edit{
				{"internal/txwatch/watch.go", "errors.Is(err, driver.ErrBadConn) }", "errors.Is(err, driver.ErrBadConn) && false }"},
			},
			sees: tests("TestLentConnectionsThatTurnOutDeadDoNotComeBack"),
		},
		{
			name: "outcomes-of-any-length", oracle: duplicates,
			what: "a hundred outcomes with long errors go in one statement that the client refuses to send, for ever",
			edits: []edit{
				{"internal/sqlstore/settle.go", "maxSettleBytes = 128 << 10", "maxSettleBytes = 1 << 40"},
			},
			sees: tests("TestOutcomesWithLongErrorsFitThePacketsOfTheirClient", "TestOutcomesHoldWhatAPacketTakes"),
		},
		{
			name: "silence-is-no-lock", oracle: lateness,
			what: "under a readTimeout shorter than the wait for a lock all outcomes of a batch wait for one locked row",
			edits: []edit{
				{"internal/sqlstore/store.go", "		return took > lockedSilence\n", "		return took < 0\n"},
			},
			sees: tests("TestOutcomesPassALockedRowByUnderAShortReadTimeout"),
		},
		{
			name: "ended-wait-is-no-lock", oracle: lateness,
			what: "where the server ends a statement that waits for a row, all outcomes of a batch wait for one locked row",
			edits: []edit{
				{"internal/sqlstore/store.go", "	case faultBusy, faultEnded:\n", "	case faultBusy:\n"},
			},
			sees: tests("TestOutcomesPassALockedRowByThoughTheServerEndsTheWait"),
		},
		{
			name: "refused-row-refuses-all", oracle: lateness,
			what: "a row that the database refuses to write holds up all others of its batch for ever",
			edits: []edit{
				{"internal/sqlstore/apart.go", "	if !s.refusesRow(err) {\n", "	if err != nil || !s.refusesRow(err) {\n"},
			},
			sees: tests("TestRowThatTheDatabaseRefusesHoldsUpNoOther", "TestRefusedItemsAreFoundByHalving"),
		},
		{
			name: "refused-rows-cost-a-statement-each", oracle: lateness,
			what: "a batch that is all refused costs two statements an entry, each time it is offered",
			edits: []edit{
				{"internal/sqlstore/apart.go", "	p.statements--\n", ""},
			},
			sees: tests("TestRefusedItemsAreFoundByHalving"),
		},
		{
			name: "refused-outcome-dropped", oracle: safety,
			what: "an outcome that the database refuses is offered no more, although it would be taken later",
			edits: []edit{
				{"internal/engine/settler.go", "		s.refused.Add(done)\n", ""},
			},
			sees: tests("TestRefusedOutcomesAreToldByTheirIdsAndStoredOnceTheyAreTaken"),
		},
		{
			name: "refused-claims-do-not-rest", oracle: lateness,
			what: "entries that the database refuses to lease are asked for with every claim",
			edits: []edit{
				{"internal/engine/refusals.go", "		rests := e != nil && now.Before(e.until)\n", "		rests := e != nil && now.After(e.until)\n"},
			},
			sees: tests("TestRefusedEntriesRestLongerEachTime"),
		},
	}
}
