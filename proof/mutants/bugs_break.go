package main

// breaking: types that are left alone while what they need is down.
func breaking() []mutant {
	return []mutant{
		{
			name: "breaker-lets-claimed-run", oracle: duplicates,
			what: "what was claimed while the breaker opened runs all the same, and after the pause a whole claim's worth for one",
			edits: []edit{
				{"internal/engine/breaker.go", "n := min(len(attempts), b.roomLocked())", "n := len(attempts)"},
			},
			sees: tests("TestOpenBreakerLetsNothingInThenOneProbeWhichClosesIt", "TestEntriesThatWereClaimedWhileTheBreakerOpenedAreGivenBack").and(simulation, "1000"),
		},
		{
			name: "breaker-keeps-no-slot-back", oracle: duplicates,
			what: "while a breaker is open entries are claimed and given back again, as fast as the database takes it",
			edits: []edit{
				{"internal/engine/slots.go", "if room := s.breaker.room(); room < math.MaxInt {", "if room := s.breaker.room(); room < -math.MaxInt {"},
			},
			sees: tests("TestOpenBreakersTypeHasNoSlots", "TestOpenBreakerCostsNoClaim"),
		},
		{
			name: "breaker-bears-claimed", oracle: lateness,
			what: "what is recorded while a breaker is open is born claimed: others cannot take it before it is given back",
			edits: []edit{
				{"internal/engine/slots.go", "	if s.breaker.shut() {\n		return nil\n	}\n", ""},
			},
			sees: tests("TestOpenBreakersTypeHasNoSlots"),
		},
		{
			name: "breaker-keeps-queue-lease", oracle: lateness,
			what: "entries that a breaker gives back stay leased in the queue, and other processes wait for that",
			edits: []edit{
				{"internal/engine/dispatcher.go", "			d.claims.announcer.move(t.Name, a.row.ID, 0)\n", "			_ = a\n"},
			},
			sees: tests("TestEntriesThatWereClaimedWhileTheBreakerOpenedAreGivenBack"),
		},
		{
			name: "breaker-hears-old-news", oracle: duplicates,
			what: "a call that began before the breaker opened counts for what has been since",
			edits: []edit{
				{"internal/engine/breaker.go", "if c.told || c.turn != b.turn {", "if c.told {"},
			},
			sees: tests("TestOpenBreakerLetsNothingInThenOneProbeWhichClosesIt"),
		},
		{
			name: "breaker-waits-for-hung-probe", oracle: lateness,
			what: "a probe that never returns is waited for, and the type never tried again",
			edits: []edit{
				{"internal/engine/renewer.go", "		s.t.breaker.hung(s.attempt, s.in)\n", ""},
			},
			sees: tests("TestProbeThatHangsDoesNotEndTheProbing"),
		},
		{
			name: "breaker-hears-any-of-a-batch", oracle: lateness,
			what: "a batch that hangs is the word of any one of its entries, and not of its first, as it is when it returns",
			edits: []edit{
				{"internal/engine/renewer.go", "	slices.SortFunc(stuck, func(a, b hanging) int { return inOrder(a.attempt, b.attempt) })\n", ""},
			},
			sees: tests("TestBatchThatHangsIsItsFirstEntrysWord"),
		},
		{
			name: "breaker-hears-hung-of-the-next-call", oracle: lateness,
			what: "that a batch hung is told of the calls that its entries have begun alone since: the breaker opens while they succeed",
			edits: []edit{
				{"internal/engine/renewer.go", "hung(s.attempt, s.in)", "hung(s.attempt, s.call.Load())"},
			},
			sees: tests("TestBatchThatReturnsWhileItIsToldToHangSpeaksForNoCallAfterIt"),
		},
		{
			name: "breaker-void-probe-kept", oracle: lateness,
			what: "a probe that was let in and could not start is waited for, and the type never tried again",
			edits: []edit{
				{"internal/engine/breaker.go", "	case end.unstarted:\n		b.hear(a, a.call.Load(), nothing, nil)\n", "	case end.unstarted:\n"},
			},
			sees: tests("TestProbeThatTellsNothingIsFollowedByAnotherAfterTheSamePause"),
		},
		{
			name: "breaker-broken-batch-runs-on", oracle: duplicates,
			what: "the entries of a batch that has opened the breaker run alone, all at once, against what is down",
			edits: []edit{
				{"internal/engine/breaker.go", "	return &call{turn: b.turn}, b.open == nil\n", "	return &call{turn: b.turn}, true\n"},
			},
			sees: tests("TestBatchThatOpensTheBreakerIsGivenBack"),
		},
		{
			name: "breaker-used-lease-given-back", oracle: safety,
			what: "the entries of such a batch are given back as if they had run nothing, and what kills its process runs for ever",
			edits: []edit{
				{"internal/engine/batch.go", "d.finish(a, ending{err: soon(errShut)})", "d.finish(a, ending{err: errShut, unstarted: true})"},
			},
			sees: tests("TestBatchThatOpensTheBreakerIsGivenBack"),
		},
		{
			name: "breaker-never-wakes", oracle: lateness,
			what: "the end of a pause wakes nobody: the probe waits for the next look at the queue",
			edits: []edit{
				{"internal/engine/scanner.go", "		next = t.breaker.wakes(now, next)\n", ""},
			},
			sees: tests("TestScannerSleepsUntilThePauseEnds"),
		},
		{
			name: "breaker-counts-the-database", oracle: lateness,
			what: "a transaction that could not be begun or committed counts against what the handler calls",
			edits: []edit{
				{"internal/engine/breaker.go", "	case v.ours, v.kind == serverFault, v.kind == serverDown, errors.Is", "	case v.kind == serverFault, v.kind == serverDown, errors.Is"},
			},
			sees: tests("TestWhatACallTellsOfWhatItNeeds"),
		},
		{
			name: "breaker-counts-what-nobody-could-read", oracle: lateness,
			what: "entries of a newer version's content, for which no handler was called, open the breaker of all others",
			edits: []edit{
				{"internal/engine/breaker.go", "	case v.free, v.undecodable:\n		return uncalled\n", ""},
			},
			sees: tests("TestWhatACallTellsOfWhatItNeeds"),
		},
		{
			name: "follow-up-is-the-probe", oracle: lateness,
			what: "an entry whose batch has not ended is an open breaker's probe, and a pause follows each of them",
			edits: []edit{
				{"internal/engine/breaker.go", "	case v.free, v.undecodable:\n		return uncalled\n", "	case v.free && v.kind == snooze:\n		return nothing\n	case v.free, v.undecodable:\n		return uncalled\n"},
			},
			sees: tests("TestEntriesThatWaitForTheirBatchGiveWayToTheProbe"),
		},
		{
			name: "unread-is-the-probe", oracle: lateness,
			what: "an entry of a newer version's content, for which no handler was called, is an open breaker's probe, and a pause follows each of them",
			edits: []edit{
				{"internal/engine/breaker.go", "	case v.free, v.undecodable:\n		return uncalled\n", "	case v.undecodable:\n		return nothing\n	case v.free:\n		return uncalled\n"},
			},
			sees: tests("TestEntriesThatNobodyHereCanReadGiveWayToTheProbe", "TestProbeThatMakesNoCallGivesWayAtOnce"),
		},
	}
}
