package main

func limiting() []mutant {
	const store = "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/"
	return []mutant{
		{
			name: "claims-of-a-limit-beside-each-other", breaks: "G41",
			what: "Two claims at once read the same time of a limit, and both grant its starts.",
			edits: []edit{
				{"sqlstore.permits.lock", `"lock", p.rowLock()`, `"lock", ""`},
			},
			sees: tests(store + "ClaimsAtOnceNeverGrantMore"),
		},
		{
			name: "starts-that-are-not-counted", breaks: "G41",
			what: "A claim grants starts and does not move the time of the limit.",
			edits: []edit{
				{"sqlstore.permits.insert", `int64(k.taken)*int64(p.limit.Interval)`, `0*int64(p.limit.Interval)`},
				{"raiseLimits", `"UPDATE {limit}{by id} SET tat={later}+{interval}*{taken}, granted_at={now}, starts=starts+{taken},"`,
					`"UPDATE {limit}{by id} SET tat={later}, granted_at={now}, starts=starts+{taken},"`},
			},
			sees: tests(store+"RateGrantsTheBurstAndThenOneStartEachInterval", "TestNoWindowHasMoreStartsThanTheRateAndTheBurstAllow"),
		},
		{
			name: "each-key-is-counted-like-the-first", breaks: "G41",
			what: "A claim that grants different numbers of starts to its keys counts for all of them the number of the first.",
			edits: []edit{
				{"sqlstore.byKey", `v != most`, `false && v != most`},
			},
			sees: tests(store + "EachKeyIsCountedByItself"),
		},
		{
			name: "starts-in-advance-are-not-counted", breaks: "G41",
			what: "A claim takes starts in advance and does not move the time of the limit.",
			edits: []edit{
				{"sqlstore.claim.writePermits", `k.taken += k.advance`, `k.taken += 0 * k.advance`},
			},
			sees: tests(store + "StartsTakenInAdvanceAreCounted"),
		},
		{
			name: "start-in-advance-begins-late", breaks: "G41",
			what: "An entry uses a start that another claim took long ago, beside those that were granted later.",
			edits: []edit{
				{"advanceLife", `grantLife / 2`, `3600 * grantLife`},
			},
			sees: tests("TestStartTakenInAdvanceIsUsedOnceAndNotLate"),
		},
		{
			name: "start-in-advance-is-used-twice", breaks: "G41",
			what: "Several entries use the same start that was taken in advance.",
			edits: []edit{
				{"limits.advances.take", `$a.starts[1:]`, `a.starts[0:]`},
			},
			sees: tests("TestStartTakenInAdvanceIsUsedOnceAndNotLate").with(chaos, "60s"),
		},
		{
			name: "start-in-advance-is-returned-twice", breaks: "G41",
			what: "A start that was taken in advance and that no entry uses is returned twice, so that the limit grants one start too many.",
			edits: []edit{
				{"limits.advances.dropOld", `append($unused, $a.starts...)`, `append(append(unused, a.starts...), a.starts...)`},
			},
			sees: tests("TestStartTakenInAdvanceIsUsedOnceAndNotLate", "TestStartsTakenInAdvanceSaveClaimsAndAreReturned").with(chaos, "60s"),
		},
		{
			name: "start-in-advance-is-lost", breaks: "G41",
			what: "A start that was taken in advance and that no entry uses is not returned.",
			edits: []edit{
				{"limits.advances.dropOld", `append($unused, $a.starts...)`, `append(unused, a.starts[:0]...)`},
			},
			sees: tests("TestStartTakenInAdvanceIsUsedOnceAndNotLate", "TestStartsTakenInAdvanceSaveClaimsAndAreReturned"),
		},
		{
			name: "starts-in-advance-use-up-the-burst", breaks: "G41",
			what: "One process takes all starts that a key has left in advance, so that other processes wait.",
			edits: []edit{
				{"limits.advances.wanted", `$left-($burst+1)/2`, `left-0*burst`},
			},
			sees: tests("TestStartsAreTakenInAdvanceForKeysThatStartOften"),
		},
		{
			name: "burst-after-each-pause-twice", breaks: "G41",
			what: "The starts after a pause count from the end of the last one, so that the pause is saved up.",
			edits: []edit{
				{"processlog.StartLimit.Free", `max(0, lead)`, `lead`},
			},
			sees: tests("TestLimitNeverSavesMoreThanItsBurst"),
		},
		{
			name: "permit-of-a-lease-that-ended-comes-back", breaks: "G41",
			what: "A process that stood still renews a lease whose permit another entry has.",
			edits: []edit{
				{"fenceRows", `"UPDATE {log}{by id} SET version=version+1, updated_at={stamp} WHERE id IN ({ids}) AND lease_until<={now}{and steady}"`,
					`"UPDATE {log}{by id} SET updated_at={stamp} WHERE id IN ({ids}) AND lease_until<={now}{and steady}"`},
			},
			sees: tests(store + "PermitWhoseLeaseHasEndedCannotComeBack"),
		},
		{
			name: "permits-that-are-not-kept", breaks: "G41",
			what: "The entries that hold permits are not stored, so that Concurrent limits a single claim only.",
			edits: []edit{
				{"sqlstore.claim.writePermits", `p.limit.Concurrent > 0 &&`, `p.limit.Concurrent < 0 &&`},
			},
			sees: tests(store+"ClaimsAtOnceNeverGrantMore", "TestNoMoreEntriesRunAtOnceThanConcurrentAllows"),
		},
		{
			name: "old-permit-starts", breaks: "G41",
			what: "An entry starts long after its permit was granted, beside those that were granted later.",
			edits: []edit{
				{"grantLife", `time.Second`, `time.Hour`},
			},
			sees: tests("TestEntryWhosePermitIsOldDoesNotStartAndTheStartIsReturned"),
		},
		{
			name: "permit-is-as-old-as-its-claim", breaks: "G41",
			what: "No entry of a limit starts if the database is so far away that a claim takes a second.",
			edits: []edit{
				{"limitedType.noteClaim", `if !$claim.GrantedAfter.IsZero() {`, `if false {`},
			},
			sees: tests("TestEntryStartsWhoseClaimWasSlowBeforeItsPermitWasGranted"),
		},
		{
			name: "attempt-without-a-call-uses-up-a-start", breaks: "G41",
			what: "An entry that waits for its batch uses up the starts of its limit.",
			edits: []edit{
				{"limitedType.noteAttemptEnd", `!$r.Unstarted && verdict.Of($r.Err).HandlerCalled()`, `!r.Unstarted && verdict.Of(nil) != nil`},
			},
			sees: tests("TestAttemptThatCallsNoHandlerUsesUpNoStart"),
		},
		{
			name: "unused-start-is-lost", breaks: "G41",
			what: "A start that was granted and that never began is not returned.",
			edits: []edit{
				{"limits.limitedType.removePermit", `!p.isUsed && p.interval > 0`, `false && p.interval > 0`},
			},
			sees: tests("TestEntryWhosePermitIsOldDoesNotStartAndTheStartIsReturned"),
		},
		{
			name: "start-of-an-earlier-claim-comes-back", breaks: "G41",
			what: "A start is returned although another claim was granted starts since, so that a window has more than the burst.",
			edits: []edit{
				{"sqlstore.Store.ReturnStarts", `" WHEN limit_key=%s AND starts=%d THEN %d"`, `" WHEN limit_key=%s AND starts>=%d THEN %d"`},
			},
			sees: tests(store + "StartOfAnEarlierClaimIsNotReturned"),
		},
		{
			name: "key-is-deleted-while-an-entry-runs", breaks: "G41",
			what: "The row of a key is deleted although an entry holds a permit, so that another entry gets it, too.",
			edits: []edit{
				{"sqlstore.Store.purgeKeys", `state[h] != permitEnded`, `state[h] == permitLapsed`},
			},
			sees: tests(store + "IdleKeysAreDeletedWithoutAGrantTooMany"),
		},
		{
			name: "key-is-deleted-with-starts-ahead", breaks: "G41",
			what: "The row of a key is deleted while it has starts ahead, so that the key gets its burst again.",
			edits: []edit{
				{"idleKey", `"limit_key<>{no bytes} AND tat<{now}*1000000 AND granted_at<{now}-{age}"`, `"limit_key<>{no bytes} AND granted_at<{now}-{age}"`},
			},
			sees: tests(store + "IdleKeysAreDeletedWithoutAGrantTooMany"),
		},
		{
			name: "start-of-a-deleted-row-comes-back", breaks: "G41",
			what: "A new row of a key counts its grants from 1, so that a start of the deleted row is returned to it.",
			edits: []edit{
				{"sqlstore.permits.count", `p.now * 1000`, `0`},
			},
			sees: tests(store + "IdleKeysAreDeletedWithoutAGrantTooMany"),
		},
		{
			name: "claims-wait-for-a-stopped-process", breaks: "G41",
			what: "Each claim waits for the lock that a stopped process holds.",
			edits: []edit{
				{"sqlstore.permits.rowLock", `return p.s.d.lockNow`, `return p.s.d.lock`},
			},
			sees: tests("TestProcessStoppedInAClaimHoldsUpItsLimitOnly"),
		},
		{
			name: "session-of-a-stopped-process-lives-on", breaks: "G41",
			what: "The server does not end the session of a process that stands still in a transaction.",
			edits: []edit{
				{"sqlstore.setUpMySQL", `ownSettings+idle`, `ownSettings`},
			},
			sees: tests("TestServerEndsAClaimThatStandsStill"),
		},
		{
			name: "changed-limit-is-not-obeyed", breaks: "G41",
			what: "A claim keeps to the values of its program, although a person has changed the limit.",
			edits: []edit{
				{"sqlstore.permits.count", `p.program.With(p.stored.Person)`, `p.program`},
			},
			sees: tests(store+"LimitThatAPersonChangesIsObeyedByTheNextClaim", "TestLimitThatAPersonChangesHoldsInAllProcesses"),
		},
		{
			name: "starts-ahead-are-not-moved-to-a-new-rate", breaks: "G41",
			what: "After a change of the rate, the starts that a key has ahead pass at the old rate.",
			edits: []edit{
				{"sqlstore.permits.count", `k.shift = ahead - k.ahead`, `k.shift = 0`},
			},
			sees: tests(store + "ChangedRateKeepsTheStartsThatAKeyHasAhead"),
		},
		{
			name: "entry-of-two-claims-waits-twice", breaks: "G41",
			what: "An entry that two claims have found without a permit gets two places in the line, so that the entries behind it wait twice as long.",
			edits: []edit{
				{"limits.line.noteClaim", `isSleeping && $s.key == $entry.Key`, `false && isSleeping && s.key == entry.Key`},
			},
			sees: tests("TestEntryThatTwoClaimsHaveFoundHasOneTime"),
		},
		{
			name: "entries-with-a-lease-and-without-a-permit", breaks: "G41",
			what: "An entry that is recorded here is inserted with a lease, and starts without a permit.",
			edits: []edit{
				{"limits.gate.countClaimable", `return engine.Checked`, `return engine.Unlimited`},
			},
			sees: tests("TestRecordedEntriesNeedPermits"),
		},
		{
			name: "waiting-entries-in-front-of-others", breaks: "G41",
			what: "While Redis does not answer, entries that wait for a permit hide the entries of other keys behind them.",
			edits: []edit{
				{"processlog.Claimed.LimitedLater", `c.Limited[$i].In > 0`, `c.Limited[$i].In < 0`},
			},
			sees: tests("TestEntriesBehindThoseThatCannotRunAreRead/limited"),
		},
	}
}
