package main

// announcing: what the queue is told, and what it makes of it.
func announcing() []mutant {
	return []mutant{
		{
			name: "announced-before-commit", oracle: lateness,
			what: "the queue is told of an entry before its transaction has committed: it hints at a row that may never be",
			edits: []edit{
				{"internal/engine/recording.go", "{ r.Inserted, r.at = inserted, time.Now() }", "{\n	r.Inserted, r.at = inserted, time.Now()\n	r.intake.announceFresh(r.fresh(0))\n}"},
			},
			survives: tests("TestRolledBackEntryNeverRuns", "TestQueueMemberOfAnUncommittedEntryCostsNothing", "TestEntryRolledBackToASavepointNeverRuns"),
		},
		{
			name: "unseen-commit-not-polled-for", oracle: lateness,
			what: "no poll looks for the entries of a transaction whose commit nobody reports: they wait for the reconciler",
			edits: []edit{
				{"record.go", "		rec.Unseen()\n", ""},
			},
			sees: tests("TestEntryStartsAlthoughNobodyReportsItsCommit", "TestEntryStartsElsewhereAlthoughNobodyReportsItsCommit").and(simulation, "300"),
		},
		{
			name: "unseen-change-not-polled-for", oracle: lateness,
			what: "no poll looks for a change whose commit nobody reports: an entry that was brought forward waits for the reconciler",
			edits: []edit{
				{"manage.go", "		c.engine.ChangedUnseen(before, ch)\n", ""},
			},
			sees: tests("TestChangeTakesEffectAlthoughNobodyReportsItsCommit"),
		},
		{
			name: "reported-commit-polled-for", oracle: lateness,
			what: "a transaction is polled for although its commit was reported: each entry costs statements",
			edits: []edit{
				{"internal/engine/commitpoller.go", "		if c.told != nil && c.told.Load() {\n			return true\n		}\n", ""},
			},
			sees: tests("TestCommitIsPolledForThreeTimesAndForAllThatWaitAtOnce"),
		},
		{
			name: "unknown-commit-not-announced", oracle: lateness,
			what: "after a commit whose answer was lost nobody tells the queue; only the reconciler finds the entry",
			edits: []edit{
				{"internal/engine/recording.go", "		r.intake.announceFresh(r.fresh(time.Second))\n", ""},
			},
			sees: tests("TestEntryOfALostCommitReplyRunsWithoutTheReconciler"),
		},
		{
			name: "wake-up-lost", oracle: lateness,
			what: "a process is not woken for an entry that another one announced: it looks seconds later",
			edits: []edit{
				{"internal/engine/announcer.go", "		n.saw(troubleNotify, n.Queue.Notify(ctx, elsewhere)) // a hint; every scanner looks by itself before long\n", ""},
			},
			sees: tests("TestAnnouncedEntryWakesAnotherProcess"),
		},
		{
			name: "who-asks-spends-the-try", oracle: lateness,
			what: "in a process that only records, whoever asks whether the queue is relied on spends the try that was to find it back",
			edits: []edit{
				{"internal/engine/queue_health.go", "func (h *queueHealth) up() bool {\n	h.mu.Lock()\n	defer h.mu.Unlock()\n	return !h.down\n", "func (h *queueHealth) up() bool {\n	return h.tries()\n"},
			},
			sees: tests("TestCallThatFindsTheQueueBackTellsAllThatHasGathered"),
		},
		{
			name: "first-alone-finds-the-queue-back", oracle: lateness,
			what: "of what a process that stops has to tell a silent queue one entry is told, which finds it back, and the others are not",
			edits: []edit{
				{"internal/engine/announcer.go", "	if len(items) > 0 && !lane.Add(items...) {\n", "	if len(items) > 0 && n.health.tries() && !lane.Add(items...) {\n"},
				{"internal/engine/announcer.go", "	if !n.health.tries() {\n		return\n	}\n", ""},
			},
			sees: tests("TestCallThatFindsTheQueueBackTellsAllThatHasGathered"),
		},
		{
			name: "peeks-rarer-than-leases", oracle: lateness,
			what: "a lease of the queue that is shorter than the time between two looks at it ends unheard, and hides what is announced behind it",
			edits: []edit{
				{"internal/engine/types.go", "return min(peekInterval, r.leaseRange().shortest) }", "return peekInterval }"},
			},
			sees: tests("TestEntryBehindAnEndedLeaseOfTheQueueRunsOnTime"),
		},
		{
			name: "scanner-not-poked", oracle: lateness,
			what: "a sleeping scanner is told of an earlier entry and sleeps on",
			edits: []edit{
				{"internal/engine/agenda.go", "	if earlier {\n		a.poke()\n", "	if earlier {\n"},
			},
			sees: tests("TestSleepingScannerIsWokenForAnEarlierEntry"),
		},
		{
			name: "plain-zadd", oracle: duplicates,
			what: "an announcement makes an entry due that somebody has just leased from the queue",
			edits: []edit{
				{"internal/redisqueue/lua/announce.lua", "      if place > later + wait + longest then", "      if true then"},
			},
			sees:     tests("TestRedisQueueKeepsTheQueuesPromises/LeasedEntryKeepsItsLeaseWhenAnnounced"),
			survives: tests("TestEntryTwiceOnItsWayRunsOnce", "TestManyInstancesRunEachEntryOnce").and(model, "h:announce-overwrites"),
		},
		{
			name: "settle-leaves-lost-ones", oracle: lateness,
			what: "an entry of a type that the queue has lost is settled while another process, which read it before, is about to announce the end of its lease",
			edits: []edit{
				{"internal/redisqueue/lua/settle.lua", "if forgotten or was and", "if was and"},
			},
			sees: tests("TestRedisQueueKeepsTheQueuesPromises/SettleBringsBackWhatIsLost").and(model, "m:settle-leaves-lost"),
		},
		{
			name: "unconditional-removal", oracle: lateness,
			what: "a settle removes an entry from the queue that somebody else has leased since",
			edits: []edit{
				{"internal/redisqueue/lua/settle.lua", "if forgotten or was and (was == token or wait >= 0 and was > due) then", "if forgotten or was then"},
			},
			sees:     tests("TestRedisQueueKeepsTheQueuesPromises/SettleRemovesOnlyUnderItsOwnToken"),
			survives: tests("TestFrozenProcessThatComesBackChangesNothing", "TestManyInstancesRunEachEntryOnce").and(model, "h:ack-without-token"),
		},
		{
			name: "redis-retries", oracle: lateness,
			what: "the Redis client sends a claim again whose answer was lost: a second batch is leased on top",
			edits: []edit{
				{"internal/redisqueue/client.go", "func ownSingleClient(opt redis.Options) *redis.Client {\n	opt.MaxRetries = -1\n", "func ownSingleClient(opt redis.Options) *redis.Client {\n	opt.MaxRetries = 3\n"},
			},
			sees: tests("TestClaimWhoseReplyWasLostLeasesOneBatchOnly"),
		},
		{
			name: "queue-early", oracle: lateness,
			what: "the queue offers entries some milliseconds before they are due: the database says no, and they are asked for again",
			edits: []edit{
				{"internal/redisqueue/lua/announce.lua", "local later = time[1] * 1000 + math.ceil(time[2] / 1000)", "local later = time[1] * 1000 + math.floor(time[2] / 1000) - 20"},
			},
			sees:     tests("TestRedisQueueKeepsTheQueuesPromises/NoEntryComesDueEarly"),
			survives: tests("TestDelayedEntryIsNeverEarly"),
		},
		{
			name: "lead-never-ends", oracle: lateness,
			what: "the process that leads has the lead for good: when it dies nobody reconciles by the period any more",
			edits: []edit{
				{"internal/redisqueue/lua/lead.lua", "ARGV[1], 'PX', ARGV[2])", "ARGV[1])"},
				{"internal/redisqueue/lua/lead.lua", "  redis.call('PEXPIRE', KEYS[1], ARGV[2])\n", ""},
			},
			sees: tests("TestRedisQueueKeepsTheQueuesPromises/AnotherLeadsOnceALeadHasEnded"),
		},
		{
			name: "rebuild-of-the-dead", oracle: lateness,
			what: "a type is the rebuilder's for good: when that process dies nobody announces what the queue has lost",
			edits: []edit{
				{"internal/redisqueue/lua/rebuild.lua", "FAR + now, '+inf'", "FAR, '+inf'"},
			},
			sees: tests("TestRedisQueueKeepsTheQueuesPromises/RebuildOfTheDeadIsGivenToAnother"),
		},
		{
			name: "second-database-let-in", oracle: lateness,
			what: "two databases share a prefix: each takes the other's entries out of the queue",
			edits: []edit{
				{"internal/redisqueue/queue.go", "			if owner != fingerprint {\n", "			if owner == \"\" {\n"},
			},
			sees: tests("TestRedisQueueKeepsTheQueuesPromises/AnotherFingerprintIsRefused"),
		},
		{
			name: "queue-loss-untold", oracle: lateness,
			what: "a process does not notice that the queue has lost everything since it last asked",
			edits: []edit{
				{"internal/redisqueue/queue.go", "kept := slices.Equal(found, q.epochs)", "kept := q.epochs[0] != \"\""},
			},
			sees: tests("TestRedisQueueKeepsTheQueuesPromises/LossIsToldOnce"),
		},
	}
}
