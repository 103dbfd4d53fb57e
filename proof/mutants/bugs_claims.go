package main

func claiming() []mutant {
	return []mutant{
		{
			name: "claimed-early", breaks: "G9",
			what: "A claim takes entries before they are due, when the queue says that they are.",
			edits: []edit{
				{"claim.claimable", `$dueIn <= 0 && ($leaseLeft <= 0 || $ours($row))`, `($leaseLeft <= 0 || $ours($row))`},
				{"claimCall.claimLocked", `case $dueIn > 0 || $leaseLeft > 0 && !$own:`, `case $leaseLeft > 0 && !$own:`},
			},
			sees:    tests("TestStaleQueueEntryNeverRunsTheRowThatGotItsId", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/DelayedEntryIsNotClaimedEarly").with(simulation, "300"),
			inModel: "m:no-early-guard",
		},
		{
			name: "due-cut", breaks: "G9",
			what: "A due time is stored one millisecond too early, because the database's clock is truncated.",
			edits: []edit{
				{"DueAfter", `return $millis($d) + 1`, `return $millis($d)`},
			},
			sees: tests("TestStoredDueMomentIsNeverEarly"),
		},
		{
			name: "delay-dropped", breaks: "G9",
			what: "Record ignores the delay, so the entry is due at once.",
			edits: []edit{
				{"Compensator.draft", `$delayField: $delay, $doneField: $done }`, `$delayField: 0 * $delay, $doneField: $done }`},
			},
			sees: selection{}.with(simulation, "300"),
		},
		{
			name: "lost-type-unnoticed", breaks: "G10",
			what: "No process learns that the queue has lost the entries of one type.",
			edits: []edit{
				{"losses.add", `if len($businessTypes) == 0 {`, `if len($businessTypes) >= 0 {`},
			},
			sees: tests("TestTypeThatRedisLostIsRebuiltAlone", "TestRecordingNoticesThatRedisLostAType"),
		},
		{
			name: "lasting-outage-unlogged", breaks: "G10",
			what: "An outage of the queue that begins in the quiet time is never logged, and Health inside QueueUp waits for itself.",
			edits: []edit{
				{"health.recordResult", `!h.warned && time.Since`, `first && !h.warned && time.Since`},
				{"newHealth", `= maxWaiting, 2,`, `= maxWaiting, 1,`},
			},
			sees: tests("TestOutageSoonAfterAnotherIsLoggedIfItLasts", "TestHealthInsideQueueUpSaysThatTheQueueAnswers"),
		},
		{
			name: "redis-retries", breaks: "G10",
			what: "The Redis client repeats a claim whose answer was lost, and so leases a second batch.",
			edits: []edit{
				{"ownSingleClient", `$maxRetries = -1`, `$maxRetries = 3`},
			},
			sees: tests("TestClaimWhoseReplyWasLostLeasesOneBatchOnly"),
		},
		{
			name: "queue-before-database", breaks: "G10",
			what: "The queue forgets an entry before the database has stored its outcome.",
			edits: []edit{
				{"Engine.settleWithToken",
					`$batch, $results, $asked := $writeOutcomes($token, $batch, $failed)`,
					`for _, o := range $batch {
	if o.attempt.queueToken != 0 {
		e.source.Settle(o.attempt.Type.Name, processlog.QueueOutcome{ID: o.outcome.ID, Token: o.attempt.queueToken, Remove: o.outcome.To.Terminal(), In: processlog.DueIn(o.outcome.After)})
	}
}
$batch, $results, $asked := $writeOutcomes($token, $batch, $failed)`},
			},
			sees:    tests("TestQueueKeepsAnEntryUntilTheDatabaseHasItsOutcome"),
			inModel: "m:queue-first",
		},
		{
			name: "queue-makes-due-entries-wait", breaks: "G10",
			what: "An entry that comes due at once waits for others before it is enqueued.",
			edits: []edit{
				{"queue.Queue.enqueue", `return $e.$In <= shareAfter`, `return false`},
			},
			sees: tests("TestEntriesThatComeDueLaterShareACall"),
		},
		{
			name: "queue-delay-grows-with-the-wait", breaks: "G1",
			what: "The time for which an entry waits to be enqueued is added to its delay.",
			edits: []edit{
				{"queue.Queue.flush", `$entries[$i].$In -= time.Since($waited.$since)`, ``},
			},
			sees: tests("TestEntriesThatComeDueLaterShareACall"),
		},
		{
			name: "queue-loss-untold", breaks: "G10",
			what: "A process does not notice that the queue has lost everything.",
			edits: []edit{
				{"redisqueue.readLeased", `$leased = processlog.Leased{Token: $token, Next: $next, Lost: $parts[3] == int64(1)}`, `$leased = processlog.Leased{Token: $token, Next: $next}`},
			},
			sees: tests("TestRedisQueueKeepsTheQueuesPromises/LossIsReportedUntilTheTypeIsRebuilt"),
		},
		{
			name: "gone-fails-claim", breaks: "G10",
			what: "One id that does not exist fails the claim of all the others.",
			edits: []edit{
				{"claim.classifyUnread",
					`$gone = append($gone, $without($unread, $locked)...)`,
					`if len($locked) < len($unread) {
	return fmt.Errorf("no such entry")
}`},
			},
			sees: tests("TestQueueMemberOfAnUncommittedEntryCostsNothing", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ClaimSortsWhatItCannotHave"),
		},
		{
			name: "plain-zadd", breaks: "G10",
			what: "Enqueueing an entry makes it due although another process has just leased it from the queue.",
			edits: []edit{
				{"lua/enqueue.lua", `if place > later + wait + longest then`, `if true then`},
			},
			sees:    tests("TestRedisQueueKeepsTheQueuesPromises/LeasedEntryKeepsItsLeaseWhenEnqueued"),
			inModel: "h:announce-overwrites",
		},
		{
			name: "unconditional-removal", breaks: "G10",
			what: "A settle removes an entry from the queue although another process has leased it since.",
			edits: []edit{
				{"lua/settle.lua", `if forgotten or was and (was == token or wait >= 0 and was > due) then`, `if forgotten or was then`},
			},
			sees:    tests("TestRedisQueueKeepsTheQueuesPromises/SettleRemovesOnlyUnderItsOwnToken"),
			inModel: "h:ack-without-token",
		},
		{
			name: "stop-drops-outcomes", breaks: "G15",
			what: "Run returns before the outcomes of its handlers are stored.",
			edits: []edit{
				{"Engine.Drain", `if !$await($graceEnd, &$batcher, &$prompt, &$slow) {`, `if false {`},
				{"Engine.Drain", `$await($graceEnd, $batchersAtDrainEnd...)
return $drainErr`, `return $drainErr`},
			},
			sees: tests("TestRunReturnsOnlyOnceOutcomesAreStored").with(simulation, "1000"),
		},
		{
			name: "stop-waits-without-limit", breaks: "G15",
			what: "A stop whose wait for claims succeeds at its deadline waits for the rest without a limit.",
			edits: []edit{
				{"Engine.Drain",
					`$await($graceEnd, $batchersAtDrainEnd...)
return $drainErr`,
					`if time.Now().Before($graceEnd) {
	$await($graceEnd, $batchersAtDrainEnd...)
} else {
	$await(time.Now().Add(1<<40), $batchersAtDrainEnd...)
}
return $drainErr`},
			},
			sees: tests("TestStopWhoseWaitSucceedsAtTheDeadlineWaitsForNothingMore"),
		},
		{
			name: "handler-starts-after-stop", breaks: "G15",
			what: "A handler starts after Run's context has ended.",
			edits: []edit{
				{"Engine.startCalls", `.context, attempts)`, `.handlers, attempts)`},
				{"Engine.TooLate", `case $stopping():`, `case false:`},
			},
			sees: tests("TestNoHandlerStartsOnceRunsContextHasEnded", "TestNoTransactionalHandlerStartsOnceRunsContextHasEnded").with(simulation, "300"),
		},
		{
			name: "stop-spends-attempts", breaks: "G15",
			what: "A handler that stops when Run stops loses an attempt.",
			edits: []edit{
				{"engine.interrupted",
					`return $isStopCause($cause) && ($isStopCause($err) || errors.Is($err, context.Canceled))`,
					`return $isStopCause($cause) && !errors.Is($cause, processlog.ErrStopping) && ($isStopCause($err) || errors.Is($err, context.Canceled))`},
			},
			sees: tests("TestHandlersThatObeyTheStopSpendNothing"),
		},
		{
			name: "crash-not-counted", breaks: "G16",
			what: "A claim does not count its delivery, so an entry that kills its process runs for ever.",
			edits: []edit{
				{"claimRows",
					`"UPDATE {log}{by id} SET version=version+1, delivery_count=delivery_count+1, token={token}, lease_until={now}+{lease}, updated_at={stamp}"`,
					`"UPDATE {log}{by id} SET version=version+1, delivery_count=GREATEST(1,delivery_count), token={token}, lease_until={now}+{lease}, updated_at={stamp}"`},
				{"claim.markClaimed",
					`if !$counted($row) {
	$deliveryCount++`,
					`if !$counted($row) {
	$deliveryCount = max(1, $deliveryCount)`},
				{"version.withClaim", `$deliveryCount++`, `$deliveryCount = max(1, $deliveryCount)`},
			},
			sees:    tests("TestEntryThatKillsItsProcessIsDeadLetteredAndNoOther").with(simulation, "300").with(crash, "claim-committed"),
			inModel: "m:crash-uncounted",
		},
		{
			name: "crash-budget-unreached", breaks: "G16",
			what: "An entry that kills its process is never dead-lettered.",
			edits: []edit{
				{"engine.crashBudget", `$crashBudget = 3`, `$crashBudget = 1 << 30`},
			},
			sees: tests("TestEntryThatKillsItsProcessIsDeadLetteredAndNoOther").with(simulation, "300").with(crash, "attempt-started,crashed"),
		},
		{
			name: "never-renewed", breaks: "G16",
			what: "The lease of a running attempt is not renewed, so another process runs the entry too.",
			edits: []edit{
				{"holdings.examine", `case $sub($now) < $lease*2/3, $ended($now):`, `case $sub($now) < -$lease:`},
			},
			sees: tests("TestLeaseIsRenewedWhileTheHandlerRuns"),
		},
		{
			name: "renewer-sleeps-on", breaks: "G16",
			what: "A process that has run nothing for a while renews no lease of what it runs then.",
			edits: []edit{
				{"holdings.admit", `if len($held) == 0 {`, `if len($held) < 0 {`},
			},
			sees: selection{}.with(simulation, "300"),
		},
		{
			name: "locked-row-ends-a-refusal", breaks: "G16",
			what: "A refused renewal leaves Health when its row is locked, although the database still refuses it.",
			edits: []edit{
				{"Engine.renewAll", `if $err == nil && !slices.Contains($busy, $id) {`, `if $err == nil {`},
			},
			sees: tests("TestRefusedRenewalStaysAProblemWhileItsRowIsLocked"),
		},
		{
			name: "debts-forgotten", breaks: "G16",
			what: "A lease that could not be given back is forgotten, and counts as a crash when it ends.",
			edits: []edit{
				{"releases.List.releaseNow", `d.addPending(left)`, `_ = left`},
			},
			sees: tests("TestClaimsOfUnknownEndCostNoDelivery"),
		},
		{
			name: "release-without-token", breaks: "G16",
			what: "Giving a claim back ends the lease of the process that holds the entry now.",
			edits: []edit{
				{"releaseRows",
					`" WHERE id IN ({ids}) AND token={token} AND delivery_count>0 AND lease_until>0"`,
					`" WHERE id IN ({ids}) AND token<>CONCAT({token},'x') AND delivery_count>0 AND lease_until>0"`},
				{"memory.Store.Release",
					`if $row == nil || $token != $token2 || $leaseUntil == 0 || $deliveryCount == 0 {`,
					`if $row == nil ||  $leaseUntil == 0 || $deliveryCount == 0 {`},
			},
			sees:    tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ReleaseUndoesOnlyItsOwnClaim").with(simulation, "2000"),
			inModel: "m:release-untokened",
		},
		{
			name: "stuck-claimed-here", breaks: "G16",
			what: "A process runs an entry again although one of its handlers is stuck on it.",
			edits: []edit{
				{"picker.mayClaim", `case $stuck, $deliveryCount == $crashBudget:`, `case $deliveryCount == $crashBudget:`},
				{"holdings.admit",
					`if $err() != nil || $held[$holding()] != nil || $ended($now) {`,
					`if $err() != nil || $held[$holding()] != nil && !$held[$holding()].stuck || $ended($now) {`},
			},
			sees:    tests("TestEntryWhoseHandlerNeverReturnsIsNotRunBesideIt").with(simulation, "300"),
			inModel: "m:stuck-claims-again",
		},
		{
			name: "lease-outlasts-a-suspension", breaks: "G16",
			what: "A handler starts under a lease that ended while the machine was suspended.",
			edits: []edit{
				{"Attempt.leaseEndedLocked", `return !$now.Before($leaseEnd) || !$now.Round(0).Before($leaseEnd.Round(0))`, `return !$now.Before($leaseEnd)`},
			},
			sees: tests("TestLeaseEndsWhileTheMachineIsSuspended"),
		},
		{
			name: "sqlite-transaction-loses-its-lease", breaks: "G16",
			what: "On SQLite a transactional handler blocks the renewal of its own lease and runs again for ever.",
			edits: []edit{
				{"Compensator.fitLease",
					`switch {
case $oneWriter && $usesTx && $lease < $enough:`,
					`switch {
case $oneWriter && $usesTx && $lease > $enough:`},
			},
			sees: tests("TestTransactionalHandlerMayTakeLongerThanItsLease", "TestLeaseOfATransactionOnSQLiteOutlastsItsTimeout"),
		},
		{
			name: "suspects-run-with-all", breaks: "G17",
			what: "Entries that have lost one lease run without the limit for suspects.",
			edits: []edit{
				{"typePlaces.takePlace", `if f.isFull() {`, `if false {`},
			},
			sees: tests("TestSuspectsRunAmongFewAndThoseOfTwoLostLeasesAlone", "TestInnocentsBesideKillersAreToldApart", "TestEntriesOfAPlainKillAreWorkedOffAmongFew").with(simulation, "2000"),
		},
		{
			name: "refused-suspect-keeps-its-place", breaks: "G17",
			what: "A suspect that another feature refuses keeps its place in the quarantine, so other suspects wait for ever.",
			edits: []edit{
				{"Type.accepts", `suspectDone($admissions[:$i], $row, $lost, $notClaimed)`, `_ = $i`},
			},
			sees: tests("TestEntryThatOneAdmissionRefusesIsGivenBackToTheOthers"),
		},
		{
			name: "alone-beside-few", breaks: "G17",
			what: "An entry that has lost two leases runs beside other suspects.",
			edits: []edit{
				{"Quarantine.enterLocked", `case $lost >= $aloneAfter && $total > 0:`, `case false:`},
			},
			sees: tests("TestSuspectsRunAmongFewAndThoseOfTwoLostLeasesAlone", "TestSuspectThatIsToRunAloneGetsItsTurn").with(simulation, "1000"),
		},
		{
			name: "alone-too-late", breaks: "G16",
			what: "An entry shares a call while it has one lease left, and is dead-lettered if another entry of the call crashes the process.",
			edits: []edit{
				{"engine.maxSharedLosses", `$maxSharedLosses = crashBudget - 1`, `$maxSharedLosses = crashBudget`},
			},
			sees: tests("TestEntryRunsAloneBeforeItsLastLease"),
		},
		{
			name: "foreign-entry-claimed", breaks: "G18",
			what: "A claim takes an entry of another type when the queue names it under this one.",
			edits: []edit{
				{"picker.accept",
					`if $businessType != $name || $Paused() || $state == processlog.Compensating && !$compensates() || !$mayClaim($row) {`,
					`if $Paused() || $state == processlog.Compensating && !$compensates() || !$mayClaim($row) {`},
			},
			sees: selection{}.with(simulation, "2000"),
		},
		{
			name: "unknown-types-unreported", breaks: "G18",
			what: "Overdue entries of types that no process knows are reported to nobody.",
			edits: []edit{
				{"reading.add", `if !$known[$businessType] && $overdue > $grace {`, `if false {`},
			},
			sees: tests("TestTypeOfAnotherInstanceIsLeftAloneAndReported"),
		},
	}
}
