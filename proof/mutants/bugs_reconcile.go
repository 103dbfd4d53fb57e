package main

// reconciling: what brings back what the queue has lost.
func reconciling() []mutant {
	return []mutant{
		{
			name: "suspended-takes-purge-for-loss", oracle: lateness,
			what: "what was purged while a machine was suspended is a loss to it, for its clock stood still",
			edits: []edit{
				{"internal/engine/loss.go", "return !exists && known && now", "return false && !exists && known && now"},
			},
			sees: tests("TestPurgeWhileTheMachineWasSuspendedIsNoLoss"),
		},
		{
			name: "loss-unnoticed", oracle: safety,
			what: "a database that has gone back is taken for itself",
			edits: []edit{
				{"internal/engine/loss.go", "if s.refutes(v, exists) && (", "if false && s.refutes(v, exists) && ("},
			},
			sees: tests("TestNothingStartsInADatabaseThatHasGoneBackUntilAPersonSaysGoOn", "TestProcessThatOnlyRecordsRefusesInADatabaseThatHasGoneBack").and(simulation, "500"),
		},
		{
			name: "lost-success-overtaken", oracle: safety,
			what: "a success that the database has lost is not missed once another process has written the row again",
			edits: []edit{
				{"internal/engine/memory.go", " || (s.State == processlog.Succeeded || s.State == processlog.Compensated) && found.Epoch == s.Epoch\n", "\n"},
			},
			sees: tests("TestSuccessThatOthersHaveWrittenOverIsALoss"),
		},
		{
			name: "requeue-is-a-loss", oracle: lateness,
			what: "an entry that a person has run again is taken for one whose success was lost: everything stops",
			edits: []edit{
				{"internal/engine/memory.go", " && found.Epoch == s.Epoch\n", "\n"},
			},
			sees: tests("TestNothingIsTakenForALossThatIsNone"),
		},
		{
			name: "loss-noticed-but-claims-go-on", oracle: safety,
			what: "a process that knows that the database has gone back goes on claiming there",
			edits: []edit{
				{"internal/engine/claims.go", "	if err := c.witness.refusal(); err != nil {\n		return claimed{}, err\n	}\n", ""},
				{"internal/engine/scanner.go", "	if s.witness.stopped() != nil {\n		return peekInterval\n	}\n", ""},
				{"internal/engine/witness.go", "	if err := w.refusal(); err != nil {\n		return err\n	}\n	w.memory.sawRows(", "	w.memory.sawRows("},
			},
			sees: tests("TestNothingStartsInADatabaseThatHasGoneBackUntilAPersonSaysGoOn").and(simulation, "500"),
		},
		{
			name: "reconnected-without-asking", oracle: safety,
			what: "what a claim has brought over a new connection, or after one that failed, starts before the database was asked what it has kept",
			edits: []edit{
				{"internal/engine/witness.go", "	return w.doubted.Load() || own != w.own.Load()\n", "	return false && own != w.own.Load()\n"},
			},
			sees: tests("TestNothingClaimedAfterAFailoverStartsUntilAPersonSaysGoOn").and(simulation, "1000"),
		},
		{
			name: "claims-trusted", oracle: safety,
			what: "what a claim has brought starts whatever is known of the database: only rounds of the reconciler ask",
			edits: []edit{
				{"internal/engine/claims.go", "		err = c.witness.vouch(found.Mine, asked)\n", "		_ = c.witness.vouch(nil, asked)\n"},
			},
			sees: tests("TestNothingClaimedAfterAFailoverStartsUntilAPersonSaysGoOn").and(simulation, "1000"),
		},
		{
			name: "unanswered-question-starts", oracle: safety,
			what: "what was claimed starts although the database was asked what it has kept, and gave no answer",
			edits: []edit{
				{"internal/engine/witness.go", "	if err := w.checkIf(w.unsure); err != nil {\n", "	if err := w.checkIf(w.unsure); false {\n"},
			},
			sees: tests("TestWhatIsClaimedOfADatabaseThatDoesNotSayWhatItHasKeptIsGivenBack").and(simulation, "2000"),
		},
		{
			name: "unanswered-claim-forgotten", oracle: safety,
			what: "a claim that was committed, and given back because the database did not say what it has kept, is no evidence when it turns out to have gone back",
			edits: []edit{
				{"internal/engine/witness.go", "		w.memory.sawAside(rows, asked)\n", ""},
			},
			sees: tests("TestClaimOfADatabaseThatDoesNotSayWhatItHasKeptIsRemembered"),
		},
		{
			name: "unanswered-claim-covers", oracle: safety,
			what: "a claim of a database that does not say what it has kept covers what was seen before, which that database may have lost",
			edits: []edit{
				{"internal/engine/witness.go", "		w.memory.sawAside(rows, asked)\n", "		w.memory.sawRows(rows, asked)\n"},
			},
			sees: tests("TestClaimOfADatabaseThatDoesNotSayWhatItHasKeptIsRemembered"),
		},
		{
			name: "evidence-covered", oracle: safety,
			what: "what a process has seen of a database that went back is covered by what the next one has under the same number",
			edits: []edit{
				{"internal/engine/memory.go", "if place.ID == s.ID && place.refutes", "if false && place.refutes"},
			},
			sees: tests("TestWhatRefutesWhatIsSeenLaterStaysRemembered"),
		},
		{
			name: "failed-reading-trusted", oracle: safety,
			what: "a reading of what is due that failed is no reason to ask what the database has kept, although the next server may be another one",
			edits: []edit{
				{"internal/engine/scanner.go", "		s.witness.doubt() // as a claim that failed", "		// as a claim that failed"},
			},
			sees: tests("TestReadingOfWhatIsDueThatFailedIsAReasonToAsk"),
		},
		{
			name: "loss-noticed-but-records-go-on", oracle: safety,
			what: "a process that knows that the database has gone back goes on recording there",
			edits: []edit{
				{"record.go", "err := rec.c.engine.Refusal()", "err := error(nil)"},
			},
			sees: tests("TestNothingStartsInADatabaseThatHasGoneBackUntilAPersonSaysGoOn", "TestProcessThatOnlyRecordsRefusesInADatabaseThatHasGoneBack").and(simulation, "1500"),
		},
		{
			name: "loss-of-what-never-was", oracle: lateness,
			what: "an entry that was rolled back to a savepoint is taken for one that the database has lost: everything stops",
			edits: []edit{
				{"internal/engine/memory.go", "m.doubts[m.next] = f\n",
					"m.rememberLocked(testimony{processlog.Version{ID: f.id, IdempotentID: f.key, Token: f.token}, f.businessType, time.Now(), 0})\n"},
			},
			sees: tests("TestNothingIsTakenForALossThatIsNone").and(simulation, "500"),
		},
		{
			name: "stale-read-is-a-loss", oracle: lateness,
			what: "what a lagging copy answers to a plain read is taken for a loss: everything stops",
			edits: []edit{
				{"internal/engine/loss.go", "		if s.refutes(versionOf(&row), exists) {", "		if true || s.refutes(versionOf(&row), exists) {"},
			},
			sees: tests("TestReadsThatLagBehindAreNotTakenForALoss"),
		},
		{
			name: "old-go-ahead-made-young", oracle: safety,
			what: "a database's clock that is set back makes a person's old word a new one, and what has stopped goes on",
			edits: []edit{
				{"internal/engine/loss.go", "r.Action == processlog.ActionAcceptLoss && !known {", "r.Action == processlog.ActionAcceptLoss && (!known || known) {"},
			},
			sees: tests("TestNoteThatAClockMakesYoungerAcceptsNoLaterLoss"),
		},
		{
			name: "only-the-newest-is-made-sure-of", oracle: safety,
			what: "where others have carried the newest of what was lost past it meanwhile, the rest is not looked at",
			edits: []edit{
				{"internal/engine/loss.go", "const confirmMost = 8", "const confirmMost = 1"},
			},
			sees: tests("TestLossShowsBehindWhatOthersHaveCarriedPastIt"),
		},
		{
			name: "newest-gives-way-to-older", oracle: safety,
			what: "what was last seen is read back no more once something older has been found: its loss goes unnoticed",
			edits: []edit{
				{"internal/engine/memory.go", "if len(doubts) > 0 {", "if false && len(doubts) > 0 {"},
			},
			sees: tests("TestLossIsNoticedAlthoughSomethingOlderWasReadSince"),
		},
		{
			name: "only-the-ends-read-back", oracle: safety,
			what: "of what was seen only the first and the last of each stretch are read back: where others have carried those past the loss, it goes unnoticed",
			edits: []edit{
				{"internal/engine/witness.go", "w.memory.trailNow(), w.memory.sweepOn(), more", "w.memory.trailNow(), more"},
			},
			sees: tests("TestLossIsNoticedAlthoughItsLastEntryWasCarriedPast"),
		},
		{
			name: "purge-overtakes-its-note", oracle: lateness,
			what: "a long purge deletes what has ended since its note, and others take it for lost: everything stops",
			edits: []edit{
				{"keep.go", "age+time.Since(began)", "age+0*time.Since(began)"},
			},
			sees: tests("TestPurgeDeletesNothingThatEndsAfterItsNote"),
		},
		{
			name: "due-while-looked-through", oracle: lateness,
			what: "what comes due while a process without Redis looks through its log waits for the next round",
			edits: []edit{
				{"internal/engine/reconciler.go", "time.Since(r.asked)+time.Millisecond-r.grace()", "-r.grace()"},
				{"internal/engine/reconciler.go", "	r.asked = time.Now()\n", ""},
			},
			sees: tests("TestEntryThatComesDueWhileTheLogIsLookedThroughIsNotMissed"),
		},
		{
			name: "overdue-read-before-near", oracle: lateness,
			what: "what comes due between two readings of a process without Redis waits for the next round",
			edits: []edit{
				{"internal/engine/reconciler.go", "	announced, complete = r.announceWindow(ctx, near, math.MaxInt)\n", "	overdue := window\n	overdue.To, overdue.Free = -r.grace(), true\n	_, _ = r.announceWindow(ctx, overdue, scanPage)\n	return r.announceWindow(ctx, near, math.MaxInt)\n"},
			},
			sees: tests("TestEntryThatComesDueWhileTheLogIsLookedThroughIsNotMissed"),
		},
		{
			name: "reconciler-off", oracle: safety,
			what: "nothing looks for entries that the queue does not know: one that nobody announced never runs",
			edits: []edit{
				{"scanner.go", "	loops.Go(func() { c.engine.Reconcile(claiming) })\n", ""},
			},
			sees: tests("TestEntryThatIsNeverAnnouncedIsFoundByTheReconciler").and(simulation, "300").and(crash, "commit-done,recorders|announce-next,recorders").and(model, "m:no-reconciler"),
		},
		{
			name: "reconciler-announces-nothing", oracle: lateness,
			what: "the reconciler polls what is overdue, but tells the queue of nothing",
			edits: []edit{
				{"internal/engine/reconciler.go", "	if head.DueIn > edge {\n", "	if head.DueIn > -processlog.MaxDelay {\n"},
			},
			sees: tests("TestDelayedEntryThatIsNeverAnnouncedRunsOnTime", "TestWhatAProcessCouldNotAnnounceComesToTheQueueAlthoughAnotherLeads"),
		},
		{
			name: "reconciler-polls-nothing", oracle: lateness,
			what: "overdue entries are announced, but never claimed from the database directly",
			edits: []edit{
				{"internal/engine/reconciler.go", "			event.Polled += r.poll(ctx, t, head.State)\n", ""},
			},
			sees: tests("TestEntriesAreFoundByPollingAlthoughTheQueueIsUp"),
		},
		{
			name: "id-watermark", oracle: safety,
			what: "the reconciler remembers the highest id it has seen and asks for later ones only",
			edits: []edit{
				{"internal/engine/reconciler.go", "	rebuild bool  ", "	highest processlog.ID\n	rebuild bool  "},
				{"internal/engine/reconciler.go", "	r.saw(ctx, err)\n	return found, err\n", "	mark := r.highest\n	for _, f := range found {\n		if f.ID.Compare(r.highest) > 0 {\n			r.highest = f.ID\n		}\n	}\n	return slices.DeleteFunc(found, func(f processlog.Scheduled) bool { return f.ID.Compare(mark) < 0 }), err\n"},
			},
			sees: tests("TestEntryCommittedAfterOnesWithHigherIdsIsNotMissed").and(simulation, "300"),
		},
		{
			name: "no-rebuild", oracle: lateness,
			what: "a queue that has forgotten everything is not filled again",
			edits: []edit{
				{"internal/engine/reconciler.go", "	if rebuild {\n		return r.announceWindow", "	if false {\n		return r.announceWindow"},
				{"internal/engine/reconciler.go", "	near.From = 0\n", "	near.From, near.To = 0, 0\n"},
			},
			sees: tests("TestEntryTheQueueForgotIsAnnouncedAgain"),
		},
		{
			name: "lost-type-unnoticed", oracle: lateness,
			what: "nobody hears that the queue has lost the entries of one type",
			edits: []edit{
				{"internal/engine/rebuild.go", "	if len(businessTypes) == 0 {\n		return\n", "	if len(businessTypes) >= 0 {\n		return\n"},
			},
			sees: tests("TestTypeThatRedisLostIsRebuiltAlone", "TestRecordingNoticesThatRedisLostAType"),
		},
		{
			name: "loss-of-type-untold", oracle: lateness,
			what: "who rebuilds a type tells nobody: idle processes leave its entries to him until they look by themselves",
			edits: []edit{
				{"internal/engine/rebuild.go", "		r.base.saw(troubleNotify, r.Queue.Notify(ctx, b.types)) //", "		_ = troubleNotify //"},
			},
			sees: tests("TestIdleProcessIsToldOfALossByTheOneThatRebuilds"),
		},
		{
			name: "whole-before-announced", oracle: lateness,
			what: "a type is called whole before everything of it has been announced: if that fails, nobody announces the rest",
			edits: []edit{
				{"internal/engine/rebuild.go", "	missed := r.announceAll(ctx, heads, true, &event)\n	event.RebuiltTypes = r.end(ctx, b, missed)\n", "	event.RebuiltTypes = r.end(ctx, b, nil)\n	_ = r.announceAll(ctx, heads, true, &event)\n"},
				{"internal/engine/reconciler.go", "		r.end(ctx, b, missed)\n", "		r.end(ctx, b, nil)\n"},
			},
			sees: tests("TestTypeIsWholeOnlyOnceAllOfItIsAnnounced").and(simulation, "1000"),
		},
		{
			name: "whole-although-lost-again", oracle: lateness,
			what: "a type is called whole although Redis has lost it a second time while it was rebuilt",
			edits: []edit{
				{"internal/redisqueue/lua/rebuilt.lua", "if not mine then\n  return 0\nend\n", ""},
			},
			sees: tests("TestRedisQueueKnowsThatATypeWasLostWhileItWasRebuilt"),
		},
		{
			name: "renamed-set-believed", oracle: lateness,
			what: "a sorted set that somebody has put under another type's key vouches for that type",
			edits: []edit{
				{"internal/redisqueue/keys.go", "return \"whole \" + dueKey", "return \"whole\""},
			},
			sees: tests("TestRenamedZsetSaysNothingOfTheTypeWhoseKeyItHas"),
		},
		{
			name: "key-in-an-expression", oracle: lateness,
			what: "a script is refused by servers that read it before they run it: its key is part of an expression",
			edits: []edit{
				{"internal/redisqueue/lua/claim.lua", "redis.call('ZSCORE', KEYS[1], ARGV[1])", "redis.call('ZSCORE', KEYS[1], 'whole ' .. KEYS[1])"},
			},
			sees: tests("TestScriptsTouchOnlyKeysTheyWereGiven"),
		},
		{
			name: "full-queue-whole", oracle: lateness,
			what: "a type of which a full Redis has left out entries counts as whole",
			edits: []edit{
				{"internal/redisqueue/lua/announce.lua", "  redis.call('ZREMRANGEBYSCORE', KEYS[1], FAR, '+inf')\n", ""},
			},
			sees: tests("TestFullRedisStillClaimsAndSettles"),
		},
		{
			name: "full-queue-given-up", oracle: lateness,
			what: "a queue that has no room for some entries is not relied on for those it has",
			edits: []edit{
				{"internal/engine/announcer.go", "	if !n.leftOut(batch, err) {\n", "	if n.leftOut(batch, err); true {\n"},
			},
			sees: tests("TestQueueWithoutRoomIsReliedOnForWhatItHas", "TestForeignKeyOfOneTypeConcernsThatTypeAlone"),
		},
		{
			name: "all-types-rebuilt", oracle: lateness,
			what: "when the queue has lost one type, all of them are announced again",
			edits: []edit{
				{"internal/engine/rebuild.go", "	heads = slices.DeleteFunc(heads, func(head processlog.Head) bool { return !slices.Contains(b.types, head.BusinessType) })\n", ""},
			},
			sees: tests("TestTypeThatRedisLostIsRebuiltAlone"),
		},
		{
			name: "lost-type-not-asked-for", oracle: lateness,
			what: "while a type is rebuilt only the queue is asked for its entries, not the database",
			edits: []edit{
				{"internal/engine/scanner.go", "	if (backlog || got.lost) &&", "	if backlog &&"},
				{"internal/engine/announcer.go", "	for _, businessType := range businessTypes {\n		n.agenda.overflow(businessType)\n	}\n	n.agenda.poke()\n", "	n.agenda.poke()\n"},
			},
			sees: tests("TestEntriesOfALostTypeRunAlthoughNobodyRebuildsIt"),
		},
		{
			name: "outage-forgotten", oracle: lateness,
			what: "what could not be announced while the queue was away is left to the process that leads",
			edits: []edit{
				{"internal/engine/reconciler.go", "	if r.announcer.health.takeGaps() {\n		r.owes = true\n", "	if r.announcer.health.takeGaps() {\n"},
			},
			sees: tests("TestWhatAProcessCouldNotAnnounceComesToTheQueueAlthoughAnotherLeads"),
		},
		{
			name: "stale-backlog-kept", oracle: lateness,
			what: "a backlog that was read ahead is tried to its end, although others have been faster with it",
			edits: []edit{
				{"internal/engine/readahead.go", "		r.ids, r.claims = nil, 1\n", ""},
			},
			sees: tests("TestWhatOthersAreFasterWithIsReadAnew"),
		},
		{
			name: "testimony-older-than-its-write", oracle: safety,
			what: "a success is remembered as of the start of its handler: a go-ahead given meanwhile accepts its loss unseen",
			edits: []edit{
				{"internal/engine/dispatcher.go", "[]processlog.Settled{{Applied: true}}, end.asked)", "[]processlog.Settled{{Applied: true}}, a.started)"},
			},
			sees: tests("TestWhatIsRememberedIsAsYoungAsTheWriteItSpeaksOf"),
		},
		{
			name: "displaced-moment-forgotten", oracle: lateness,
			what: "a due moment that was heard of is forgotten for an earlier one while the queue, which would say it again, has lost it",
			edits: []edit{
				{"internal/engine/scan.go", "	scan.keep(due)\n	return scan.sooner(due)", "	return scan.sooner(due)"},
			},
			sees: tests("TestMomentsThatNobodySaysAgainAreKept"),
		},
		{
			name: "one-moment-kept", oracle: lateness,
			what: "of the due moments that were heard of while the queue has lost them only the next one is remembered",
			edits: []edit{
				{"internal/engine/scan.go", "laterKept = 16\n", "laterKept = 1\n"},
				{"internal/engine/scan.go", "	if place < laterKept {", "	if place < 1 {"},
			},
			sees: tests("TestMomentsThatNobodySaysAgainAreKept"),
		},
		{
			name: "drained-hides-overflow", oracle: lateness,
			what: "a claim that finds the database drained forgets the backlog that others have found since it read",
			edits: []edit{
				{"internal/engine/scan.go", "(!got.drained || scan.overflows != began.overflows)", "!got.drained"},
			},
			sees: tests("TestClaimThatDrainedWhatItReadHidesNoBacklogTheOthersHaveFoundSince"),
		},
		{
			name: "beaten-gives-up", oracle: lateness,
			what: "where the queue is away, whoever others were faster than waits for the next poll",
			edits: []edit{
				{"internal/engine/scanner.go", "	beaten := share.fresh && len(found.Mine) == 0\n", "	beaten := false && share.fresh && len(found.Mine) == 0\n"},
				{"internal/engine/scanner.go", "full: more && !beaten,", "full: more && (len(found.Mine) > 0 || !share.fresh),"},
			},
			sees: tests("TestProcessThatOthersWereFasterThanLooksAgainSoon"),
		},
		{
			name: "stuck-behind-locked-row", oracle: lateness,
			what: "one locked row in front of a single slot keeps all that the database alone knows from running",
			edits: []edit{
				{"internal/engine/readahead.go", "		if w.In <= processlog.LockedRetry {\n", "		if w.In < 0 {\n"},
			},
			sees: tests("TestLockedHeadOfABacklogDoesNotHoldUpTheRest"),
		},
		{
			name: "queue-relied-on-while-down", oracle: lateness,
			what: "a queue that does not answer is asked again and again, and the database is not",
			edits: []edit{
				{"internal/engine/scanner.go", "	if !s.announcer.health.up() {\n		return s.claimFromStore(t, calls)\n", "	if false {\n		return s.claimFromStore(t, calls)\n"},
				{"internal/engine/scanner.go", "	if !ok {\n		return s.claimFromStore(t, calls)\n", "	if !ok {\n		t.slots.release(calls)\n		return got\n"},
			},
			sees: tests("TestQueueThatFailsIsNoFailureOfTheCommit"),
		},
	}
}
