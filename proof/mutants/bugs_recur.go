package main

// recurring: slots, and what is kept.
func recurring() []mutant {
	return []mutant{
		{
			name: "held-mark-stops-the-round", oracle: lateness,
			what: "a periodic type whose mark is held, or that is not due, keeps all behind it from being made",
			edits: []edit{
				{"internal/engine/calendar.go", "		what, businessType := p.trouble()\n", "		if err == nil && !done {\n			break\n		}\n		what, businessType := p.trouble()\n"},
			},
			sees: tests("TestMarkThatIsHeldIsTakenUpWhenItIsFree"),
		},
		{
			name: "slots-passed-over-in-silence", oracle: lateness,
			what: "that slots have passed while no process ran, and are not made up for, is told nobody",
			edits: []edit{
				{"internal/engine/calendar.go", "	if due.skipped > 0 && !p.upkeep() {\n", "	if due.skipped < 0 && !p.upkeep() {\n"},
			},
			sees: tests("TestMissedSlotsAreMadeUpForAsTold"),
		},
		{
			name: "taken-slot-stops-its-type", oracle: lateness,
			what: "a slot that a person has made ahead with other bytes, or whose id is another type's, is refused each round, and all later ones with it",
			edits: []edit{
				{"receipt.go", "!r.Entries[i].Duplicate || entries[i].slot {", "!r.Entries[i].Duplicate {"},
			},
			sees: tests("TestSlotWhoseIDIsTakenHoldsUpNoLaterOne"),
		},
		{
			name: "taken-slot-unsaid", oracle: lateness,
			what: "a slot that is not made, for another type's entry has its id, is told nobody",
			edits: []edit{
				{"periodic.go", "if moved && len(taken) > 0 {", "if moved && len(taken) < 0 {"},
			},
			sees: tests("TestSlotWhoseIDIsTakenHoldsUpNoLaterOne"),
		},
		{
			name: "mark-unfenced", oracle: duplicates,
			what: "a mark is moved from wherever it is: a process that read it long ago moves it back, and slots are made again",
			edits: []edit{
				{"internal/sqlstore/slots.go", `"business_type=%s AND slot=%d", s.d.text(businessType), from.UnixMilli())`, `"business_type=%s AND slot<>%d", s.d.text(businessType), -from.UnixMilli())`},
				{"compensatortest/memory/slots.go", " || m.seenBy(own) != from.UnixMilli()", ""},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/MarkThatHasMovedIsNotMovedAgain", "TestMemoryStoreKeepsEveryPromise/MarkThatHasMovedIsNotMovedAgain"),
		},
		{
			name: "mark-moves-alone", oracle: safety,
			what: "the mark is committed before the slot's entry: a process that dies in between has lost the slot",
			edits: []edit{
				{"periodic.go", "		failpoint.Reach(failpoint.MarkMoved)\n		return work(ctx, tx)\n	})\n", "		return nil\n	})\n	if err != nil || !moved {\n		return false, err\n	}\n	failpoint.Reach(failpoint.MarkMoved)\n	err = c.InTx(ctx, work)\n"},
			},
			sees: selection{simulation: "1000"}.and(crash, "mark-moved,periodic"),
		},
		{
			name: "slots-by-this-clock", oracle: safety,
			what: "slots are those of the process's clock: one that is ahead is early",
			edits: []edit{
				{"internal/engine/calendar.go", "	read := time.Now()\n", "	read := time.Now()\n	now = read\n"},
			},
			sees: tests("TestSlotsAreThoseOfTheDatabasesClock"),
		},
		{
			name: "slot-a-second-early", oracle: safety,
			what: "a slot is taken to be there when it is near",
			edits: []edit{
				{"internal/engine/calendar.go", "d.next.After(now); done", "d.next.After(now.Add(time.Second)); done"},
			},
			sees: tests("TestNewestSlotsAreKeptAndTheRestCounted").and(simulation, "1000"),
		},
		{
			name: "missed-slots-dropped", oracle: safety,
			what: "of the slots that nobody made in time only the newest is made up for, whatever was told",
			edits: []edit{
				{"periodic.go", "CatchUp: cfg.CatchUp,", "CatchUp: 1,"},
			},
			sees: tests("TestMissedSlotsAreMadeUpForAsTold").and(simulation, "1000"),
		},
		{
			name: "slots-filled-back", oracle: safety,
			what: "a type's mark begins long ago: its first registration makes slots of before",
			edits: []edit{
				{"compensatortest/memory/slots.go", "&mark{at: s.nowLocked()}", "&mark{at: s.nowLocked() - 86400000}"},
				{"internal/sqlstore/slots.go", "s.d.text(businessType), s.d.now))", "s.d.text(businessType), s.d.now+\"-86400000\"))"},
			},
			sees: tests("TestFirstRegistrationFillsNothingBackAndASecondScheduleGoesOn", "TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/MarkBeginsAtTheDatabasesNowAndStays"),
		},
		{
			name: "held-mark-awaited", oracle: lateness,
			what: "a process that was stopped in its transaction holds up the slots of all other types, in all processes",
			edits: []edit{
				{"internal/sqlstore/slots.go", "s.table.quoted(\"_slots\"), at, atMost(1), s.d.lockNow))", "s.table.quoted(\"_slots\"), at, atMost(1), s.d.lock))"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/MarkThatAnotherHoldsIsNotWaitedFor"),
		},
		{
			name: "held-mark-forgotten", oracle: lateness,
			what: "a slot that another process was about to make, and did not, waits for the next one",
			edits: []edit{
				{"internal/engine/calendar.go", "		return min(again, c.PollInterval), false, err\n", "		return again, false, err\n"},
			},
			sees: tests("TestSlotThatAnotherProcessDidNotMakeIsMadeSoon"),
		},
		{
			name: "slot-troubles-untold", oracle: lateness,
			what: "slots that cannot be recorded are nobody's business",
			edits: []edit{
				{"internal/engine/calendar.go", "			c.troubles.failed(what, businessType, err)\n", ""},
			},
			sees: tests("TestWhatKeepsSlotsFromBeingRecordedStandsInHealth"),
		},
		{
			name: "idle-marks", oracle: lateness,
			what: "a log in which nothing is periodic is asked for marks",
			edits: []edit{
				{"internal/engine/calendar.go", "periods := c.all(); len(periods) > 0; {", "periods := c.all(); len(periods) >= 0; {"},
			},
			sees: tests("TestNothingIsAskedWhereNothingIsPeriodic"),
		},
		{
			name: "deleted-mark-unsaid", oracle: lateness,
			what: "a mark that somebody has deleted begins anew, and nobody hears that slots may be missing",
			edits: []edit{
				{"internal/engine/calendar.go", "	if begun && !p.upkeep() {\n", "	if begun && p.upkeep() {\n"},
			},
			sees: tests("TestDeletedMarkBeginsAnewAndIsTold"),
		},
		{
			name: "cases-fail-as-purge", oracle: lateness,
			what: "what fails of the upkeep of cases is told under another name, and taken back when a purge works",
			edits: []edit{
				{"operations.go", "caseEvery, engine.TroubleCases,", "caseEvery, engine.TroublePurge,"},
			},
			sees: tests("TestUpkeepOfCasesThatFailsIsToldByItsName"),
		},
		{
			name: "keep-takes-young", oracle: safety,
			what: "ended entries are purged by themselves although they are young: their idempotent ids guard no longer",
			edits: []edit{
				{"keep.go", "s.businessType, s.state, s.keep, keepStep)", "s.businessType, s.state, s.keep/2, keepStep)"},
			},
			sees: tests("TestEndedEntriesArePurgedOnceTheyHaveBeenKept").and(simulation, "1000"),
		},
		{
			name: "keep-takes-dead", oracle: safety,
			what: "dead entries are purged by themselves, and no person ever sees them",
			edits: []edit{
				{"keep.go", "	for _, state := range purged {\n", "	for _, state := range append(purged[:3:3], Dead) {\n"},
			},
			sees: tests("TestEndedEntriesArePurgedOnceTheyHaveBeenKept").and(simulation, "1000"),
		},
		{
			name: "keep-of-all-types", oracle: safety,
			what: "what one type keeps for a short time only, all types lose",
			edits: []edit{
				{"keep.go", "c.store.Purge(step, s.businessType, s.state,", "c.store.Purge(step, \"\", s.state,"},
			},
			sees: tests("TestEndedEntriesArePurgedOnceTheyHaveBeenKept", "TestKeepOnAServerTakesWhatIsOldAndLeavesTheRest"),
		},
		{
			name: "shelf-a-declaration", oracle: producers,
			what: "a type is purged once a round for each time that it was declared: with each message, in a service that does so",
			edits: []edit{
				{"keep.go", "		if i < 0 {\n", "		if i < 0 || len(c.kept.shelf) > 0 {\n"},
			},
			sees: tests("TestTypeIsPurgedOnceARoundHoweverOftenItIsDeclared"),
		},
		{
			name: "keep-by-everybody", oracle: producers,
			what: "each process purges, all at once",
			edits: []edit{
				{"keep.go", "			if err != nil || !moved {\n", "			if err != nil {\n"},
			},
			sees: tests("TestPurgingIsOneProcessesAtATimeInSmallSteps"),
		},
		{
			name: "keep-in-one-gulp", oracle: producers,
			what: "all that is old is purged in one go",
			edits: []edit{
				{"keep.go", "keepStep  = 100\n", "keepStep  = 100_000\n"},
			},
			sees: tests("TestPurgingIsOneProcessesAtATimeInSmallSteps"),
		},
		{
			name: "keep-without-rest", oracle: producers,
			what: "purging follows purging without a rest",
			edits: []edit{
				{"keep.go", "keepRest  = 4\n", "keepRest  = 0\n"},
			},
			sees: tests("TestPurgingIsOneProcessesAtATimeInSmallSteps"),
		},
		{
			name: "keep-stops-at-a-lock", oracle: lateness,
			what: "one old row that is locked ends the round of its type after 99",
			edits: []edit{
				{"keep.go", "		if n > 0 && (", "		if n == keepStep && ("},
			},
			sees: tests("TestRoundGoesOnBehindALockedRow"),
		},
		{
			name: "keep-stops-at-a-refusal", oracle: lateness,
			what: "an entry that the database refuses to delete ends the round of its type",
			edits: []edit{
				{"keep.go", "(err == nil || errors.As(err, new(*processlog.RefusedError)))", "(err == nil || errors.As(err, new(*processlog.RefusedError)) && false)"},
			},
			sees: tests("TestRoundTakesTheRestOfARefusedEntry"),
		},
		{
			name: "keep-fails-for-all", oracle: lateness,
			what: "a type whose purge fails ends the round of all others",
			edits: []edit{
				{"keep.go", "end)\n		if err != nil {\n			failed = append(failed, err)\n", "end)\n		if err != nil {\n			return err\n"},
			},
			sees: tests("TestTypeWhosePurgeFailsHoldsUpNoOther"),
		},
		{
			name: "keep-late-ends-late", oracle: producers,
			what: "a round that begins late goes on beside the next",
			edits: []edit{
				{"keep.go", "at.Add(keepFor))", "time.Now().Add(keepFor))"},
			},
			sees: tests("TestRoundThatBeginsLateEndsAsAnyOther"),
		},
		{
			name: "cron-day-without-midnight", oracle: lateness,
			what: "an expression of every hour goes on by the offset before the clock was set: slots at hours the clock does not show",
			edits: []edit{
				{"cron/cron.go", "end.IsZero() || at.Before(end) {", "true {"},
			},
			sees: scheduleTests("TestExpressionOfEveryHourHasEachMomentTheClockShows"),
		},
		{
			name: "cron-spins-in-leap-years", oracle: lateness,
			what: "a schedule goes on by the end that a zone gives its year, which in a leap year comes a day early: it never returns",
			edits: []edit{
				{"cron/cron.go", "!end.IsZero() && !end.After(t) {", "false {"},
			},
			sees: scheduleTests("TestSlotsGoOnPastTheLastDayOfALeapYear"),
		},
		{
			name: "cron-never", oracle: lateness,
			what: "an expression of a day that its months do not have is accepted, and never fires",
			edits: []edit{
				{"cron/check.go", "	case len(without) == months:\n", "	case false:\n"},
				{"cron/check.go", "	case len(without) > 0 && s.Month", "	case false && s.Month"},
			},
			sees: scheduleTests("TestExpressionThatNeverFiresOrSaysSomethingElseIsRefused"),
		},
		{
			name: "cron-any-step", oracle: duplicates,
			what: "a step that is larger than its field is accepted: 90 minutes are an hour",
			edits: []edit{
				{"cron/check.go", "	case step > last-first:\n", "	case false:\n"},
			},
			sees: scheduleTests("TestExpressionThatNeverFiresOrSaysSomethingElseIsRefused"),
		},
		{
			name: "cron-either-day", oracle: duplicates,
			what: "a day of the month beside a day of the week is accepted: cron takes either",
			edits: []edit{
				{"cron/cron.go", "		err = check(expression)\n", "		_ = check\n"},
			},
			sees: scheduleTests("TestExpressionThatNeverFiresOrSaysSomethingElseIsRefused"),
		},
		{
			name: "cron-skips-2104", oracle: lateness,
			what: "after five years without a slot a schedule goes on decades later",
			edits: []edit{
				{"cron/cron.go", "time.Date(shown.Year()+5,", "time.Date(shown.Year()+50,"},
			},
			sees: scheduleTests("TestLeapDayHasItsSlotAcrossAYearThatIsNone"),
		},
	}
}
