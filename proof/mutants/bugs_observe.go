package main

// observing: what the library says of itself to metrics and traces.
func observing() []mutant {
	return []mutant{
		{
			name: "observer-silences-others", oracle: lateness,
			what: "an observer that panics keeps what happens from those after it",
			edits: []edit{
				{"observe/observers.go", "	if len(told) > 1 {\n		defer each(told[1:], event)\n	}\n	told[0](event)\n", "	for _, tell := range told {\n		tell(event)\n	}\n"},
			},
			sees: tests("TestObserverThatPanicsKeepsOthersFromNothing"),
		},
		{
			name: "unready-answers-well", oracle: lateness,
			what: "a prober is told 200 by a process whose Run is not at work, or whose database is away",
			edits: []edit{
				{"observe/probe/ready.go", "			w.WriteHeader(http.StatusServiceUnavailable)\n", "			w.WriteHeader(http.StatusOK)\n"},
			},
			sees: tests("TestProbeSaysWhetherAProcessCanDoItsPart"),
		},
		{
			name: "prober-told-all", oracle: safety,
			what: "whoever asks whether a process is ready is told its errors and business types",
			edits: []edit{
				{"observe/probe/ready.go", "any { return answer{health.Ready() == nil, because(health)} }", "any { return health }"},
				{"observe/probe/ready.go", "	type answer struct {\n		Ready   bool   `json:\"ready\"`\n		Because string `json:\"because,omitempty\"`\n	}\n", ""},
			},
			sees: tests("TestProbeIsNotReadyForWhatKeepsAProcessFromItsPartAlone"),
		},
		{
			name: "health-gives-the-queue-all-its-time", oracle: lateness,
			what: "Health asks the database after a queue that may take all the time there is: a silent Redis makes every process unready",
			edits: []edit{
				{"internal/engine/health.go", "	e.askDatabase(ctx, &h)\n	h.Queue = queue()\n", "	h.Queue = queue()\n	e.askDatabase(ctx, &h)\n"},
				{"internal/engine/base.go", "time.Until(deadline)/2", "time.Until(deadline)"},
			},
			sees: tests("TestProcessIsReadyWhileRedisIsSilent", "TestProcessIsReadyInEachTryWhileTheQueueIsSilent"),
		},
		{
			name: "new-gives-the-queue-all-its-time", oracle: lateness,
			what: "New gives a silent queue all the time that it has, and then fails for the database",
			edits: []edit{
				{"queue_redis.go", "context.WithTimeout(ctx, engine.QueueShare(ctx, queueCheckMost))", "context.WithTimeout(ctx, 0*engine.QueueShare(ctx, 0)+queueCheckMost)"},
			},
			sees: tests("TestNewLeavesTheDatabaseItsTimeWhileTheQueueIsSilent"),
		},
		{
			name: "recorder-never-asks-the-queue-again", oracle: lateness,
			what: "a process that only records goes on saying that Redis is away, until it records again",
			edits: []edit{
				{"internal/engine/queue_health.go", "err != nil && !h.tries()", "err != nil"},
			},
			sees: tests("TestHealthOfAProcessThatOnlyRecordsSeesTheQueueComeBack"),
		},
		{
			name: "users-cap-on-our-client", oracle: lateness,
			what: "commands fail at once where the user's MaxActiveConns is reached, and the queue is given up",
			edits: []edit{
				{"internal/redisqueue/client.go", "	opt.PoolSize, opt.MaxActiveConns = poolWithin(opt.PoolSize, opt.MaxActiveConns), 0\n	opt.MinIdleConns = 0\n	opt.Dialer", "	opt.MinIdleConns = 0\n	opt.Dialer"},
			},
			sees: tests("TestQueueIsReliedOnWithinTheFewConnectionsOfItsClient"),
		},
		{
			name: "no-connection-left-to-listen", oracle: lateness,
			what: "commands may take all the connections that the user's MaxActiveConns allows, and the one that listens is one more",
			edits: []edit{
				{"internal/redisqueue/client.go", "		return most - 1\n", "		return most\n"},
			},
			sees: tests("TestQueueIsReliedOnWithinTheFewConnectionsOfItsClient"),
		},
		{
			name: "old-primary-kept", oracle: lateness,
			what: "connections stay on a server that has become a replica, each until go-redis gives it up, before Redis 7 for good",
			edits: []edit{
				{"internal/redisqueue/dial.go", "			c.era.now.CompareAndSwap(c.born, c.born+1)\n", ""},
			},
			sees: tests("TestConnectionsToAServerThatTakesNoWritesAreGivenUpAtItsFirstAnswer"),
		},
		{
			name: "outage-since-the-year-one", oracle: lateness,
			what: "of an outage that New has found the log says that it has lasted for 292 years",
			edits: []edit{
				{"internal/engine/queue_health.go", "h.down, h.gaps, h.warned, h.since = true, true, true, time.Now()", "h.down, h.gaps, h.warned = true, true, true"},
			},
			sees: tests("TestQueueThatNewFoundDownIsToldToAnswerAgainAfterTheTimeSinceNew"),
		},
		{
			name: "repetition-told-as-recorded", oracle: lateness,
			what: "an entry that was there already is told as a new one",
			edits: []edit{
				{"internal/engine/recording.go", "d := &r.Drafts[i]; !r.Inserted[i].Duplicate {\n			tell(", "d := &r.Drafts[i]; d != nil {\n			tell("},
			},
			sees: tests("TestObserverSeesEveryStepOfAnEntry"),
		},
		{
			name: "panic-swallowed-by-its-span", oracle: safety,
			what: "a handler that panics inside of the span is taken for one that has succeeded",
			edits: []edit{
				{"otel/span.go", "		defer func() { t.end(a, returned, err) }() //", "		defer func() { _ = recover(); t.end(a, returned, err) }() //"},
			},
			sees: telemetryTests("TestPanicOfAHandlerGoesOn"),
		},
		{
			name: "broken-tracer-fails-the-handler", oracle: safety,
			what: "a tracer's panic is taken for the handler's: an attempt that never began has failed",
			edits: []edit{
				{"otel/span.go", "	defer survive()\n	recordedIn, known :=", "	recordedIn, known :="},
			},
			sees: telemetryTests("TestPanickingProviderHarmsNoEntry"),
		},
		{
			name: "series-without-end", oracle: leak,
			what: "each business type that is ever seen has a series of its own for good",
			edits: []edit{
				{"otel/kept.go", "	known, full := n.known[name], len(n.known) >= n.most\n", "	known := n.known[name]\n"},
				{"otel/kept.go", "	case full:\n		return other, false\n", ""},
				{"otel/kept.go", "	case len(n.known) >= n.most:\n		return other, false\n", ""},
			},
			sees: telemetryTests("TestOddValuesMakeABoundedNumberOfSeries"),
		},
		{
			name: "long-trace-refuses-its-entry", oracle: producers,
			what: "a tracestate that others have filled makes Record refuse the entry",
			edits: []edit{
				{"otel/propagator.go", "const maxTraceState = 512", "const maxTraceState = 1 << 20"},
			},
			sees: telemetryTests("TestLongTraceStateRefusesNoEntry"),
		},
		{
			name: "scrape-waits-for-the-database", oracle: leak,
			what: "a scrape waits for a database that does not answer until it does",
			edits: []edit{
				{"otel/gauges.go", "lookTimeout = 5 * time.Second", "lookTimeout = time.Hour"},
			},
			sees: telemetryTests("TestScrapesLookAtTheLogNowAndThenAndWaitForNoDatabase"),
		},
		{
			name: "past-due-untold", oracle: lateness,
			what: "a case that nobody has looked at in time is told as one that is not due",
			edits: []edit{
				{"desk/standing.go", "max(0, time.Since(first.Cases[0].DueAt))", "min(0, time.Since(first.Cases[0].DueAt))"},
			},
			sees: telemetryTests("TestMetricsTellTheLivesOfEntries"),
		},
	}
}
