package main

func recording() []mutant {
	return []mutant{
		{
			name: "reconciler-off", breaks: "G1",
			what: "The reconciler does not run, so an entry that nobody enqueued is never found.",
			edits: []edit{
				{"Compensator.Run", `$loops.Go(func() { $engine.Reconcile($claiming) })`, ``},
			},
			sees:    tests("TestEntryThatIsNeverEnqueuedIsFoundByTheReconciler").with(simulation, "300").with(crash, "commit-done,recorders|enqueue-next,recorders"),
			inModel: "m:no-reconciler",
		},
		{
			name: "id-watermark", breaks: "G1",
			what: "The reconciler asks only for ids above the highest that it has seen, and misses entries that commit late.",
			edits: []edit{
				{"Engine",
					`*Base`,
					`*Base
highest processlog.ID`},
				{"Engine.ReadWindow",
					`$reportRead($ctx, $err)
return $found, $err`,
					`mark := e.highest
for _, f := range $found {
	if f.ID.Compare(e.highest) > 0 {
		e.highest = f.ID
	}
}
return slices.DeleteFunc($found, func(f processlog.Scheduled) bool { return f.ID.Compare(mark) < 0 }), $err`},
			},
			sees: tests("TestEntryCommittedAfterOnesWithHigherIdsIsNotMissed").with(simulation, "300"),
		},
		{
			name: "missing-entry-untold", breaks: "G1",
			what: "An entry that is missing after its commit is reported to nobody.",
			edits: []edit{
				{"Starter.ReportMissing", `if $ids[$idempotencyKey].$isZero() {`, `if $ids == nil {`},
			},
			sees: tests("TestEntryThatIsNotThereAfterItsCommitIsReported"),
		},
		{
			name: "slow-commit-not-polled", breaks: "G1",
			what: "A commit that nobody reports is polled for during its first second only.",
			edits: []edit{
				{"Poller.scheduleNext", `return $t.nextPoll.Sub($t.sentAt) <= pollLimit`, `return $t.polls < len(firstPolls)`},
			},
			sees: tests("TestCommitIsPolledForDuringAMinuteAndForAllThatWaitAtOnce"),
		},
		{
			name: "taint-ignored", breaks: "G2",
			what: "A transaction commits although the INSERT of its entry failed.",
			edits: []edit{
				{"Compensator.Record",
					`$rolledBack()
	return nil, $poison($watch, $naming($tx, $err))`,
					`$rolledBack()
	return nil, $err`},
			},
			sees: tests("TestBusinessIsNotCommittedWithoutItsEntry"),
		},
		{
			name: "lost-probe", breaks: "G2",
			what: "Record writes an entry outside any transaction, where it is durable at once.",
			edits: []edit{
				{"sqlstore.Store.Insert", `if (!$proven || $unseenEnd) && $inTx == "" {`, `if false {`},
				{"sqlstore.Store.Insert",
					`$in := $insertion{$s: $s, $tx: $tx, $drafts: $drafts, $proven: $proven, $result: make([]processlog.Inserted, len($drafts))}`,
					`$in := $insertion{$s: $s, $tx: $tx, $drafts: $drafts, $proven: true, $result: make([]processlog.Inserted, len($drafts))}`},
			},
			sees: tests("TestEntryAfterASwallowedConflictIsRefused", "TestRecordRefusesHandlesWithoutOpenTransaction"),
		},
		{
			name: "unverified-fast-path", breaks: "G2",
			what: "A new entry runs from memory, and nothing reads its row back after the commit.",
			edits: []edit{
				{"freshCalls",
					`$left int`,
					`freeSeats int
}

type unread struct {
	engine.Reservation
	draft processlog.Draft`},
				{"Starter.reserve",
					`$reservations[$i], $dLease = $reservation, $tLease`,
					`d.Lease = t.Lease
reservations[i] = &unread{reservation, *d}`},
				{"Starter.verifyFresh",
					`$row := $byID[$id]`,
					`row := $byID[$id]
if row == nil {
	draft := f.Reservation.(*unread).draft
	row = &processlog.Row{Token: f.Token, LeaseLeft: draft.Lease}
	row.ID, row.IdempotencyKey, row.BusinessType, row.Content, row.DeliveryCount = $id, f.IdempotencyKey, f.BusinessType, draft.Content, 1
}`},
			},
			sees:    tests("TestEntryRolledBackToASavepointNeverRuns").with(simulation, "300"),
			inModel: "m:fast-unverified",
		},
		{
			name: "savepoint-is-proof", breaks: "G2",
			what: "With autocommit=0 the library takes a savepoint as proof that the transaction is still open.",
			edits: []edit{
				{"watchedConn.askServer", `case $err == nil && $wasOpen:`, `case false:`},
			},
			sees: tests("TestRollbackIsSeenInSessionsThatBeginByThemselves"),
		},
		{
			name: "statements-after-a-rollback", breaks: "G2",
			what: "A transaction that the server rolled back takes more statements, and each commits by itself.",
			edits: []edit{
				{"txWatch.beforeLoss",
					`case $ours != nil:
return $over()`,
					`case $ours != nil:
return nil`},
				{"txWatch.beforeLoss",
					`case $state == $txAborted && $watched != nil && ($kind == $sqlPlain || $kind == $sqlDoubt || $kind == $sqlDDL):`,
					`case $state == $txAborted && $watched != nil && false:`},
			},
			sees: tests("TestNothingIsSentOnceTheServerHasRolledBack"),
		},
		{
			name: "duplicate-overwrites", breaks: "G11",
			what: "A repeated idempotency key overwrites the entry that has it.",
			edits: []edit{
				{"insertion.statement",
					`return strings.Join($rows, ","), $args`,
					`return strings.Join($rows, ",") + " ON DUPLICATE KEY UPDATE id=LAST_INSERT_ID(id), content=VALUES(content), state=0", $args`},
				{"Store.insertLocked",
					`return processlog.Inserted{
	$id: $rowId, $duplicate: true, $businessType: $entryBusinessType, $state: $entryState, $contentMatches: $erased || bytes.Equal($content, $draftContent)`,
					`$content, $entryState = $draftContent, processlog.Pending
return processlog.Inserted{
	$id: $rowId, $duplicate: true, $businessType: $entryBusinessType, $state: $entryState, $contentMatches: $erased || bytes.Equal($content, $draftContent)`},
			},
			sees: tests("TestDuplicateResurrectsNothing", "TestDuplicateWithOtherContentIsTold").with(simulation, "300"),
		},
		{
			name: "other-type-is-a-duplicate", breaks: "G11",
			what: "An id that an entry of another type has counts as a duplicate, and the second event is lost.",
			edits: []edit{
				{"recording.otherEvent", `if $recorded != $businessType {`, `if $recorded == "" {`},
			},
			sees: tests("TestKeyOfAnotherTypeIsRefusedByName", "TestTransactionWithAKeyOfAnotherTypeCommitsNothing").with(simulation, "300"),
		},
		{
			name: "other-content-is-a-duplicate", breaks: "G11",
			what: "A type that refuses other content under a known id gets a duplicate instead of an error.",
			edits: []edit{
				{"recording.otherEvent",
					`if $refusesOtherContent($businessType) {
	return fmt.Errorf($text, $idempotencyKey, $errOtherContent)`,
					`if false {
	return fmt.Errorf($text, $idempotencyKey, $errOtherContent)`},
			},
			sees: tests("TestOtherContentIsRefusedWhereItsTypeSaysSo"),
		},
		{
			name: "message-done-again", breaks: "G35",
			what: "A repeated message is taken for the first of its id.",
			edits: []edit{
				{"Type.Once",
					`case $state == $succeeded:
	return false, nil`,
					`case $state == $succeeded:
	return true, nil`},
			},
			sees: tests("TestMessageIsDoneOnceHoweverOftenItComesAtOnce").with(simulation, "300"),
		},
		{
			name: "done-work-runs", breaks: "G35",
			what: "An entry recorded as done is pending, and its handler runs.",
			edits: []edit{
				{"Store.rowSQL",
					`if $done {
	$state, $ended = signed(int64(processlog.Succeeded))`,
					`if false {
	$state, $ended = signed(int64(processlog.Succeeded))`},
				{"newVersion",
					`if $done {
	$state, $endedBy = processlog.Succeeded, processlog.EndedByComplete`,
					`if false {
	$state, $endedBy = processlog.Succeeded, processlog.EndedByComplete`},
			},
			sees: tests("TestWorkThatIsDoneWhereItIsRecordedNeverRuns").with(simulation, "300"),
		},
		{
			name: "cancelled-taken-for-done", breaks: "G35",
			what: "Once reports an open or cancelled entry as done.",
			edits: []edit{
				{"Type.Once", `_, $err = $completeTx($ctx, $tx, $id)`, `return false, nil`},
			},
			sees: tests("TestOnceCompletesWhatIsOpenAndRefusesWhatEndedOtherwise").with(simulation, "1000"),
		},
		{
			name: "unknown-commit-is-run-again", breaks: "G36",
			what: "Retryable says yes to a transaction whose COMMIT is unknown, so it may happen twice.",
			edits: []edit{
				{"txwatch.Retryable", `case $err == nil, errors.Is($err, processlog.ErrCommitUnknown):`, `case $err == nil:`},
			},
			sees: tests("TestWhatMayBeRunAgainIsToldFromWhatIsWrongAndWhatIsUnknown"),
		},
		{
			name: "lost-commit-is-run-again-unasked", breaks: "G36",
			what: "WithRetry runs a transaction again after a lost COMMIT without asking whether it happened.",
			edits: []edit{
				{"Compensator.resolveUnknown",
					`switch $e, $asked := $resolve($ctx, $proof); {`,
					`switch $e, $asked := new(Entry), ErrNotFound; {`},
			},
			sees: tests("TestTransactionWhoseCommitIsLostIsRunAgainOnlyIfItDidNotHappen"),
		},
		{
			name: "completed-entry-proves-by-being-there", breaks: "G36",
			what: "WithRetry takes any open entry with the id as proof that its transaction happened.",
			edits: []edit{
				{"proofs.proves", `return $state == $succeeded || !$byOnce[$proof]`, `return true`},
			},
			sees: tests("TestOnceThatCompletesWhatIsThereIsRunAgainIfItDidNotHappen", "TestLostCommitOfOnceIsRunAgainWhenAnotherTransactionRecordsItsID"),
		},
		{
			name: "unknown-commit-hidden", breaks: "G36",
			what: "A caller whose COMMIT is unknown is told that it was rolled back.",
			edits: []edit{
				{"Classify",
					`}
	return $unknown
}`,
					`}
	return RolledBack
}`},
			},
			sees: tests("TestUnknownCommitIsResolvedToWhatHappened"),
		},
		{
			name: "ids-in-the-sessions-charset", breaks: "G37",
			what: "An id is sent in the charset of the session, so the same id is recorded twice.",
			edits: []edit{
				{"dialect.formOf", `if !$plainTexts(&$drafts[$i]) {`, `if false {`},
			},
			sees: tests("TestEntriesAreRightWhateverASessionIsSetTo"),
		},
		{
			name: "session-unfit", breaks: "G37",
			what: "An entry is recorded in a session that changes what is stored.",
			edits: []edit{
				{"Store.guard",
					`if $fit != "" {
	$conditions = append($conditions, $fit)`,
					`if false {
	$conditions = append($conditions, $fit)`},
			},
			sees: tests("TestEntriesAreRightWhateverASessionIsSetTo"),
		},
		{
			name: "unfit-session-spends-attempts", breaks: "G7",
			what: "An entry pays with an attempt for a pooled session in which Record writes nothing.",
			edits: []edit{
				{"Store.Blame", `(errors.Is($err, processlog.ErrTxAborted) || processlog.IsSessionError($err))`, `errors.Is($err, processlog.ErrTxAborted)`},
			},
			sees: tests("TestUnfitSessionOfThePoolSpendsNoAttempt"),
		},
		{
			name: "unfit-session-stays-in-the-pool", breaks: "G37",
			what: "The pool hands a session in which Record writes nothing out again and again.",
			edits: []edit{
				{"Store.discardSession", `if processlog.IsSessionError($err) {`, `if false {`},
			},
			sees: tests("TestUnfitSessionOfThePoolSpendsNoAttempt"),
		},
		{
			name: "statements-without-the-database", breaks: "G37",
			what: "The library claims and settles entries of another log in a session that somebody left in the database there.",
			edits: []edit{
				{"Store.setSchema", `$table.database = $name`, `_ = $name`},
			},
			sees: tests("TestStoreKeepsEveryPromiseInSessionsLeftInAnotherDatabase", "TestProcessOnSessionsLeftInAnotherDatabaseRunsItsOwnLog"),
		},
		{
			name: "outcome-in-a-session-elsewhere", breaks: "G37",
			what: "The outcome of a transactional handler commits with changes that the handler made in another database.",
			edits: []edit{
				{"Store.setSchema", `fragments["and in schema"] = " AND " + $in`, `fragments["and in schema"] = "" + $in[:0]`},
			},
			sees: tests("TestHandlerWhoseSessionIsInAnotherDatabaseCommitsNothing"),
		},
		{
			name: "message-blamed-for-a-session", breaks: "G37",
			what: "A message is set aside because of the pooled session in which Record writes nothing.",
			edits: []edit{
				{"Recorder.cannotHold", `!processlog.IsSessionError($err) && (errors.As`, `(errors.As`},
			},
			sees: tests("TestMessageIsRecordedInAnotherSessionOfThePool"),
		},
		{
			name: "intake-blames-a-message-for-a-session", breaks: "G37",
			what: "An intake sets a message aside because of the pooled session in which Record writes nothing.",
			edits: []edit{
				{"batch.settle", `case serverDown($err), sessionRefused($err):`, `case serverDown($err):`},
			},
			sees: tests("TestUnfitSessionOfThePoolSetsNoMessageAside"),
		},
		{
			name: "letters-of-the-session-unchecked", breaks: "G37",
			what: "A session whose charset has other letters in the place of braces stores contents that nobody can decode.",
			edits: []edit{
				{"mysqlASCII",
					`$mysqlASCII = "OCTET_LENGTH(SPACE(1))=1 AND HEX(CONVERT('[^{|}~' USING utf8mb4))='5B5E7B7C7D7E'"`,
					`$mysqlASCII = "OCTET_LENGTH(SPACE(1))=1"`},
			},
			sees: tests("TestEntriesAreRightWhateverASessionIsSetTo"),
		},
		{
			name: "claim-by-the-sessions-clock", breaks: "G37",
			what: "A claim uses the clock of a session that somebody has set.",
			edits: []edit{
				{"Store.steady", `if $own != nil || $steady == "" {`, `if true {`},
				{"Calm",
					`"SET STATEMENT timestamp=0, lock_wait_timeout=5, "`,
					`"SET STATEMENT lock_wait_timeout=5, "`},
			},
			sees: tests("TestClaimInASessionWithAClockOfItsOwnIsNotEarly"),
		},
	}
}
