package main

// telling: what fails, with no caller to hear of it.
func telling() []mutant {
	return []mutant{
		{
			name: "trouble-untold-due", oracle: lateness,
			what: "nobody is told of readings of what is due that fail: neither the log nor Health",
			edits: []edit{
				{"internal/engine/scanner.go", "		s.troubles.failed(troubleDue, t.Name, err)\n", ""},
			},
			sees: tests(everyTrouble + "due"),
		},
		{
			name: "trouble-over-unsaid-due", oracle: lateness,
			what: "a reading of what is due that failed stands in Health for good once the queue is back",
			edits: []edit{
				{"internal/engine/scanner.go", "	s.troubles.passed(troubleDue, t.Name) // the queue has taken over, and nobody will ask the database again\n", ""},
			},
			sees: tests(everyTrouble + "due"),
		},
		untold("claim", "troubleClaim", "claims that fail"),
		{
			name: "trouble-over-by-another", oracle: lateness,
			what: "where the database is polled, claims that go on failing are in order again as soon as what is due can be read",
			edits: []edit{
				{"internal/engine/scanner.go", "	s.troubles.passed(troubleDue, t.Name)\n	return due, more, nil\n", "	s.troubles.passed(troubleDue, t.Name)\n	s.saw(troubleClaim, nil)\n	return due, more, nil\n"},
			},
			sees: tests(everyTrouble + "claim-polled"),
		},
		untold("read-back", "troubleReadBack", "new entries that cannot be read back"),
		untold("release", "troubleRelease", "leases that cannot be given back"),
		untold("renew", "troubleRenew", "leases that cannot be renewed"),
		untold("store", "troubleStore", "outcomes that cannot be stored"),
		untold("witness", "troubleWitness", "what is remembered and cannot be read back"),
		untold("notify", "troubleNotify", "other processes that cannot be notified"),
		{
			name: "trouble-untold-begin", oracle: lateness,
			what: "attempts whose transaction cannot begin are put off without a word",
			edits: []edit{
				{"internal/engine/transactional.go", "		return ending{err: ours(err)}\n", "		return ending{err: Snooze(unavailablePause)}\n"},
			},
			sees: tests(everyTrouble + "begin"),
		},
		{
			name: "trouble-of-the-cancelled", oracle: lateness,
			what: "an attempt that was told to stop tells of a trouble that there is none",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	if !errors.Is(cause, processlog.ErrCancelled) { //", "	if true || !errors.Is(cause, processlog.ErrCancelled) { //"},
			},
			sees: tests("TestAttemptThatIsToldToStopBlamesNothing"),
		},
		{
			name: "trouble-never-over", oracle: lateness,
			what: "what has failed once stands in Health for good",
			edits: []edit{
				{"internal/engine/trouble.go", "	delete(t.open, troubleKey{what, businessType})\n", ""},
			},
			sees: tests(everyTrouble+"store", "TestWhatFailsIsLoggedAndShownInHealth"),
		},
		{
			name: "trouble-told-each-time", oracle: leak,
			what: "what fails again and again fills the log",
			edits: []edit{
				{"internal/engine/trouble.go", "	quiet := known && now.Sub(last) < report.Interval\n", "	quiet := known && now.Sub(last) < 0*report.Interval\n"},
			},
			sees: tests(everyTrouble+"store", "TestWhatFailsIsLoggedAndShownInHealth"),
		},
	}
}

const everyTrouble = "TestEveryTroubleIsToldOnceAndStandsInHealthUntilItIsOver/"

// untold is the silence about one kind of trouble.
func untold(name, constant, what string) mutant {
	return mutant{
		name: "trouble-untold-" + name, oracle: lateness,
		what: "nobody is told of " + what + ": neither the log nor Health",
		edits: []edit{
			{"internal/engine/base.go", "	if err != nil {\n		b.troubles.failed(", "	if err != nil && what != " + constant + " {\n		b.troubles.failed("},
		},
		sees: tests(everyTrouble + name),
	}
}
