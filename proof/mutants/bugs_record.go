package main

// recording: from Record to the end of the transaction.
func recording() []mutant {
	return []mutant{
		{
			name: "sealed-for-anybody", oracle: safety,
			what: "a sealed content opens in any row it is copied to",
			edits: []edit{
				{"encrypt/codec.go", "	for _, part := range []string{businessType, idempotentID} {\n", "	for _, part := range []string{\"\", \"\"} {\n"},
			},
			sees: tests("TestSealedContentOpensForItsEntryAlone"),
		},
		{
			name: "kept-fault-dropped", oracle: safety,
			what: "why a value could not be encoded, which its entry keeps, is dropped: the entry is recorded with nothing in it",
			edits: []edit{
				{"record.go", "append(e.problems(c.cfg.MaxContent), err, e.err)", "append(e.problems(c.cfg.MaxContent), err)"},
			},
			sees: tests("TestBusinessIsNotCommittedWithoutARefusedEntry", "TestOnceWithNoIDRefusesItsTransaction", "TestSlotThatCannotBeEncodedIsMadeOnceItCan",
				"TestMessageWhoseValueCannotBeEncodedIsParkedAndHoldsUpNobody", "TestRowWhoseValueCannotBeEncodedIsRefusedByName"),
		},
		{
			name: "message-done-again", oracle: safety,
			what: "a message that comes again is taken for the first of its id",
			edits: []edit{
				{"record.go", "	case told.State == Succeeded:\n		return false, nil\n", "	case told.State == Succeeded:\n		return true, nil\n"},
			},
			sees: tests("TestMessageIsDoneOnceHoweverOftenItComesAtOnce").and(simulation, "300"),
		},
		{
			name: "cancelled-taken-for-done", oracle: safety,
			what: "a message whose entry was cancelled, or is open, is taken for done",
			edits: []edit{
				{"record.go", "	_, err = t.CompleteTx(ctx, tx, id)\n", "	return false, nil\n"},
			},
			sees: tests("TestOnceCompletesWhatIsOpenAndRefusesWhatEndedOtherwise").and(simulation, "1000"),
		},
		{
			name: "done-work-runs", oracle: safety,
			what: "an entry that says that its recorder has done the work is pending, and runs",
			edits: []edit{
				{"internal/sqlstore/insert.go", "	if done {\n", "	if false {\n"},
				{"compensatortest/memory/row.go", "	if draft.Done {\n", "	if false {\n"},
			},
			sees: tests("TestWorkThatIsDoneWhereItIsRecordedNeverRuns").and(simulation, "300"),
		},
		{
			name: "done-work-stands-in-line", oracle: lateness,
			what: "an entry that never runs takes a turn of its serial type",
			edits: []edit{
				{"internal/engine/turns.go", "if !ok || d.Done {", "if !ok {"},
			},
			sees: tests("TestWorkThatIsDoneWhereItIsRecordedNeverRuns"),
		},
		{
			name: "lost-probe", oracle: safety,
			what: "Record writes although no transaction is open: the entry is durable on its own",
			edits: []edit{
				{"internal/sqlstore/insert.go", "if (!proven || s.d.unseenEnd) && s.d.inTx == \"\" {", "if false {"},
				{"internal/sqlstore/insert.go", "proven: proven,", "proven: true,"},
			},
			sees: tests("TestEntryAfterASwallowedConflictIsRefused", "TestRecordRefusesHandlesWithoutOpenTransaction"),
		},
		{
			name: "taint-ignored", oracle: safety,
			what: "a transaction commits although its entry could not be written",
			edits: []edit{
				{"record.go", "		rec.RolledBack()\n		return nil, poison(watch, naming(tx, err))\n", "		rec.RolledBack()\n		return nil, err\n"},
			},
			sees: tests("TestBusinessIsNotCommittedWithoutItsEntry"),
		},
		{
			name: "refused-entry-commits", oracle: safety,
			what: "a transaction commits although an entry of it was refused before anything was sent",
			edits: []edit{
				{"record.go", "	return poison(asked.end(watch), err)\n", "	return err\n"},
			},
			sees: tests("TestBusinessIsNotCommittedWithoutARefusedEntry"),
		},
		{
			name: "late-entry-commits", oracle: safety,
			what: "a transaction commits although the context of an entry's Record had ended",
			edits: []edit{
				{"connector.go", "	if enlistment.Tx() == nil && ctx.Err() != nil {\n", "	if false {\n"},
			},
			sees: tests("TestBusinessIsNotCommittedWithoutAnEntryThatCameTooLate"),
		},
		{
			name: "traced-savepoint", oracle: safety,
			what: "what stands behind a savepoint's name is taken for a part of it: a later one looks like one set before a refused entry",
			edits: []edit{
				{"internal/txwatch/text.go", "blanks+\";/#-\"", "\";\""},
			},
			sees: tests("TestTaintEndsWithTheSavepointItHappenedIn"),
		},
		{
			name: "unknown-commit-is-run-again", oracle: safety,
			what: "a transaction of which nobody knows whether it has committed is said to be fit to run again: the business is done twice",
			edits: []edit{
				{"internal/txwatch/outcome.go", "	case err == nil, errors.Is(err, processlog.ErrCommitUnknown):\n", "	case err == nil:\n"},
			},
			sees: tests("TestWhatMayBeRunAgainIsToldFromWhatIsWrongAndWhatIsUnknown"),
		},
		{
			name: "lost-commit-is-run-again-unasked", oracle: safety,
			what: "RetryTx takes a COMMIT whose answer was lost for one that did not happen: the business is done twice, unless it looks",
			edits: []edit{
				{"transaction.go", "	switch e, asked := c.Resolve(ctx, proof); {\n", "	switch e, asked := new(Entry), ErrNotFound; {\n"},
			},
			sees: tests("TestTransactionWhoseCommitIsLostIsRunAgainOnlyIfItDidNotHappen"),
		},
		{
			name: "lost-commit-is-taken-for-done", oracle: safety,
			what: "RetryTx says that a transaction happened of which Resolve found nothing",
			edits: []edit{
				{"transaction.go", "	case asked == nil, errors.Is(asked, ErrNotFound):\n", "	case errors.Is(asked, ErrNotFound):\n		return nil\n	case asked == nil:\n"},
			},
			sees: tests("TestTransactionWhoseCommitIsLostIsRunAgainOnlyIfItDidNotHappen"),
		},
		{
			name: "completed-entry-proves-by-being-there", oracle: safety,
			what: "RetryTx takes a transaction that asked Once for done because an open entry has its id: one that was there before, or another transaction's",
			edits: []edit{
				{"transaction.go", "	return e.State == Succeeded || !p.byOnce[proof]\n", "	return true\n"},
			},
			sees: tests("TestOnceThatCompletesWhatIsThereIsRunAgainIfItDidNotHappen", "TestLostCommitOfOnceIsRunAgainWhenAnotherTransactionRecordsItsID").and(simulation, "4000"),
		},
		{
			name: "traced-transaction-is-not-found", oracle: safety,
			what: "a closure's transaction that Record is given through a tracer's handle commits without the entry that was refused",
			edits: []edit{
				{"connector.go", "	if watch == nil && q != nil && q.found != nil {\n", "	if false {\n"},
			},
			sees: tests("TestBusinessIsNotCommittedWithoutARefusedEntry"),
		},
		{
			name: "refusal-is-run-again", oracle: duplicates,
			what: "RetryTx runs a transaction again that its own business has refused",
			edits: []edit{
				{"transaction.go", "		if !Retryable(err) || try == retryTries {\n", "		if err == nil || try == retryTries {\n"},
			},
			sees: tests("TestTransactionIsRunAgainOnlyWhereThatMayHelp"),
		},
		{
			name: "statements-after-a-rollback", oracle: safety,
			what: "a transaction of ours that the server has rolled back takes further statements, which commit by themselves",
			edits: []edit{
				{"internal/txwatch/watch.go", "		return t.ours.Over()\n", "		return nil\n"},
				{"internal/txwatch/watch.go", "(kind == sqlPlain || kind == sqlDoubt || kind == sqlDDL)", "false"},
			},
			sees: tests("TestNothingIsSentOnceTheServerHasRolledBack"),
		},
		{
			name: "left-open-session-drawn-again", oracle: lateness,
			what: "a pooled session that was left inside a transaction goes back to its pool as if it were sound",
			edits: []edit{
				{"internal/txwatch/conn.go", "	if mysqlerr.IsInsideTransaction(err) && !c.touched {\n", "	if false && mysqlerr.IsInsideTransaction(err) {\n"},
			},
			sees: tests("TestSessionsLeftInsideATransactionHoldNothingUp/begin"),
		},
		{
			name: "three-left-open-sessions", oracle: producers,
			what: "a transaction of ours fails when more pooled sessions were left inside one than package sql tries",
			edits: []edit{
				{"internal/sqlstore/store.go", "	if s.users == s.db || !errors.Is(err, driver.ErrBadConn) {\n", "	if true {\n"},
			},
			sees: tests("TestClosureOutlastsAnyNumberOfSessionsLeftInsideATransaction"),
		},
		{
			name: "due-read-from-an-old-snapshot", oracle: lateness,
			what: "what is due is looked for in whatever transaction somebody has left open on the session",
			edits: []edit{
				{"internal/sqlstore/store.go", "	if s.own != nil || s.d.latest == \"\" {\n", "	if true {\n"},
			},
			sees: tests("TestHealthSeesPastASnapshotThatSomebodyLeftOpen"),
		},
		{
			name: "missing-entry-untold", oracle: lateness,
			what: "an entry that is not there after its commit is passed over in silence",
			edits: []edit{
				{"internal/engine/missing.go", "		if ids[f.key].IsZero() {\n", "		if ids == nil {\n"},
			},
			sees: tests("TestEntryThatIsNotThereAfterItsCommitIsReported"),
		},
		{
			name: "missing-later-entry-untold", oracle: lateness,
			what: "the same of one that is due later",
			edits: []edit{
				{"internal/engine/witness.go", "	w.missing.report(w.memory.prove(doubts, found, began))\n", "	w.memory.prove(doubts, found, began)\n"},
			},
			sees: tests("TestEntryThatIsDueLaterAndNotThereIsReported"),
		},
		{
			name: "plain-pool-unwatched", oracle: safety,
			what: "transactions of ours in a plain pool are not watched: errors in rows and prepared statements go unseen",
			edits: []edit{
				{"internal/sqlstore/store.go", "		s.users = txwatch.Lend(db)\n", ""},
			},
			sees: tests("TestNothingIsSentOnceTheServerHasRolledBack"),
		},
		{
			name: "doubt-forgotten", oracle: safety,
			what: "a statement that is doubtful by itself makes the error that came of it forgotten: what follows a rollback commits by itself",
			edits: []edit{
				{"internal/txwatch/watch.go", "t.suspect, t.urgent = suspect, true\n", "t.suspect, t.urgent = suspect, suspect\n"},
			},
			sees: tests("TestNothingFollowsALockWaitThatEndedItsTransactionUnread"),
		},
		{
			name: "savepoint-is-proof", oracle: safety,
			what: "in a session with autocommit=0 a savepoint is taken for the proof that the transaction goes on",
			edits: []edit{
				{"internal/txwatch/doubt.go", "	case err == nil && wasOpen:\n", "	case false:\n"},
			},
			sees: tests("TestRollbackIsSeenInSessionsThatBeginByThemselves"),
		},
		{
			name: "tainted-committed-by-ddl", oracle: safety,
			what: "a transaction without its entry is committed by DDL, a procedure or a nested BEGIN",
			edits: []edit{
				{"internal/txwatch/conn.go", "		return c.doomed()\n", "		return nil\n"},
			},
			sees: tests("TestTaintedTransactionIsCommittedByNoStatement/ddl", "TestTaintedTransactionIsCommittedByNoStatement/begin", "TestTaintedTransactionIsCommittedByNoStatement/procedure"),
		},
		{
			name: "unread-savepoint", oracle: safety,
			what: "a savepoint in a comment that is executed is not read: a later one looks like one set before a refused entry",
			edits: []edit{
				{"internal/txwatch/text.go", `strings.Contains(rest, "/*!") || strings.Contains(rest, "/*M!")`, "false"},
			},
			sees: tests("TestTaintedTransactionIsCommittedByNoStatement"),
		},
		{
			name: "panic-passes-record", oracle: safety,
			what: "a codec or propagator that panics while an entry is recorded leaves the transaction able to commit without it",
			edits: []edit{
				{"record.go", "	if p := recover(); p != nil {\n", "	if p := any(nil); p != nil {\n"},
			},
			sees: tests("TestBusinessIsNotCommittedAfterAPanicInRecord"),
		},
		{
			name: "foreign-errors-undoubted", oracle: safety,
			what: "only errors of MySQL's kind are taken to have ended a transaction: SQLite's rollbacks go unseen",
			edits: []edit{
				{"internal/txwatch/outcome.go", "return false, !mysqlerr.IsBroken(err)", "return false, false"},
			},
			sees: tests("TestErrorOfAnotherKindOfServerIsADoubt"),
		},
		{
			name: "duplicate-overwrites", oracle: safety,
			what: "a repeated idempotent id writes over the entry that has it",
			edits: []edit{
				{"internal/sqlstore/insert.go", "return b.String(), args", "return b.String() + \" ON DUPLICATE KEY UPDATE id=LAST_INSERT_ID(id), content=VALUES(content), state=0\", args"},
				{"compensatortest/memory/insert.go", "		entry := &row.seenBy(tx).entry\n", "		entry := &row.seenBy(tx).entry\n		entry.Content, entry.State = draft.Content, processlog.Pending\n"},
			},
			sees: tests("TestDuplicateResurrectsNothing", "TestDuplicateWithOtherContentIsTold").and(simulation, "300"),
		},
		{
			name: "repeatable-read", oracle: producers,
			what: "our transactions run at REPEATABLE READ: they lock gaps that others insert into",
			edits: []edit{
				{"internal/sqlstore/mysql.go", "&sql.TxOptions{Isolation: sql.LevelReadCommitted}", "&sql.TxOptions{Isolation: sql.LevelRepeatableRead}"},
				{"internal/sqlstore/session.go", "\"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, ", "\"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, "},
			},
			sees: tests("TestProducerNeverWaitsForAStatementOfOurs", "TestOwnTransactionsAreReadCommittedWhateverTheServersDefault"),
		},
		{
			name: "unverified-fast-path", oracle: safety,
			what:  "a new entry is run from memory, without reading back that its row was committed",
			edits: fromMemory,
			sees:  tests("TestEntryRolledBackToASavepointNeverRuns").and(simulation, "300").and(model, "m:fast-unverified"),
		},
		{
			name: "unknown-commit-runs", oracle: safety,
			what:  "a commit whose answer was lost is taken for one that happened, and the entry is run from memory",
			edits: append([]edit{{"receipt.go", "	switch outcome {\n", "	if outcome == txwatch.Unknown {\n		outcome = txwatch.Committed\n	}\n	switch outcome {\n"}}, fromMemory...),
			sees:  tests("TestEntryOfALostCommitRequestNeverRuns").and(simulation, "300"),
		},
		{
			name: "unknown-commit-routed", oracle: lateness,
			what: "the same, but the row is read back first, as always: nothing is there that could run",
			edits: []edit{
				{"receipt.go", "	switch outcome {\n", "	if outcome == txwatch.Unknown {\n		outcome = txwatch.Committed\n	}\n	switch outcome {\n"},
			},
			survives: tests("TestEntryOfALostCommitRequestNeverRuns", "TestUnknownCommitIsResolvedToWhatHappened"),
		},
		{
			name: "unknown-commit-hidden", oracle: safety,
			what: "a caller whose commit is unknown is told that it was rolled back",
			edits: []edit{
				{"internal/txwatch/outcome.go", "		return RolledBack // by its contract: nothing was sent\n	}\n	return Unknown", "		return RolledBack // by its contract: nothing was sent\n	}\n	return RolledBack"},
			},
			sees: tests("TestUnknownCommitIsResolvedToWhatHappened"),
		},
		{
			name: "resolve-denies-what-waits", oracle: safety,
			what: "Resolve finds no entry that no person has touched: a commit that happened is told as one that did not",
			edits: []edit{
				{"manage.go", "	row, err := c.store.Resolve(ctx, ref)\n", "	row, err := c.store.Resolve(ctx, ref)\n	if err == nil && row.Epoch == 0 {\n		err = ErrNotFound\n	}\n"},
			},
			sees: selection{simulation: "1000"},
		},
		{
			name: "resolve-on-one-connection", oracle: producers,
			what: "Resolve on Galera gives up at the first connection of the pool that has broken unseen",
			edits: []edit{
				{"internal/sqlstore/rows.go", "!errors.Is(err, driver.ErrBadConn) {\n			break", "!errors.Is(err, driver.ErrBadConn) || true {\n			break"},
			},
			sees: tests("TestResolveOnGaleraOutlivesAConnectionThatBrokeInThePool"),
		},
		{
			name: "other-type-is-a-duplicate", oracle: safety,
			what: "an idempotent id that an entry of another type has counts as a duplicate: the second event has no entry, and nobody is told",
			edits: []edit{
				{"receipt.go", "	if recorded != e.BusinessType {\n", "	if recorded == \"\" {\n"},
			},
			sees: tests("TestKeyOfAnotherTypeIsRefusedByName", "TestTransactionWithAKeyOfAnotherTypeCommitsNothing").and(simulation, "300"),
		},
		{
			name: "other-content-is-a-duplicate", oracle: safety,
			what: "a type's wish to have other content under a known idempotent id refused is not obeyed",
			edits: []edit{
				{"receipt.go", "	if rec.c.types.refusesOtherContent(e.BusinessType) {\n", "	if false {\n"},
			},
			sees: tests("TestOtherContentIsRefusedWhereItsTypeSaysSo"),
		},
		{
			name: "delay-dropped", oracle: safety,
			what: "an entry is due at once, whatever delay its producer has asked for",
			edits: []edit{
				{"record.go", "Delay: delay, Done: e.done,", "Delay: 0 * delay, Done: e.done,"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "first-content-for-all", oracle: safety,
			what: "the entries of one Record all have the first one's content",
			edits: []edit{
				{"record.go", "		draft.Headers, draft.Token = stored, token\n", "		draft.Headers, draft.Token, draft.Content = stored, token, entries[0].Content\n"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "own-budget-dropped", oracle: safety,
			what: "an entry's own MaxProcessCount is not recorded: it has as many attempts as its type",
			edits: []edit{
				{"record.go", "Content: e.Content, MaxProcessCount: e.MaxProcessCount,", "Content: e.Content,"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "headers-dropped", oracle: safety,
			what: "what a context carries is not recorded with its entry: no trace goes on in the handler",
			edits: []edit{
				{"record.go", "draft.Headers, draft.Token = stored, token\n", "draft.Headers, draft.Token = stored[:0], token\n"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "refused-event-commits", oracle: safety,
			what: "a swallowed refusal of an event leaves the transaction free to commit without it",
			edits: []edit{
				{"record.go", "		return nil, poison(watch, naming(tx, err))\n	}\n	failpoint", "		if rec.Inserted == nil {\n			_ = poison(watch, err)\n		}\n		return nil, err\n	}\n	failpoint"},
			},
			sees: tests("TestTransactionWithAKeyOfAnotherTypeCommitsNothing").and(simulation, "1500"),
		},
		{
			name: "credits-leak", oracle: leak,
			what: "the slots a transaction reserved are not given back when it comes to nothing",
			edits: []edit{
				{"internal/engine/agenda.go", "	t.slots.use(credit, 0)\n", ""},
			},
			sees: tests("TestAbandonedTransactionsKeepNoSlots"),
		},
		{
			name: "share-not-for-new-ones", oracle: lateness,
			what: "a new entry that found no slot to be born into waits behind a backlog, and the slots kept for new ones stay empty",
			edits: []edit{
				{"internal/engine/slots.go", "	if s.running+s.reserved >= s.size {\n		return false\n	}", "	if s.freeLocked() <= 0 {\n		return false\n	}"},
			},
			sees: tests("TestNewEntryWithNothingReservedTakesWhatIsKeptForNewOnes"),
		},
		{
			name: "share-for-the-lucky", oracle: lateness,
			what: "a part of the slots is kept for new entries only once one of them has found a free slot: a backlog that has all leaves none",
			edits: []edit{
				{"internal/engine/slots.go", "	s.lastFresh = now // also", "	if s.running+s.reserved < s.size {\n		s.lastFresh = now\n	} // also"},
			},
			sees: tests("TestNewEntryWithNothingReservedTakesWhatIsKeptForNewOnes"),
		},
		{
			name: "slot-freed-after-its-outcome", oracle: lateness,
			what: "an entry ends in the database while its slot is taken still: the next one finds none",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	if a.freesSlot() {\n		d.agenda.free(a.t, 1)\n", "	if a.freesSlot() {\n		defer d.agenda.free(a.t, 1)\n"},
			},
			sees: tests("TestSlotIsFreeBeforeTheOutcomeIsStored"),
		},
		{
			name: "credits-never-lapse", oracle: leak,
			what: "a transaction that stays open keeps the slots it reserved for ever",
			edits: []edit{
				{"internal/engine/slots.go", "|| !now.Before(s.open[0].expires)", ""},
			},
			sees: tests("TestCreditOfATransactionThatStaysOpenLapses"),
		},
		{
			name: "late-born-claim", oracle: duplicates,
			what: "an entry born claimed runs although its transaction outlasted its lease",
			edits: []edit{
				{"internal/engine/intake.go", "intime := time.Until(asked.Add(row.LeaseLeft)) >= t.Lease/2", "intime := true"},
				{"internal/engine/intake.go", "switch slot := t.slots.use(f.credit, 1); {", "switch slot := t.slots.use(f.credit, 1) || t.slots.take(1) == 1; {"},
				{"internal/engine/dispatcher.go", "leaseEnd: asked.Add(row.LeaseLeft)}", "leaseEnd: asked.Add(t.Lease)}"},
			},
			sees: tests("TestEntryCommittedAfterItsBornLeaseIsClaimedAnew"),
		},
		{
			name: "instruments-trusted", oracle: safety,
			what: "New does not try what tells whether a transaction is open, and what locks: where they do not, entries are durable without their transaction",
			edits: []edit{
				{"internal/sqlstore/check_mysql.go", "return checkInstruments(ctx, s)", "return nil"},
			},
			sees: tests("TestNewRefusesAServerWhose", "TestEntriesRunOnAServerWhose"),
		},
		{
			name: "halves-not-taken", oracle: lateness,
			what: "a server whose SKIP LOCKED waits is asked with it all the same",
			edits: []edit{
				{"internal/sqlstore/store.go", "if !s.d.halves {\n		return read", "if true {\n		return read"},
			},
			sees: tests("TestStoreKeepsEveryPromiseOnAServerOfManyLies/ClaimNeverWaitsForALockedRow"),
		},
		{
			name: "other-databases-taken", oracle: safety,
			what: "an entry of one database is written into the log of another whose transaction it was given, on a plain pool",
			edits: []edit{
				{"internal/sqlstore/check_mysql.go", "s.home = session.database", "_ = session.database"},
			},
			sees: tests("TestTransactionOfAnotherDatabaseIsRefused/plain,_transaction_of_a_plain"),
		},
		{
			name: "almost-the-same-database", oracle: safety,
			what: "a database whose name differs by case alone is taken for the log's",
			edits: []edit{
				{"internal/sqlstore/store.go", "return \"DATABASE()=\" + home + \" COLLATE utf8mb4_bin\"", "return \"DATABASE()=\" + home"},
			},
			sees: tests("TestDatabasesOfAlmostTheSameNameAreApart"),
		},
		{
			name: "other-connectors-taken", oracle: safety,
			what: "the same, on another Connector",
			edits: []edit{
				{"connector.go", "		if watch.Err() != nil || enlistment.Home == c.connector {\n", "		if watch.Err() != nil || c.connector != nil {\n"},
			},
			sees: tests("TestDatabaseOfTheSameNameOnAnotherServerIsAnother"),
		},
		{
			name: "migrate-once", oracle: lateness,
			what: "a migration that meets another process's is given up",
			edits: []edit{
				{"internal/sqlstore/migrate.go", "f != faultAborted && f != faultBusy", "f >= 0"},
			},
			sees: tests("TestMigrateTriesAgainWhatMetAnotherProcess"),
		},
		{
			name: "half-a-log-is-whole", oracle: safety,
			what: "a log that has its cases is taken for made: what a process that died behind them has not made nobody makes",
			edits: []edit{
				{"internal/sqlstore/migrate.go", "	for _, statement := range statements {\n",
					"	if _, err := db.ExecContext(ctx, \"SELECT 1 FROM \"+table+\"_case\"); err == nil {\n		statements = statements[:6]\n	}\n	for _, statement := range statements {\n"},
			},
			sees: selection{crash: "migration-part,unmade"},
		},
		{
			name: "snapshots-locked", oracle: producers,
			what: "a known id is looked up under a lock where that aborts a transaction whose snapshot is older",
			edits: []edit{
				{"internal/sqlstore/insert.go", "if in.s.d.snapshots {", "if false {"},
			},
			sees: tests("TestDuplicateOfAnEntryThatChangesAbortsNothing"),
		},
		{
			name: "watched-probed", oracle: safety,
			what: "the second half of a probe is sent on a connection that has answered the first",
			edits: []edit{
				{"internal/sqlstore/mysql.go", "if txwatch.Answered(ctx) {", "if false {"},
			},
			sees: tests("TestWatchedTransactionIsNeverProbed"),
		},
		{
			name: "refused-commit-keeps-the-lock", oracle: producers,
			what: "a COMMIT that SQLite refuses leaves its transaction open on a connection that goes back to the pool: the file stays locked",
			edits: []edit{
				{"internal/txwatch/tx.go", "t.conn.cameOf(err)", "Classify(err)"},
			},
			sees: sqliteTests("TestPlainCommitThatFindsTheFileBusyIsRunAgain", "TestPlainCommitThatAConstraintRefusesEndsItsTransaction"),
		},
		{
			name: "refused-text-commit-keeps-the-lock", oracle: producers,
			what: "a connection whose COMMIT, sent as text, was refused goes back to the pool with its transaction",
			edits: []edit{
				{"internal/txwatch/conn.go", "if c.discard || c.unended {", "if c.discard {"},
			},
			sees: sqliteTests("TestCommitSentAsTextThatFindsTheFileBusyKeepsNoLock"),
		},
		{
			name: "charset-not-looked-at", oracle: duplicates,
			what: "New takes a session in latin1 or gbk: the outcome of an entry whose id is not plain ASCII fits no row, and it runs again and again",
			edits: []edit{
				{"internal/sqlstore/check_mysql.go", "!carriesUTF8(charset, i == 2)", "false"},
			},
			sees: tests("TestServerSettingsThatLoseOrCutEntriesAreRefusedAtStart/latin1_session", "TestServerSettingsThatLoseOrCutEntriesAreRefusedAtStart/gbk_session", "TestServerSettingsThatLoseOrCutEntriesAreRefusedAtStart/texts_read_as_latin1"),
		},
		{
			name: "key-of-any-charset", oracle: duplicates,
			what: "New takes key columns that store other bytes than were recorded: outcomes fit no row",
			edits: []edit{
				{"internal/sqlstore/check_mysql.go", "!strings.HasPrefix(c.collation, \"utf8mb4_\")", "strings.HasPrefix(c.collation, \"utf8mb3_\")"},
			},
			sees: tests("TestServerSettingsThatLoseOrCutEntriesAreRefusedAtStart/key_of_Latin_letters", "TestServerSettingsThatLoseOrCutEntriesAreRefusedAtStart/key_in_two_bytes", "TestServerSettingsThatLoseOrCutEntriesAreRefusedAtStart/type_of_Latin_letters"),
		},
		{
			name: "empty-is-null", oracle: safety,
			what: "New takes a MariaDB whose mode makes NULL of empty texts, which the log's columns refuse",
			edits: []edit{
				{"internal/sqlstore/check_mysql.go", "	if m.emptyIsNull() {\n", "	if false {\n"},
			},
			sees: tests("TestServerThatTakesEmptyTextsForNullIsRefusedAtStart"),
		},
		{
			name: "session-elsewhere", oracle: safety,
			what: "an entry goes into the log of another database that the session has changed to, on a Connector and in InTx",
			edits: []edit{
				{"internal/sqlstore/insert.go", "	if proven {\n		condition = guard[1]\n", "	if proven {\n		condition = \"\"\n"},
			},
			sees: tests("TestSessionThatUsesAnotherDatabaseIsRefused"),
		},
		{
			name: "guard-is-null", oracle: safety,
			what: "the guard of an INSERT is NULL, of which a lenient sql_mode makes an empty id",
			edits: []edit{
				{"internal/sqlstore/insert.go", "placeholder + \",~0+1)\"", "placeholder + \",NULL)\""},
			},
			sees: tests("TestSessionThatUsesAnotherDatabaseIsRefused"),
		},
		{
			name: "texts-in-the-sessions-charset", oracle: safety,
			what: "texts are read in whatever charset the session has: ids read as others, and a false loss",
			edits: []edit{
				{"internal/sqlstore/mysql.go", "		texts:      mysqlTexts,\n", "		texts:      func(columns string) string { return columns },\n"},
			},
			sees: tests("TestEntriesAreRightWhateverASessionIsSetTo"),
		},
		{
			name: "ids-in-the-sessions-charset", oracle: safety,
			what: "an id is sent as text of whatever charset the session has: told again, it is recorded twice",
			edits: []edit{
				{"internal/sqlstore/insert.go", "		if !plainTexts(&drafts[i]) {\n", "		if false {\n"},
			},
			sees: tests("TestEntriesAreRightWhateverASessionIsSetTo"),
		},
		{
			name: "session-unfit", oracle: safety,
			what: "an entry is recorded by a session that lets an id be stored twice, or has a clock of its own",
			edits: []edit{
				{"internal/sqlstore/insert.go", "	if s.d.fit != \"\" {\n		conditions", "	if false {\n		conditions"},
			},
			sees: tests("TestEntriesAreRightWhateverASessionIsSetTo"),
		},
		{
			name: "pooled-session-as-it-is", oracle: safety,
			what: "statements of ours run under whatever a pooled session is set to: sql_select_limit hides rows, and a false loss stops the log",
			edits: []edit{
				{"internal/sqlstore/session.go", "	if s.own != nil || s.d.calm == nil {\n		return query", "	if true {\n		return query"},
			},
			sees: tests("TestEntriesAreRightWhateverASessionIsSetTo"),
		},
		{
			name: "blocked-for-a-year", oracle: producers,
			what: "a statement of ours waits for a lock of the whole server as long as the server's default says: given up, it holds its session",
			edits: []edit{
				{"internal/sqlstore/session.go", "innodb_lock_wait_timeout=2, lock_wait_timeout=5, ", "innodb_lock_wait_timeout=2, lock_wait_timeout=51536000, "},
			},
			sees: tests("TestStatementOfOursEndsOnABlockedServerByItself"),
		},
		{
			name: "unanswered-unbounded", oracle: producers,
			what: "statements go on to a server that answers none, each with a session of its own",
			edits: []edit{
				{"internal/sqlstore/unanswered.go", "	if total < mostUnanswered || u.n[kind] == 0 {", "	if true {"},
			},
			sees: tests("TestStatementsThatAServerDoesNotAnswerAreTriedOneAtATime"),
		},
		{
			name: "own-connections-stay", oracle: lateness,
			what: "our connections stay on a server that the user's have left",
			edits: []edit{
				{"internal/sqlstore/own.go", "	return c.opened.Before(oldest) || !open && age > ownLife\n", "	return !open && age > ownLife && oldest.IsZero()\n"},
			},
			sees: tests("TestOwnConnectionsFollowTheUsersToAnotherServer"),
		},
		{
			name: "server-packet-ignored", oracle: producers,
			what: "entries recorded together go in one INSERT that the server's packets do not take, and the user's connection breaks",
			edits: []edit{
				{"internal/sqlstore/insert.go", "most = min(most, s.maxContent)", "most = min(most, s.maxContent+maxStatementBytes)"},
			},
			sees: tests("TestEntriesThatNewTakesFitTogether"),
		},
		{
			name: "insert-of-any-length", oracle: producers,
			what: "one INSERT holds whatever 500 entries hold",
			edits: []edit{
				{"internal/sqlstore/insert.go", "maxStatementBytes = 1 << 20", "maxStatementBytes = 1 << 40"},
			},
			sees: tests("TestInsertHoldsWhatAPacketTakes"),
		},
		{
			name: "other-connector-asked-each-time", oracle: producers,
			what: "another Connector of the same database is asked for its log with every entry",
			edits: []edit{
				{"store_mysql.go", "	c.homes.Store(from, true)\n", ""},
			},
			sees: tests("TestOtherConnectorIsAskedForItsLogOnce"),
		},
	}
}

// fromMemory makes the engine run what was inserted, whether or not it was committed.
var fromMemory = []edit{
	{"internal/engine/intake.go", "	credit       *credit          // nil unless born claimed\n", "	credit       *credit          // nil unless born claimed\n	draft        processlog.Draft\n"},
	{"internal/engine/recording.go", "credit: r.credits[i], due: due}", "credit: r.credits[i], due: due, draft: *d}"},
	{"internal/engine/intake.go", "		in.startFresh(f, byID[f.id], asked)\n", "		row := byID[f.id]\n		if row == nil {\n			row = &processlog.Row{Token: f.token, LeaseLeft: f.draft.Lease}\n			row.ID, row.IdempotentID, row.BusinessType, row.Content, row.DeliveryCount = f.id, f.key, f.businessType, f.draft.Content, 1\n		}\n		in.startFresh(f, row, asked)\n"},
}
