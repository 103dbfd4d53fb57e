package main

func surviving() []mutant {
	return []mutant{
		{
			name: "repeatable-read", breaks: "G14",
			what: "The library's transactions run at REPEATABLE READ and lock gaps that producers insert into.",
			edits: []edit{
				{"beginMySQL",
					`return $beginTx($ctx, &sql.TxOptions{$isolation: sql.LevelReadCommitted})`,
					`return $beginTx($ctx, &sql.TxOptions{$isolation: sql.LevelRepeatableRead})`},
				{"ownTransactions",
					`$ownTransactions = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"`,
					`$ownTransactions = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE"`},
			},
			sees: tests("TestProducerNeverWaitsForAStatementOfOurs", "TestOwnTransactionsAreReadCommittedWhateverTheServersDefault"),
		},
		{
			name: "skip-locked-removed", breaks: "G14",
			what: "A claim waits for locked rows, and everything that is due waits with it.",
			edits: []edit{
				{"mysqlDialect", `$skipLocked: " FOR UPDATE SKIP LOCKED",`, `$skipLocked: " FOR UPDATE",`},
				{"proof.trySkipLocked", `$halves = true`, `$halves = false`},
			},
			sees: tests("TestLeasesOfFreeRowsAreRenewedWhileOneIsLocked", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ClaimNeverWaitsForALockedRow"),
		},
		{
			name: "credits-leak", breaks: "G14",
			what: "A transaction that rolls back does not give its reserved slots back.",
			edits: []edit{
				{"Engine.CancelReservation", `$reservation.$use(0)`, ``},
			},
			sees: tests("TestAbandonedTransactionsKeepNoSlots"),
		},
		{
			name: "blocked-for-a-year", breaks: "G14",
			what: "A statement of the library waits for a lock on a table as long as the server's default says.",
			edits: []edit{
				{"ownSettings",
					`", lock_wait_timeout=5, autocommit=1, completion_type=0, timestamp=DEFAULT, "`,
					`", lock_wait_timeout=51536000, autocommit=1, completion_type=0, timestamp=DEFAULT, "`},
			},
			sees: tests("TestStatementOfOursEndsOnABlockedServerByItself"),
		},
		{
			name: "loss-unnoticed", breaks: "G19",
			what: "A database that was restored to an older state is taken for the same database.",
			edits: []edit{
				{"lostOf",
					`if $refutes($now, $exists) && ($exists || !$purgedSince($notes, $at)) {`,
					`if false && $refutes($now, $exists) && ($exists || !$purgedSince($notes, $at)) {`},
			},
			sees: tests("TestNothingStartsInADatabaseThatHasGoneBackUntilAPersonSaysGoOn", "TestWorkGoesOnInADatabaseThatHasGoneBackWhichIsReported", "TestProcessThatOnlyRecordsReportsADatabaseThatHasGoneBack").with(simulation, "500"),
		},
		{
			name: "loss-noticed-but-claims-go-on", breaks: "G19",
			what: "A process that a loss shall stop goes on claiming.",
			edits: []edit{
				{"Engine.leaseWanted",
					`if $err := $held(); $err != nil {
	return $claimed{}, $err
}`,
					``},
				{"Engine.startClaims", `case $held() != nil:`, `case false:`},
				{"Detector.verifyClaimed",
					`if $err := $Lost(); $err != nil {
	return $err
}`,
					``},
			},
			sees: tests("TestNothingStartsInADatabaseThatHasGoneBackUntilAPersonSaysGoOn").with(simulation, "500"),
		},
		{
			name: "loss-stops-all", breaks: "G19",
			what: "A process that shall only report a loss claims nothing more.",
			edits: []edit{
				{"Detector.Watch",
					`if $stops {
	$Claimed, $Hold = $verify, $Lost
}`,
					`w.Claimed, w.HoldReason = d.verifyClaimed, d.Lost`},
			},
			sees: tests("TestWorkGoesOnInADatabaseThatHasGoneBackWhichIsReported"),
		},
		{
			name: "claims-trusted", breaks: "G19",
			what: "Claimed entries start without the check that the database still has what this process saw.",
			edits: []edit{
				{"Engine.leaseWanted",
					`if $err == nil {
	$err = $sawClaimed($mine, $asked)`,
					`if $err == nil {
	_ = $sawClaimed(nil, $asked)`},
			},
			sees: tests("TestNothingClaimedAfterAFailoverStartsUntilAPersonSaysGoOn").with(simulation, "1000"),
		},
		{
			name: "loss-reported-under-the-lock", breaks: "G19",
			what: "The observer hears of a loss while the lock is held that AcceptLoss needs.",
			edits: []edit{
				{"Detector.unlock",
					`<-$d.$guard
$d.$reportMissing($found.$missing)`,
					`defer func() { <-$d.$guard }()
$d.$reportMissing($found.$missing)`},
			},
			sees: tests("TestLossCanBeAcceptedInsideItsCallback", "TestLossCanBeAcceptedWhereAnEntryIsReportedMissing"),
		},
		{
			name: "lost-connection-is-a-finding", breaks: "G14",
			what: "New takes a session that was killed during its trials for a property of the server.",
			edits: []edit{
				{"sqlstore.lostConnection", `return mysqlerr.IsBroken($err) ||`, `return false && mysqlerr.IsBroken($err) ||`},
			},
			sees: tests("TestNewNamesALostConnectionAndNoOtherCause"),
		},
		{
			name: "loss-of-what-never-was", breaks: "G19",
			what: "An entry rolled back to a savepoint is taken for one that the database has lost.",
			edits: []edit{
				{"Detector.keepRecorded",
					`return // no id to ask for
}`,
					`return // no id to ask for
}
d.versions.sawRows([]processlog.Row{{ID: r.ID, IdempotencyKey: r.IdempotencyKey, BusinessType: r.BusinessType, Token: processlog.NewToken()}}, time.Now())`},
			},
			sees: tests("TestNothingIsTakenForALossThatIsNone").with(simulation, "500"),
		},
		{
			name: "keep-takes-young", breaks: "G24",
			what: "Ended entries are purged before their time, so their idempotency keys guard no more.",
			edits: []edit{
				{"Compensator.purgeStep",
					`$n, $err := $purge($step, $businessType, $state, $keep, $keepStep)`,
					`$n, $err := $purge($step, $businessType, $state, $keep/2, $keepStep)`},
			},
			sees: tests("TestEndedEntriesArePurgedOnceTheyHaveBeenKept").with(simulation, "1000"),
		},
		{
			name: "keep-takes-dead", breaks: "G24",
			what: "Dead entries are purged before any person has seen them.",
			edits: []edit{
				{"Compensator.addRetention", `for _, $state := range $purged {`, `for _, $state := range append($purged[:3:3], Dead) {`},
			},
			sees: tests("TestEndedEntriesArePurgedOnceTheyHaveBeenKept").with(simulation, "1000"),
		},
		{
			name: "purge-takes-what-moved-on", breaks: "G24",
			what: "A purge deletes rows that a person has set in motion since it read them.",
			edits: []edit{
				{"purgeRows",
					`"{DELETE FROM log} WHERE id IN ({ids}) AND state+0={state} AND next_at<{now}-{age}"`,
					`"{DELETE FROM log} WHERE id IN ({ids})"`},
				{"purgeFree",
					`"SELECT id FROM {log}{by uk_idempotent_id} WHERE idempotent_id IN ({keys}) AND state+0={state} AND next_at<{now}-{age}{lock}"`,
					`"SELECT id FROM {log}{by uk_idempotent_id} WHERE idempotent_id IN ({keys}){lock}"`},
			},
			sees: tests("TestPurgeSparesWhatHasMovedOnSinceItWasFound"),
		},
		{
			name: "odd-version-fails-its-claim", breaks: "G29",
			what: "A row with the highest version fails every claim that includes it.",
			edits: []edit{
				{"claim.update", `if $version >= $lastVersion {`, `if $version == 0 && $lastVersion == 0 {`},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
		{
			name: "odd-date-fails-its-page", breaks: "G29",
			what: "A row with a zero date fails every read that includes it.",
			edits: []edit{
				{"mysqlDialect",
					`return "COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + $col + ") DIV 1000,0)"`,
					`return "(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00'," + $col + ") DIV 1000)"`},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
		{
			name: "misfits-untold", breaks: "G29",
			what: "Rows that can never run are reported to nobody.",
			edits: []edit{
				{"search",
					`$saw($problemRows, $describe($found))`,
					`$saw($problemRows, $describe($found[:0]))`},
			},
			sees: tests("TestRowOfAnyShapeStopsNoOther"),
		},
	}
}
