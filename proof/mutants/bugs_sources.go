package main

func exchanging() []mutant {
	return []mutant{
		{
			name: "relay-confirm-not-awaited", breaks: "G20",
			what: "A relayed entry succeeds as soon as its message is written to the connection.",
			edits: []edit{
				{"channelPool.publish", `$awaitConfirm($ctx, $ch, $confirm)`, ``},
				{"channelPool.publish", `} else if $confirms[$i] == nil || !$confirms[$i].$acked() {`, `} else if $confirms[$i] == nil {`},
			},
			sees: tests("TestConfirmThatIsLostIsAskedForAgainUnderTheSameID", "TestFullQueueSpendsNoAttemptUnlessToldSo"),
		},
		{
			name: "relay-nack-is-success", breaks: "G20",
			what: "A negative confirm of the broker counts as success.",
			edits: []edit{
				{"channelPool.unconfirmed",
					`case !$isClosed():
	return $errNack`,
					`case !$isClosed():
	return nil`},
			},
			sees: tests("TestFullQueueSpendsNoAttemptUnlessToldSo"),
		},
		{
			name: "relay-return-ignored", breaks: "G20",
			what: "A message that the broker returned as unroutable counts as confirmed.",
			edits: []edit{
				{"channelPool.publish",
					`if $why, $unroutable := $returned[$messageId]; $unroutable {`,
					`if $why, $unroutable := $returned[$messageId]; $unroutable && false {`},
			},
			sees: tests("TestRefusedMessageWaitsForAPerson"),
		},
		{
			name: "consumer-acks-first", breaks: "G21",
			what: "A message is acknowledged before its work is done or its entry is recorded.",
			edits: []edit{
				{"session.handle",
					`if $settled($ctx, $raw, $d) {
_ = $ack(false)`,
					`_ = $ack(false)
if $settled($ctx, $raw, $d) {
	return`},
			},
			sees: tests("TestMessageThatComesAgainGoesIntoTheLogOnce", "TestFunctionThatDoesNotReturnIsToldToAndNamed"),
		},
		{
			name: "consumer-drops-the-refused", breaks: "G21",
			what: "A message that the log refuses is acknowledged and lost.",
			edits: []edit{
				{"session.settleDelivery", `return $setAside($ctx, $raw, $d, $err)`, `return true`},
			},
			sees: tests("TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged", "TestMessageThatCannotBeSetAsideIsHeld"),
		},
		{
			name: "router-acks-the-refused", breaks: "G21",
			what: "Watermill's router acknowledges a refused message that nothing has stored.",
			edits: []edit{
				{"Consumer.setAside",
					`if $err == nil || errors.Is($err, $errRefused) {
return $err`,
					`if true {
return nil`},
			},
			sees: tests("TestMessageTheLogRefusesIsSetAsideBeforeItIsAcknowledged", "TestMessageTheLogRefusesIsHeldWhereNothingTakesIt"),
		},
		{
			name: "refused-row-held", breaks: "G21",
			what: "A message whose row a trigger refuses is held for ever, and takes a slot of the consumer.",
			edits: []edit{
				{"Recorder.refusesOnly", `return $encodes($empty) && $trial($ctx) == nil`, `return false`},
			},
			sees: tests("TestMessageThatTheLogAlwaysRefusesIsErrRefused", "TestMessageThatCanNeverBeRecordedIsSetAside", "TestMessageThatCanNeverBeRecordedIsPassedToRefused"),
		},
		{
			name: "condition-counts-as-refusal", breaks: "G21",
			what: "A message counts as refused if a lock or a full disk keeps its row out of the log.",
			edits: []edit{
				{"Recorder.refusesOnly", `operating.ServerDown($err) || processlog.IsSessionError($err) || compensator.Retryable($err)`, `operating.ServerDown(nil) || compensator.Retryable(nil)`},
			},
			sees: tests("TestMessageThatTheLogMayTakeLaterIsHeld"),
		},
		{
			name: "deadline-ends-the-hold", breaks: "G21",
			what: "A deadline in watermill's router nacks a message while the database is unavailable.",
			edits: []edit{
				{"relay.untilCancelled", `$ctx.Err() == context.Canceled`, `$ctx.Err() != nil`},
			},
			sees: tests("TestOutageOfTheDatabaseSpendsNoDeliveryOfAQuorumQueue"),
		},
		{
			name: "intake-acks-before-commit", breaks: "G22",
			what: "The intake acknowledges messages before their entries are committed.",
			edits: []edit{
				{"Intake.processBatch",
					`}
$settle($works, $items)`,
					`}
in.acknowledge($works, messages)
$settle($works, $items)`},
			},
			sees: tests("TestNothingIsAcknowledgedBeforeItIsCommitted", "TestNoSeedLosesOrDoublesAMessage").with(crash, "messages-written,streamed"),
		},
		{
			name: "intake-condition-is-a-fault", breaks: "G22",
			what: "A condition of a server that Work meets is taken for the fault of its message, which is set aside.",
			edits: []edit{
				{"intake.serverDown", `return $x`, `return false && $x`},
			},
			sees: tests("TestConditionOfAServerThatWorkMeetsIsNoMessagesFault"),
		},
		{
			name: "intake-culprit-dropped", breaks: "G22",
			what: "A message that fails alone is acknowledged without an entry.",
			edits: []edit{
				{"batch.condemn", `$settle($ctx, []*$item{$it})`, `it.isSettled = true`},
			},
			sees: tests("TestMessageThatFailsForAWhileIsDoneByTheLog", "TestPoisonIsSetAsideAsItCameAndHoldsUpNobody", "TestNoSeedLosesOrDoublesAMessage").with(crash, "aside-settled,streamed"),
		},
		{
			name: "intake-waits-for-a-refused-row", breaks: "G22",
			what: "The intake tries a message whose row a trigger refuses without end, and takes no other message.",
			edits: []edit{
				{"batch.failsAlone", `return $err, $trial($ctx) == nil && $x`, `return $err, false && $trial($ctx) == nil`},
			},
			sees: tests("TestMessageWhoseRowIsRefusedIsInNobodysWay"),
		},
		{
			name: "intake-doubt-is-commit", breaks: "G22",
			what: "A COMMIT whose answer was lost counts as done, and its messages are acknowledged.",
			edits: []edit{
				{"batch.recordOnce", `return $resolve($works, $items, $receipt), $err`, `$err = nil`},
			},
			sees: tests("TestBatchWhoseCommitIsInDoubtIsResolvedBeforeItIsAcknowledged", "TestNothingIsAcknowledgedBeforeItIsCommitted", "TestNoSeedLosesOrDoublesAMessage"),
		},
		{
			name: "mark-unfenced", breaks: "G23",
			what: "A process moves a mark that has moved since it read it, so slots are made twice.",
			edits: []edit{
				{"lockMark",
					`"SELECT business_type FROM {slots} WHERE business_type={type} AND slot={from} LIMIT 1{lock now}"`,
					`"SELECT business_type FROM {slots} WHERE business_type={type} LIMIT 1{lock now}"`},
				{"sqlstore.moveMark",
					`"UPDATE {slots} SET slot={to} WHERE business_type={type} AND slot={from}"`,
					`"UPDATE {slots} SET slot={to} WHERE business_type={type}"`},
				{"memory.Store.MoveMark",
					`if $m == nil || $holder != nil && $holder != $own || $seenBy($own) != $unixMilli() {`,
					`if $m == nil || $holder != nil && $holder != $own {`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/MarkThatHasMovedIsNotMovedAgain", "TestMemoryStoreKeepsEveryPromise/MarkThatHasMovedIsNotMovedAgain"),
		},
		{
			name: "missed-slots-dropped", breaks: "G23",
			what: "Only the newest missed slot is made up for, whatever CatchUp says.",
			edits: []edit{
				{"Periodic",
					`return $recur($ctx, features.Period{$name: $tName, $schedule: $next, $catchUp: $cfgCatchUp,`,
					`return $recur($ctx, features.Period{$name: $tName, $schedule: $next, $catchUp: 1,`},
			},
			sees: tests("TestMissedSlotsAreMadeUpForAsTold").with(simulation, "1000"),
		},
		{
			name: "slots-by-this-clock", breaks: "G23",
			what: "Slots follow the clock of the process instead of the database's.",
			edits: []edit{
				{"Calendar.runRound",
					`$read := time.Now()`,
					`$read := time.Now()
now = $read`},
			},
			sees: tests("TestSlotsAreThoseOfTheDatabasesClock"),
		},
		{
			name: "cron-skips-2104", breaks: "G23",
			what: "A schedule that finds no slot within five years continues decades later.",
			edits: []edit{
				{"nextWallTime",
					`$shown = time.Date($year()+5, time.December, 31, 23, 59, 59, 0, time.UTC)`,
					`$shown = time.Date($year()+50, time.December, 31, 23, 59, 59, 0, time.UTC)`},
			},
			sees: tests("TestLeapDayHasItsSlotAcrossTheYear2100"),
		},
		{
			name: "adopt-id-drawn", breaks: "G28",
			what: "A row's entry gets a random id, so a row that is read twice has two entries.",
			edits: []edit{
				{"pageRun.takeRow", `$idempotencyKey = $tIdempotentID($text)`, `_ = $tIdempotentID($text)`},
			},
			sees: tests("TestTableThatStaysUnchangedGivesEachRowOneEntry", "TestNoRowIsLostOrDoubledWhileImportersAreKilled"),
		},
		{
			name: "adopt-take-left-out", breaks: "G28",
			what: "Rows are recorded but stay with the old system too.",
			edits: []edit{
				{"pageRun.recordRows", `if $take == "" {`, `if $take != "" {`},
			},
			sees: tests("TestEveryOldRowBecomesOneEntryAndIsTakenWithIt", "TestOldScannerAndImportSideBySideRunEachRowOnce").with(crash, "rows-adopted,adopting"),
		},
		{
			name: "adopt-refused-is-taken", breaks: "G28",
			what: "A row whose mapping fails is taken from the old system without an entry.",
			edits: []edit{
				{"pageRun.takeRow",
					`default:`,
					`t.takenKeys = append(t.takenKeys, k)
default:`},
			},
			sees: tests("TestBadRowIsNamedAndHoldsUpNoOther"),
		},
		{
			name: "adopt-shares-a-key", breaks: "G28",
			what: "Two rows with the same key get one entry, and both are taken.",
			edits: []edit{
				{"pageRun.readRows", `if $seen[$text] {`, `if $seen[$text] && false {`},
			},
			sees: tests("TestKeyThatSeveralRowsShareIsRefused"),
		},
		{
			name: "adopt-takes-without-transactions", breaks: "G28",
			what: "Rows of a table whose engine has no transactions are taken, and stay taken when the page is rolled back.",
			edits: []edit{
				{"pageRun.lock", `if $lock != "" && $take != "" {`, `if $lock == "" && $take != "" {`},
			},
			sees: tests("TestTableWithoutTransactionsIsNotTakenFrom"),
		},
	}
}
