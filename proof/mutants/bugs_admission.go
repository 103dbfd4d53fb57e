package main

func ordering() []mutant {
	return []mutant{
		{
			name: "breaker-lets-claimed-run", breaks: "G25",
			what: "Entries claimed while the breaker opened run all the same.",
			edits: []edit{
				{"Breaker.admit", `$n := min(len($attempts), $roomLocked())`, `$n := len($attempts)`},
			},
			sees: tests("TestOpenBreakerLetsNothingInThenOneProbeWhichClosesIt", "TestEntriesThatWereClaimedWhileTheBreakerOpenedAreGivenBack"),
		},
		{
			name: "breaker-void-probe-kept", breaks: "G25",
			what: "The breaker waits for ever for a probe that could not start.",
			edits: []edit{
				{"Breaker.attemptEnded", `$hear($a, $c, $nothing, nil)`, ``},
			},
			sees: tests("TestProbeThatTellsNothingIsFollowedByAnotherAfterTheSamePause"),
		},
		{
			name: "breaker-waits-for-a-refused-probe", breaks: "G25",
			what: "The breaker waits for ever for a probe that a pause of the type refused.",
			edits: []edit{
				{"Type.Admitted", `attemptEnded($admissions[:$i], $r, Result{Unstarted: true})`, `_, _ = $i, $r`},
			},
			sees: tests("TestProbeThatAnotherFeatureRefusesIsFollowedByAnother", "TestEntryThatOneAdmissionRefusesIsGivenBackToTheOthers"),
		},
		{
			name: "breaker-deaf-to-until", breaks: "G25",
			what: "A service that says until when it is down never opens a breaker.",
			edits: []edit{
				{"JudgementOf",
					`Verdict: $verdictOf($err),`,
					`Verdict: map[bool]observe.Verdict{true: observe.Failure, false: $verdictOf($err)}[verdictIn($err) != nil && verdictIn($err).Kind == KindRetryAfter],`},
			},
			sees: tests("TestWhatACallTellsOfWhatItNeeds"),
		},
		{
			name: "each-of-a-batch-frees-a-slot", breaks: "G26",
			what: "Each entry of a batch gives a slot back, so more batches run than the type allows.",
			edits: []edit{
				{"batches.shareSlot", `$a.SlotUsers = $left`, `$a.SlotUsers = nil`},
			},
			sees: tests("TestConcurrencyCountsBatchesAndCapsNone").with(simulation, "300"),
		},
		{
			name: "batch-waits-for-nobody", breaks: "G26",
			what: "A due entry is claimed at once whatever BatchWait says.",
			edits: []edit{
				{"typeSchedule.look", `return $s.$typ.$grouping.$look($now, $s.$moreDue)`, `return nil`},
			},
			sees: tests("TestEntriesRecordedApartShareABatch"),
		},
		{
			name: "full-batch-waits", breaks: "G26",
			what: "A full batch waits for more entries.",
			edits: []edit{
				{"batchCalls.remainingWait", `if $found >= $batch {`, `if $found > 1<<20 {`},
			},
			sees: tests("TestFullBatchDoesNotWait"),
		},
		{
			name: "follow-up-at-once", breaks: "G27",
			what: "A follow-up of a batch runs before all of the batch has ended.",
			edits: []edit{
				{"Compensator.snoozeUntilEnded", `if !$isZero() {`, `if $isZero() && batchID == "" {`},
			},
			sees: tests("TestFollowUpRunsOnceAllOfItsBatchHaveEnded").with(simulation, "1000").with(crash, "batch-ended"),
		},
		{
			name: "follow-up-before-retries", breaks: "G27",
			what: "An entry that is to be retried counts as ended for the follow-up of its batch.",
			edits: []edit{
				{"Compensator.firstOpen",
					`$page, $err := $list($ctx, $filter{$batchID: $batchID2, $states: []$state{$pending, $retrying, $compensating}, $limit: 1, $cursor: $cursor2})`,
					`$page, $err := $list($ctx, $filter{$batchID: $batchID2, $states: []$state{$pending, $compensating}, $limit: 1, $cursor: $cursor2})`},
			},
			sees: tests("TestFollowUpRunsOnceAllOfItsBatchHaveEnded"),
		},
		{
			name: "batch-out-of-patience", breaks: "G27",
			what: "A follow-up fails without a run when its batch takes longer than MaxWait.",
			edits: []edit{
				{"verdict.LibraryWait", `$v.NoMaxWait, $v.err = true, $err`, `$v.NoMaxWait, $v.err = false, $err`},
			},
			sees: tests("TestFollowUpRunsOnceAllOfItsBatchHaveEnded").with(simulation, "1000"),
		},
		{
			name: "turn-out-of-order", breaks: "G30",
			what: "An entry of a key starts although an earlier one of that key is open.",
			edits: []edit{
				{"Ordering.checkOrder",
					`if $l := $keyStates[$key]; $first == $id && !$taken && $known == $asked[$key] {`,
					`if $l := $keyStates[$key]; !$taken && $known == $asked[$key] {`},
				{"Ordering.blocked",
					`$blocked, $err := $askStore($ctx, $businessType, $ids, !$passDead)`,
					`$blocked, $err := $askStore($ctx, $businessType, nil, !$passDead)`},
			},
			sees:    tests("TestWaitingFirstKeepsTheOthersWaiting").with(simulation, "300").with(crash, "ordering-joined,in-line"),
			inModel: "m:turn-out-of-order",
		},
		{
			name: "turn-beside-a-lease", breaks: "G30",
			what: "The first entry of a key starts although a later one is already running.",
			edits: []edit{
				{"Ordering.checkOrder",
					`if $l := $keyStates[$key]; $first == $id && !$taken && $known == $asked[$key] {`,
					`if $l := $keyStates[$key]; $first == $id && $known == $asked[$key] {`},
			},
			sees:    tests("TestEntryCommittedLateRunsBesideNone"),
			inModel: "m:turn-beside-a-lease",
		},
		{
			name: "turn-placed-by-id", breaks: "G30",
			what: "Entries of one Record get positions by id instead of in the order given.",
			edits: []edit{
				{"Ordering.writePositions",
					`}
$orderAsGiven($joining)`,
					`}`},
			},
			sees: tests("TestEntriesOfOneCallRunInTheOrderInWhichTheyWereGiven", "TestCrossedCallsDoNotDeadlock").with(simulation, "300"),
		},
		{
			name: "turn-started-ahead", breaks: "G30",
			what: "The next entry of a key starts once it is claimed, although the outcome in front is not stored.",
			edits: []edit{
				{"Engine.RunClaimed",
					`$blocked, _ = $startClaimed($found, 0)`,
					`e.startCalls(found.Type, e.attemptsOf(found, 0))`},
			},
			sees:    tests("TestNextOfAKeyWaitsForAnOutcomeThatIsNotStored"),
			inModel: "m:turn-starts-ahead",
		},
		{
			name: "search-holds-every-slot", breaks: "G30",
			what: "A claim that searches for entries that are not blocked holds every free slot, so keys that move on wait for it.",
			edits: []edit{
				{"Type.SlotsToSearch", `return min($calls, 1)`, `return $calls`},
			},
			sees: tests("TestNextOfAKeyRunsWhileClaimsSearch", "TestSearchForEntriesThatAreNotBlockedHoldsOneSlot"),
		},
		{
			name: "turn-passes-untold", breaks: "G30",
			what: "An entry that ends does not start the next one of its key.",
			edits: []edit{
				{"Ordering.attemptOver",
					`$follow($nextEntry{$businessType: $turnBusinessType, $id: $next, $behind: $position})
} else {
	$add($position)`,
					`_ = $next`},
			},
			sees:    tests("TestNextOfAKeyIsNotified"),
			inModel: "m:turn-tells-nobody",
		},
		{
			name: "turn-not-recorded", breaks: "G30",
			what: "An entry gets its position at its first claim, so later entries overtake delayed ones.",
			edits: []edit{
				{"recording.insert",
					`if $err := $writeMore($ctx, $tx); $err != nil {
	return nil, $err
}`,
					``},
			},
			sees: tests("TestDeclaredTypeRecordsPositions", "TestWaitingFirstKeepsTheOthersWaiting").with(simulation, "300"),
		},
	}
}
