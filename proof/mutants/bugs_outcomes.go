package main

func ending() []mutant {
	return []mutant{
		{
			name: "goexit-ends-the-engine", breaks: "G7",
			what: "A function of the observer or a Retry that calls runtime.Goexit ends a goroutine of the engine.",
			edits: []edit{
				{"usererr.Contain", `go func() {`, `func() {`},
			},
			sees: tests("TestFunctionThatEndsItsGoroutineStopsNothing"),
		},
		{
			name: "undone-is-cancelled", breaks: "G3",
			what: "A service may cancel or complete a dead entry whose compensation has begun.",
			edits: []edit{
				{"Change.After",
					`case $state == $dead && $compensateCount > 0 && !$persons():`,
					`case $state == $dead && $compensateCount < 0:`},
			},
			sees:    tests("TestDeadEntryIsEndedByAServiceUnlessItsCompensationHasBegun").with(simulation, "300"),
			inModel: "m:ends-the-undone",
		},
		{
			name: "requeued-unseen", breaks: "G3",
			what: "A requeue takes entries that have changed since the person saw them.",
			edits: []edit{
				{"Change.AfterSeen",
					`if $version != $number || $idempotencyKey != $seenIdempotentID {`,
					`if $idempotencyKey != $seenIdempotentID {`},
			},
			sees: tests("TestEntryThatChangedSinceItWasSeenIsNotRequeued", "TestMemoryStoreKeepsEveryPromise/RequeueAllTakesWhatStandsAsItWasSeen").with(simulation, "1000"),
		},
		{
			name: "erased-runs-again", breaks: "G3",
			what: "A requeue starts an erased entry, and its handler gets no content.",
			edits: []edit{
				{"Change.After", `case $action == ActionRequeue && $erased:`, `case false:`},
			},
			sees: tests("TestErasedEntryHoldsNothingPersonalAndStaysKnown").with(simulation, "1000"),
		},
		{
			name: "already-succeeded-is-nil", breaks: "G3",
			what: "Complete reports no error for an entry that has succeeded, so a consumer does the work twice.",
			edits: []edit{
				{"Change.After",
					`case $action == $actionCancel && $state == $cancelled:`,
					`case $state == rule.toState && rule.toState.Terminal() && !ch.Audited():`},
			},
			sees: tests("TestWorkThatHasSucceededIsNotDoneAgain"),
		},
		{
			name: "leases-ignored", breaks: "G4",
			what: "A claim takes entries whose lease another process holds.",
			edits: []edit{
				{"claim.claimable", `$dueIn <= 0 && ($leaseLeft <= 0 || $ours($row))`, `$dueIn <= 0`},
				{"claimCall.claimLocked", `case $dueIn > 0 || $leaseLeft > 0 && !$own:`, `case $dueIn > 0 || false && !$own:`},
			},
			sees:    tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ClaimSortsWhatItCannotHave", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ConcurrentClaimsGetEachEntryOnce").with(simulation, "300"),
			inModel: "m:queue-trusted",
		},
		{
			name: "claim-without-version", breaks: "G4",
			what: "A claim writes without comparing the version, so two processes can claim one row.",
			edits: []edit{
				{"claimRows",
					`" WHERE id IN ({ids}) AND version={version}{and steady}"`,
					`" WHERE id IN ({ids}) AND version>=0*{version}{and steady}"`},
			},
			sees: tests("TestClaimsHaveOneOwnerWhereRowLocksLockNothing"),
		},
		{
			name: "settle-without-fence", breaks: "G4",
			what: "An outcome is stored although another process has claimed the entry since.",
			edits: []edit{
				{"settleRows",
					`" WHERE id IN ({ids}) AND version={version} AND state+0 IN (0,-1,-3) AND {same entries}"`,
					`" WHERE id IN ({ids}) AND state+0 IN (0,-1,-3) AND {same entries}"`},
				{"version.acceptsOutcome", `return $version == $outcomeVersion && !$terminal()`, `return !$terminal()`},
			},
			sees:    tests("TestStaleFailureIsDropped", "TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration").with(simulation, "300").with(chaos, "60s"),
			inModel: "m:failure-unfenced",
		},
		{
			name: "cancel-keeps-version", breaks: "G4",
			what: "A person's action does not raise the version, so the running attempt keeps its fence.",
			edits: []edit{
				{"Change.After",
					`$version++
$token = $chToken`,
					`$token = $chToken`},
			},
			sees: tests("TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration", "TestActionsFollowTheContract"),
		},
		{
			name: "effect-without-fence", breaks: "G5",
			what: "A transactional handler commits its effect although another process has claimed the entry since.",
			edits: []edit{
				{"sqlstore.Store.SettleTx", `case $changed == 1:`, `case $changed <= 1:`},
				{"memory.Store.SettleTx",
					`case $row == nil || !$seenBy($own).$admits($outcome, true):`,
					`case $row != nil && !$seenBy($own).$admits($outcome, true):
	return nil
case $row == nil:`},
			},
			sees: tests("TestStaleTransactionalEffectIsRolledBack", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SettleTxIsFenced").with(simulation, "300"),
		},
		{
			name: "unknown-handler-commit-fails", breaks: "G5",
			what: "A handler whose COMMIT got no answer counts as a failed attempt.",
			edits: []edit{
				{"Transactions.resultOfCommit",
					`case errors.Is($err, processlog.ErrNotRecorded), errors.Is($err, processlog.ErrNoTransaction):`,
					`return engine.Result{Err: $err}
case errors.Is($err, processlog.ErrNotRecorded), errors.Is($err, processlog.ErrNoTransaction):`},
			},
			sees:    tests("TestTransactionalEffectHappensOnceThoughItsCommitIsUnknown").with(simulation, "2000"),
			inModel: "m:unknown-is-failure",
		},
		{
			name: "handler-ends-its-own", breaks: "G5",
			what: "A transactional handler may end its own entry, and its success is then dropped.",
			edits: []edit{
				{"Compensator.changeTx",
					`if $err = cmp.Or($or($err), $scopedOf($tx).$refuseOwn($ref)); $err != nil {`,
					`if $err = cmp.Or($or($err), $scopedOf(nil).$refuseOwn($ref)); $err != nil {`},
			},
			sees: tests("TestTransactionalHandlerDoesNotEndItsOwnEntry"),
		},
		{
			name: "handler-completes-its-own", breaks: "G5",
			what: "A transactional handler may complete its own entry in another transaction. Its effect is then rolled back, and the entry shows a success.",
			edits: []edit{
				{"Compensator.refuseOwn", `return refuseChange($row, $ref)`, `return nil`},
			},
			sees: tests("TestTransactionalHandlerDoesNotCompleteItsOwnEntryInAnotherTransaction"),
		},
		{
			name: "answer-fits-by-chance", breaks: "G6",
			what: "A batch handler's answer of the wrong length is taken as the verdict on other entries.",
			edits: []edit{
				{"typedBatch", `return make([]error, len($entries)+1)`, `return answers`},
			},
			sees: tests("TestAnswerForEntriesThatCouldNotBeDecodedIsNoVerdict"),
		},
		{
			name: "unknown-handler-commit-succeeds", breaks: "G6",
			what: "A handler whose COMMIT got no answer counts as a success.",
			edits: []edit{
				{"Transactions.resultOfCommit",
					`case errors.Is($err, processlog.ErrNotRecorded), errors.Is($err, processlog.ErrNoTransaction):`,
					`return engine.Result{Stored: true}
case errors.Is($err, processlog.ErrNotRecorded), errors.Is($err, processlog.ErrNoTransaction):`},
			},
			sees:    tests("TestLostCommitOfAHandlerIsRepeatedWithinItsLease"),
			inModel: "m:unknown-is-success",
		},
		{
			name: "cancel-completes", breaks: "G6",
			what: "Cancel stores succeeded instead of cancelled.",
			edits: []edit{
				{"Compensator.Cancel",
					`return $cancelled($change($ctx, processlog.Change{$ref: $ref2, $action: $actionCancel}))`,
					`return $cancelled($change($ctx, processlog.Change{$ref: $ref2, $action: processlog.ActionComplete}))`},
			},
			sees: selection{}.with(simulation, "300"),
		},
		{
			name: "exhausted-early", breaks: "G7",
			what: "An entry is exhausted one failure too early.",
			edits: []edit{
				{"Type.countFailure", `*$count < $t.$maxFailures($row)`, `*$count+1 < $t.$maxFailures($row)`},
			},
			sees:    tests("TestSuccessIsNeverCompensated", "TestEntrysOwnMaxAttemptsIsItsBudget").with(simulation, "300"),
			inModel: "m:exhaust-early",
		},
		{
			name: "file-error-is-the-statements-fault", breaks: "G7",
			what: "An error number below 1000, for example of a full directory of temporary files, costs an attempt.",
			edits: []edit{
				{"mysqlerr.Blames", `$err.Number > 0 && $err.Number < firstOfMessageList`, `$err.Number > firstOfMessageList && $err.Number < firstOfMessageList`},
			},
			sees: tests("TestServerWithoutItsTemporaryFilesSpendsNoAttempt"),
		},
		{
			name: "server-fault-counts", breaks: "G7",
			what: "A lock timeout or a full disk costs a transactional handler an attempt.",
			edits: []edit{
				{"attemptTx.storeSuccess",
					`if $may, $whole := $serversFault(usererr.Safe($err)); $may && $ended() == nil {`,
					`if $may, $whole := $serversFault(usererr.Safe($err)); $may && a == nil {`},
			},
			sees: tests("TestServersConditionSpendsNoAttempt").with(simulation, "600"),
		},
		{
			name: "snooze-counts", breaks: "G7",
			what: "A handler that asks to be called later loses an attempt.",
			edits: []edit{
				{"Type.outcomeOf",
					`$after = $backoff($v, max(1, $attempt()-1))`,
					`o.ProcessCount, o.To = o.ProcessCount+1, processlog.Retrying
$after = $backoff($v, max(1, $attempt()-1))`},
			},
			sees: tests("TestVerdictsOfAHandlerAreObeyed").with(simulation, "300"),
		},
		{
			name: "wait-counts-at-once", breaks: "G7",
			what: "For a type with MaxWait every wait counts as a failure from the first one on.",
			edits: []edit{
				{"Type.PastMaxWait",
					`func ($t *$type) $hadItsTime($row *processlog.Row) bool { return $maxWait > 0 && $age() >= $maxWait }`,
					`func ($t *$type) $hadItsTime($row *processlog.Row) bool { return $maxWait > 0 }`},
			},
			sees: tests("TestHandlersWaitsAreFailuresOnceMaxWaitIsOver", "TestWaitsCountOnceMaxWaitIsOver").with(simulation, "1000"),
		},
		{
			name: "batch-failure-spreads", breaks: "G7",
			what: "A batch without a verdict counts as a failure of each of its entries.",
			edits: []edit{
				{"batchCalls.runBatch",
					`case !$whole:
	$again($a, $timedOut)
case $verdicts == nil:`,
					`case !$whole:
	_ = timedOut
	c.e.Finish($a, engine.Result{Err: errNoVerdict})
case $verdicts == nil:`},
			},
			sees: tests("TestBatchWithoutAVerdictForEachEntrySpendsNoAttempt"),
		},
		{
			name: "busy-service-uses-attempts-up", breaks: "G7",
			what: "An HTTP answer that says busy or down costs an attempt.",
			edits: []edit{
				{"httpcall.Outcome",
					`return compensator.RetryAfter(min($wait, $longestWait), compensator.Unavailable($err))`,
					`return compensator.RetryAfter(min($wait, $longestWait), $err)`},
			},
			sees: tests("TestAnswerBecomesAnOutcome"),
		},
		{
			name: "success-not-absorbed", breaks: "G8",
			what: "A success that arrives after its lease has ended is dropped.",
			edits: []edit{
				{"sqlstore.groupOf", `if $to.IsSuccess() {`, `if $to == processlog.Compensated {`},
				{"version.acceptsOutcome", `case !$inTx && $to == processlog.Succeeded:`, `case false:`},
			},
			sees: tests("TestStaleSuccessIsAbsorbedWhileTheEntryIsOnItsWay").with(simulation, "300"),
		},
		{
			name: "settle-forgets-token", breaks: "G8",
			what: "A settle that is repeated after a lost answer takes its own write for another process's.",
			edits: []edit{
				{"Store.explain",
					`$result[$i] = processlog.Settled{$applied: $token == $token2, $state: $rowState}`,
					`$result[$i] = processlog.Settled{$state: $rowState}`},
				{"Store.settleLocked",
					`if !$admits($outcome, false) {
if $token == $token2 {`,
					`if !$admits($outcome, false) {
if false {`},
			},
			sees:    tests("TestOutcomeWhoseReplyWasLostIsCountedOnce"),
			inModel: "m:settle-blind",
		},
		{
			name: "settle-not-repeated", breaks: "G8",
			what: "An outcome is given up when the database does not take it at once.",
			edits: []edit{
				{"Engine.writeOutcomes",
					`if !$pause($backoff($failures)) {`,
					`if true || !$pause($backoff($failures)) {`},
			},
			sees: tests("TestOutcomeWhoseReplyWasLostIsCountedOnce").with(simulation, "300"),
		},
		{
			name: "holder-claims-again", breaks: "G8",
			what: "A process claims again an entry that it still runs or whose outcome it still holds.",
			edits: []edit{
				{"picker.mayClaim",
					`case $held && !$stuck, $stuck && min(-$leaseLeft, -$dueIn) < $lease:`,
					`case $held && $stuck && min(-$leaseLeft, -$dueIn) < $lease:`},
				{"holdings.admit",
					`if $err() != nil || $held[$holding()] != nil || $ended($now) {`,
					`if $err() != nil || $ended($now) {`},
			},
			sees:    tests("TestOutcomeThatWaitsComesBeforeAClaimOfItsOwnProcess").with(simulation, "300"),
			inModel: "m:holder-claims-again",
		},
		{
			name: "outcome-waits-while-leases-end", breaks: "G8",
			what: "An entry is dead-lettered when its third lease ends, although a living process may hold its success.",
			edits: []edit{
				{"picker.mayClaim", `case $deliveryCount > $crashBudget:`, `case $deliveryCount >= $crashBudget:`},
				{"Engine.attemptsOf", `if $lost > $crashBudget {`, `if $lost >= $crashBudget {`},
			},
			sees: tests("TestCrashBudgetLeavesALeaseToTheSuccessOfALivingProcess").with(simulation, "300"),
		},
		{
			name: "stop-leaves-the-refused", breaks: "G15",
			what: "Run returns while an outcome that a trigger refused rests, although the database would take it now.",
			edits: []edit{
				{"refusals.List.RetryOutcomes", `$unanswered, $err := $unstored()
if !$unanswered {`, `$unanswered, $err := $unstored()
if true || !$unanswered {`},
			},
			sees: tests("TestRunStoresOutcomesThatTheDatabaseTakesAgain"),
		},
		{
			name: "refused-row-refuses-all", breaks: "G8",
			what: "One row that the database refuses keeps every outcome of its batch from being stored.",
			edits: []edit{
				{"writeApart", `if !$refusesRow($err) {`, `if $err != nil || !$refusesRow($err) {`},
			},
			sees: tests("TestRowThatTheDatabaseRefusesHoldsUpNoOther", "TestRefusedItemsAreFoundByHalving"),
		},
		{
			name: "records-into-refusals", breaks: "G8",
			what: "A process starts entries that it records, although the database refuses to store the outcomes of their type.",
			edits: []edit{
				{"readback.Starter.reserve", `$t.Linger() > 0 || s.e.OutcomesRefused($t)`, `$t.Linger() > 0`},
				{"readback.Starter.start", `!s.e.OutcomesBacklogged() && !s.e.OutcomesRefused($t)`, `!s.e.OutcomesBacklogged()`},
			},
			sees: tests("TestExplanationSaysThatOutcomesCannotBeStored"),
		},
		{
			name: "waiting-trigger-holds-up-all", breaks: "G8",
			what: "A trigger that waits for a lock keeps every outcome of its batch from being stored.",
			edits: []edit{
				{"sqlstore.Store.asWait", `if $inVain && $err() == nil {`, `if false {`},
			},
			sees: tests("TestTriggerThatWaitsForALockHoldsUpNoOther"),
		},
		{
			name: "waits-without-bound", breaks: "G8",
			what: "A call waits once for each piece of what waits, outlasts its deadline, and so does the next one.",
			edits: []edit{
				{"splitter.writeHalf",
					`$waits--
$lastWait = waitErr.took`,
					`$lastWait = waitErr.took`},
			},
			sees: tests("TestItemsThatWaitHoldUpNoOther"),
		},
		{
			name: "compensated-from-memory", breaks: "G12",
			what: "A compensation runs before the database knows that its entry is exhausted.",
			edits: []edit{
				{"Engine.Finish",
					`switch {`,
					`if done.outcome.To == processlog.Compensating && a.Row.State != processlog.Compensating && a.Type.Undo != nil {
	_ = a.Type.Undo(a)
}
switch {`},
			},
			sees: tests("TestExhaustionIsDurableBeforeTheCompensationRuns", "TestExhaustionLosesAgainstASuccessRecordedMeanwhile").with(simulation, "300"),
		},
		{
			name: "compensation-without-fence", breaks: "G12",
			what: "The failure of a compensation is stored although another process has claimed the entry since.",
			edits: []edit{
				{"Store.settleSQL",
					`return $sql($statement, append($args,
	"process_count"`,
					`others := func(id processlog.ID) bool { return v.of(id).To == processlog.Compensated || v.of(id).CompensateCount == 0 }
if !slices.ContainsFunc(v.ids, others) {
	$args = append($args, "version", "version AND state+0=-3")
}
return $sql($statement, append($args,
	"process_count"`},
				{"version.acceptsOutcome",
					`return $epoch == $outcomeEpoch && $state == processlog.Compensating`,
					`return $epoch == $outcomeEpoch && $state == processlog.Compensating
case outcome.To != processlog.Compensated && outcome.CompensateCount > 0:
	return $state == processlog.Compensating`},
			},
			sees:    tests("TestStaleFailureOfACompensationIsDropped").with(simulation, "2000"),
			inModel: "m:undo-unfenced",
		},
		{
			name: "compensation-absorbed-when-dead", breaks: "G12",
			what: "A late success of a compensation changes an entry that is dead.",
			edits: []edit{
				{"Store.settleSQL", `$from = "=-3"`, `$from = " IN (-2,-3)"`},
				{"version.acceptsOutcome",
					`return $epoch == $outcomeEpoch && $state == processlog.Compensating`,
					`return $epoch == $outcomeEpoch && ($state == processlog.Compensating || $state == processlog.Dead)`},
			},
			sees:    tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessOfACompensationIsAbsorbedWhileCompensating"),
			inModel: "m:absorb-terminal",
		},
		{
			name: "crash-compensated", breaks: "G12",
			what: "An entry that killed its process is compensated although its type did not ask for that.",
			edits: []edit{
				{"Type.crashOutcome",
					`if $compensateCrashed && $compensates() && $state != processlog.Compensating {`,
					`if $compensates() && $state != processlog.Compensating {`},
			},
			sees: tests("TestCrashedEntryIsCompensatedOnlyWhereItsTypeAsksForIt").with(simulation, "300"),
		},
		{
			name: "success-without-epoch", breaks: "G13",
			what: "A success of the former epoch ends the entry that a person has started again.",
			edits: []edit{
				{"Store.settleSQL", `"epoch", decimal(uint64($epoch))`, `"epoch", "epoch"`},
				{"version.acceptsOutcome",
					`return $epoch == $outcomeEpoch && ($state == processlog.Pending || $state == processlog.Retrying)`,
					`return ($state == processlog.Pending || $state == processlog.Retrying)`},
			},
			sees:    tests("TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SuccessIsAbsorbedWithinItsEpochOnly"),
			inModel: "m:epoch-ignored",
		},
		{
			name: "requeue-keeps-epoch", breaks: "G13",
			what: "A requeue starts no new epoch, so a late success of the old one ends it.",
			edits: []edit{
				{"Change.After",
					`$processCount, $compensateCount = 0, 0
$epoch++`,
					`$processCount, $compensateCount = 0, 0`},
			},
			sees:    tests("TestRequeuedEntryTakesNoOutcomeOfItsFormerGeneration").with(simulation, "300"),
			inModel: "m:same-epoch-again",
		},
		{
			name: "outcome-of-another-entry", breaks: "G13",
			what: "An outcome is written to whatever row has the id, also where it is another entry.",
			edits: []edit{
				{"Store.settleSQL", `"same entries", $keyed($keys)`, `"same entries", "1=1"`},
				{"version.isOfClaim", `return $idempotencyKey == $outcomeIdempotentID`, `return true`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/OutcomeNeverEndsAnEntryThatGotItsId"),
		},
	}
}
