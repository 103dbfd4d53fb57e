package main

// takingIn: from a source of messages into the log.
func takingIn() []mutant {
	return []mutant{
		{
			name: "intake-acks-before-commit", oracle: safety,
			what: "messages are acknowledged before they are in the log",
			edits: []edit{
				{"intake/batch.go", "	b.settle(works, items)\n	var done", "	in.acknowledge(works, messages)\n	b.settle(works, items)\n	var done"},
			},
			sees: tests("TestNothingIsAcknowledgedBeforeItIsCommitted", "TestNoSeedLosesOrDoublesAMessage").and(crash, "messages-written,streamed"),
		},
		{
			name: "intake-doubt-is-commit", oracle: safety,
			what: "a COMMIT whose answer was lost is taken for done",
			edits: []edit{
				{"intake/batch.go", "		return b.resolve(works, items, receipt), err // not before the transaction has ended\n", "		err = nil\n"},
			},
			sees: tests("TestBatchWhoseCommitIsInDoubtIsResolvedBeforeItIsAcknowledged", "TestNothingIsAcknowledgedBeforeItIsCommitted", "TestNoSeedLosesOrDoublesAMessage"),
		},
		{
			name: "intake-doubt-is-failure", oracle: safety,
			what: "a COMMIT whose answer was lost is taken for a failure of Work: its messages are set aside",
			edits: []edit{
				{"intake/batch.go", "		return b.resolve(works, items, receipt), err // not before the transaction has ended\n", "		return false, &workError{err}\n"},
			},
			sees: tests("TestLoneMessageWhoseCommitIsInDoubtIsNotSetAside"),
		},
		{
			name: "intake-doubt-unresolved", oracle: duplicates,
			what: "a batch whose COMMIT was not answered is tried again before that transaction has ended; its INSERT waits for it all the same",
			edits: []edit{
				{"intake/batch.go", "return b.resolve(works, items, receipt), err", "return works.Err() == nil, err"},
			},
			survives: tests("TestBatchWhoseCommitIsInDoubtIsResolvedBeforeItIsAcknowledged"),
		},
		{
			name: "intake-anothers-doubt-is-ours", oracle: lateness,
			what: "an error of Work that wraps ErrCommitUnknown of another log is taken for the intake's own: its message is tried again and again",
			edits: []edit{
				{"intake/batch.go", "!errors.As(err, &work) && errors.Is(", "!errors.As(nil, &work) && errors.Is("},
			},
			sees: tests("TestErrorOfAnotherLogIsOfItsMessage"),
		},
		{
			name: "intake-anothers-end-is-ours", oracle: lateness,
			what: "an error of Work that wraps ErrClosed of another log, on a transaction that has broken, ends Run",
			edits: []edit{
				{"intake/aside.go", "fmt.Errorf(\"%w; Work: %v\", broken, err)", "fmt.Errorf(\"%w; Work: %w\", broken, err)"},
			},
			sees: tests("TestErrorOfAnotherLogIsOfItsMessage"),
		},
		{
			name: "intake-works-on-known", oracle: safety,
			what: "Work is called for messages that have an entry: their rows are written twice",
			edits: []edit{
				{"intake/batch.go", "if it.kind == meant && !receipt.Entries[i].Duplicate {", "if it.kind == meant && i >= 0 {"},
			},
			sees: tests("TestMessageThatIsInTheLogIsOnlyAcknowledged", "TestTwoConsumersOfOneMessageRecordItOnce", "TestNoSeedLosesOrDoublesAMessage").and(crash, "messages-settled,streamed"),
		},
		{
			name: "intake-id-without-group", oracle: safety,
			what: "a message's idempotent id names its stream and not its group: the second group finds the first one's entries",
			edits: []edit{
				{"intake/group.go", "separated.Replace(g.Stream.Stream) + \":\" + separated.Replace(g.Group)", "separated.Replace(g.Stream.Stream)"},
			},
			sees: tests("TestTwoGroupsOfAStreamHaveEntriesOfTheirOwn"),
		},
		{
			name: "intake-id-without-server", oracle: safety,
			what: "a message's idempotent id does not name its server: a stream of the same name on another one loses what has the same ids",
			edits: []edit{
				{"intake/group.go", "if g.Server != \"\" {", "if false {"},
			},
			sees: tests("TestStreamsOfOneNameOnTwoServersHaveEntriesOfTheirOwn", "TestIdempotentIDsOfDifferentMessagesDiffer"),
		},
		{
			name: "intake-ids-run-together", oracle: safety,
			what: "the parts of an idempotent id are joined as they are: names with a colon stand for others",
			edits: []edit{
				{"intake/message.go", "_, _ = separated.WriteString(&id, part)", "id.WriteString(part)"},
			},
			sees: tests("TestIdempotentIDsOfDifferentMessagesDiffer"),
		},
		{
			name: "intake-aside-under-its-own-id", oracle: safety,
			what: "a message set aside has another idempotent id than one that was recorded: what is in the log is set aside as well",
			edits: []edit{
				{"intake/aside.go", "	it.entry.IdempotentID = in.IdempotentID(m)\n", "	it.entry.IdempotentID = idempotentID(in.name, m.ID, \"aside\")\n"},
			},
			sees: tests("TestMessageThatIsInTheLogIsOnlyAcknowledged", "TestNoSeedLosesOrDoublesAMessage"),
		},
		{
			name: "intake-known-elsewhere-retried", oracle: lateness,
			what: "a message that has an entry of the other type is tried again and again",
			edits: []edit{
				{"intake/batch.go", "b.without(items, knownElsewhere(err))", "b.without(items, nil)"},
			},
			sees: tests("TestMessageThatIsInTheLogIsOnlyAcknowledged"),
		},
		{
			name: "intake-other-content-dropped", oracle: safety,
			what: "a message under an id that stands for another is taken for that one",
			edits: []edit{
				{"intake/batch.go", "		it.entry.IdempotentID = idempotentID(b.name, it.message.ID, other)\n", "		_ = other\n"},
			},
			sees: tests("TestIDsThatComeAgainWithOtherContentAreParked"),
		},
		{
			name: "intake-culprit-dropped", oracle: safety,
			what: "a message that fails alone is acknowledged without an entry",
			edits: []edit{
				{"intake/batch.go", "	b.settle(ctx, []*item{it})\n	failpoint.Reach(failpoint.AsideSettled)\n", "	it.settled = true\n	failpoint.Reach(failpoint.AsideSettled)\n"},
			},
			sees: tests("TestMessageThatFailsForAWhileIsDoneByTheLog", "TestPoisonIsParkedAsItCameAndHoldsUpNobody", "TestNoSeedLosesOrDoublesAMessage").and(crash, "aside-settled,streamed"),
		},
		{
			name: "intake-half-dropped", oracle: safety,
			what: "of a batch that fails the second half is acknowledged unread",
			edits: []edit{
				{"intake/batch.go", "	b.settle(ctx, items[half:])\n", "	for _, it := range items[half:] {\n		it.settled = true\n	}\n"},
			},
			sees: tests("TestSlowBatchIsHalved", "TestPoisonIsParkedAsItCameAndHoldsUpNobody", "TestNoSeedLosesOrDoublesAMessage").and(crash, "batch-halved,streamed"),
		},
		{
			name: "intake-poison-dropped", oracle: safety,
			what: "a message that cannot be decoded is acknowledged and gone",
			edits: []edit{
				{"intake/batch.go", "	b.settle(works, items)\n	var done", "	b.settle(works, slices.DeleteFunc(slices.Clone(items), func(it *item) bool {\n		it.settled = it.kind == parked\n		return it.settled\n	}))\n	var done"},
			},
			sees: tests("TestPoisonIsParkedAsItCameAndHoldsUpNobody", "TestDeletedMessageIsToldByAnEntryThatWaitsForAPerson", "TestNoSeedLosesOrDoublesAMessage").and(crash, "messages-read,streamed"),
		},
		{
			name: "intake-parked-is-worked-on", oracle: safety,
			what: "the log works on a message that waits for a person",
			edits: []edit{
				{"intake/aside.go", "m.Parked != \"\" && e.Epoch == 0 {", "m.Parked != \"\" && e.Epoch < 0 {"},
			},
			sees: tests("TestPoisonIsParkedAsItCameAndHoldsUpNobody"),
		},
		{
			name: "intake-aside-not-acknowledged", oracle: lateness,
			what: "a message that was parked stays pending, and comes again for ever",
			edits: []edit{
				{"intake/batch.go", "		if it.settled {\n			done", "		if it.settled && it.kind == meant {\n			done"},
			},
			sees: tests("TestPoisonIsParkedAsItCameAndHoldsUpNobody"),
		},
		{
			name: "intake-refused-is-released", oracle: leak,
			what: "a message that the log takes in no form is given back, and taken again at once, as fast as it can be refused",
			edits: []edit{
				{"intake/batch.go", "	if len(left) > b.event.Refused {\n", "	if len(left) > 0 {\n"},
			},
			sees: tests("TestMessageTooLargeForTheLogIsToldAndInNobodysWay"),
		},
		{
			name: "intake-mute-error-ends-the-process", oracle: safety,
			what: "an error of Entry or Work whose Error panics is asked outside of what recovers",
			edits: []edit{
				{"intake/aside.go", "	return usererr.Of(in.cfg.Work(ctx, tx, messages))\n", "	return in.cfg.Work(ctx, tx, messages)\n"},
			},
			sees: tests("TestScheduleOrErrorThatPanicsEndsNoProcess"),
		},
		{
			name: "intake-schedule-ends-the-process", oracle: safety,
			what: "a schedule of messages set aside that panics ends the process",
			edits: []edit{
				{"intake/aside.go", "		if recover() != nil {\n			delay", "		if false {\n			delay"},
			},
			sees: tests("TestScheduleOrErrorThatPanicsEndsNoProcess"),
		},
		{
			name: "intake-schedule-uncut", oracle: lateness,
			what: "a message set aside comes due later than the log takes, and is refused in every form",
			edits: []edit{
				{"intake/aside.go", "min(max(0, in.cfg.Aside.Retry(1)), processlog.MaxDelay)", "min(max(0, in.cfg.Aside.Retry(1)), 2*processlog.MaxDelay)"},
			},
			sees: tests("TestScheduleLongerThanTheLogKeepsIsCut"),
		},
		{
			name: "intake-reason-uncut", oracle: lateness,
			what: "a message whose error repeats it is stored with both, for which there is no room",
			edits: []edit{
				{"intake/aside.go", "cmp.Or(processlog.FitError(reason), ", "cmp.Or(reason, processlog.FitError("},
				{"intake/aside.go", "\"no reason given\")", "\"no reason given\"))"},
			},
			sees: tests("TestMessageOfHalfMaxContentIsParkedWhateverIsInIt"),
		},
		{
			name: "intake-swells", oracle: lateness,
			what: "a message of <, > or quotes is given up, since it has no room as JSON writes it",
			edits: []edit{
				{"intake/message.go", "m.dense && swells(name, value)", "m.dense && swells()"},
			},
			sees: tests("TestMessageOfHalfMaxContentIsParkedWhateverIsInIt", "TestMessageThatBreaksTheConnectionIsSetAside"),
		},
		{
			name: "intake-encodes-to-nothing", oracle: safety,
			what: "a message whose codec fails is set aside without its content",
			edits: []edit{
				{"intake/aside.go", "		return failure(\"encode message \"+kept.ID, usererr.Of(err))\n", "		return nil\n"},
			},
			sees: tests("TestMessageThatCannotBeEncodedIsHeld"),
		},
		{
			name: "intake-outage-is-a-fault", oracle: safety,
			what: "an error of Work whose transaction has broken is the message's: it is set aside for an outage",
			edits: []edit{
				{"intake/aside.go", "broken != nil {", "broken != nil && false {"},
			},
			sees: tests("TestConnectionThatBreaksUnderWorkIsNoMessagesFault"),
		},
		{
			name: "intake-slow-is-an-outage", oracle: lateness,
			what: "a batch that takes too long is tried again as it is",
			edits: []edit{
				{"intake/aside.go", "if context.Cause(ctx) == errSlow {", "if false && context.Cause(ctx) == errSlow {"},
			},
			sees: tests("TestSlowBatchIsHalved"),
		},
		{
			name: "intake-breaker-retried", oracle: lateness,
			what: "a message that breaks its connection each time is taken for an outage for ever",
			edits: []edit{
				{"intake/batch.go", "if failures >= patience && b.suspect(ctx, items) {", "if false && b.suspect(ctx, items) {"},
			},
			sees: tests("TestMessageThatBreaksTheConnectionIsSetAside"),
		},
		{
			name: "intake-counts-the-outage", oracle: safety,
			what: "messages are taken before the log is known to take entries: processes that restart during an outage count them out",
			edits: []edit{
				{"intake/intake.go", "	if err := in.prove(ctx); err != nil || ctx.Err() != nil {", "	if err := ctx.Err(); err != nil {"},
			},
			sees: tests("TestProcessesThatDieDuringAnOutageCountNoMessageOut"),
		},
		{
			name: "intake-killer-never-parked", oracle: lateness,
			what: "a message that ends its processes is delivered for ever",
			edits: []edit{
				{"intake/batch.go", "	case m.Deliveries > in.cfg.MaxDeliveries:\n", "	case m.Deliveries > 1000*in.cfg.MaxDeliveries:\n"},
			},
			sees: tests("TestMessageThatKeepsComingIsParkedAndItsNeighboursAreNot", "TestNoSeedLosesOrDoublesAMessage"),
		},
		{
			name: "intake-suspects-together", oracle: safety,
			what: "messages that came twice in vain are taken together: the killer's neighbours are counted out with it",
			edits: []edit{
				{"intake/takeover.go", "found[i].RetryCount >= aloneFrom {", "found[i].RetryCount >= 1000*aloneFrom {"},
			},
			sees: tests("TestMessageThatKeepsComingIsParkedAndItsNeighboursAreNot"),
		},
		{
			name: "intake-release-counts", oracle: safety,
			what: "a message that is given back unworked has its delivery counted",
			edits: []edit{
				{"intake/takeover.go", "max(messages[i].Deliveries-1, 0)", "messages[i].Deliveries"},
			},
			sees: tests("TestNothingIsAcknowledgedBeforeItIsCommitted"),
		},
		{
			name: "intake-stop-breaks-off", oracle: lateness,
			what: "the end of Run's context ends the batch under way",
			edits: []edit{
				{"intake/intake.go", "in.take(works, messages)", "in.take(ctx, messages)"},
			},
			sees: tests("TestStoppedIntakeEndsItsBatchAndAcknowledgesIt"),
		},
		{
			name: "intake-robs-the-living", oracle: duplicates,
			what: "messages of a consumer that is at work are taken over",
			edits: []edit{
				{"intake/takeover.go", "Group: g.Group, Idle: g.Idle, Start", "Group: g.Group, Start"},
				{"intake/takeover.go", "g.claim(ctx, together(found), g.Idle)", "g.claim(ctx, together(found), 0)"},
			},
			sees: tests("TestMessagesOfALivingConsumerAreLeftToIt"),
		},
		{
			name: "intake-robs-the-faster", oracle: duplicates,
			what: "messages that another has taken over since they were looked at are taken from it",
			edits: []edit{
				{"intake/takeover.go", "g.claim(ctx, together(found), g.Idle)", "g.claim(ctx, together(found), 0)"},
			},
			sees: tests("TestMessageThatAnotherWasFasterWithIsLeftToIt"),
		},
		{
			name: "intake-own-not-first", oracle: lateness,
			what: "what a consumer was given under its name before it died waits until it looks silent to itself",
			edits: []edit{
				{"intake/group.go", "	if g.own {\n", "	if false && g.own {\n"},
			},
			sees: tests("TestOwnMessagesComeBeforeNewOnes", "TestAcknowledgementThatIsRefusedIsMadeUpFor"),
		},
		{
			name: "intake-error-forgets", oracle: lateness,
			what: "after an error a consumer does not look for what it was given by an answer that was lost",
			edits: []edit{
				{"intake/group.go", "{ g.own, g.after = true, \"\" }", "{}"},
			},
			sees: tests("TestAcknowledgementThatIsRefusedIsMadeUpFor"),
		},
		{
			name: "intake-deleted-unseen", oracle: safety,
			what: "a message that was deleted while it was pending vanishes without a word",
			edits: []edit{
				{"intake/takeover.go", "		if len(there) == 0 { //", "		if len(there) < 0 { //"},
			},
			sees: tests("TestDeletedMessageIsToldByAnEntryThatWaitsForAPerson"),
		},
		{
			name: "intake-group-gone-for-good", oracle: lateness,
			what: "a consumer group that vanishes is not made again",
			edits: []edit{
				{"intake/group.go", "		g.made, err = false, nil\n", "		err = nil\n"},
			},
			sees: tests("TestGroupThatVanishesIsMadeAgain"),
		},
		{
			name: "intake-forgets-with-messages", oracle: safety,
			what: "a consumer that was given messages in the last moment is removed with them",
			edits: []edit{
				{"intake/lua/forget.lua", "ARGV[2]) > 0 then", "ARGV[2]) > 1 then"},
			},
			sees: tests("TestConsumerThatHasMessagesIsNotRemoved"),
		},
		{
			name: "intake-names-pile-up", oracle: leak,
			what: "the names of dead consumers stay in the group",
			edits: []edit{
				{"intake/takeover.go", "consumer.Idle >= goneAfter*g.Idle {", "consumer.Idle >= 1000*goneAfter*g.Idle {"},
			},
			sees: tests("TestMessagesOfADeadConsumerAreTakenOverAndItsNameRemoved"),
		},
		{
			name: "intake-trims-the-pending", oracle: safety,
			what: "a stream is trimmed of messages that were given and not acknowledged",
			edits: []edit{
				{"intake/lua/trim.lua", "if group['pending'] > 0 then", "if group['pending'] < 0 then"},
			},
			sees: tests("TestTrimDeletesOnlyWhatEveryGroupHasAcknowledged"),
		},
		{
			name: "intake-trims-for-one-group", oracle: safety,
			what: "a stream is trimmed of what the fastest of its groups has done",
			edits: []edit{
				{"intake/lua/trim.lua", "less(keep, bound) then", "less(bound, keep) then"},
			},
			sees: tests("TestTrimDeletesOnlyWhatEveryGroupHasAcknowledged"),
		},
	}
}
