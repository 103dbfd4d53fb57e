package main

// batching: what shares a call of its handler, waits for others to share it, or comes after a batch.
func batching() []mutant {
	return []mutant{
		{
			name: "wait-batch-passes-the-requeued", oracle: safety,
			what: "WaitBatch ends when nothing is open behind where it has looked, whatever a person has requeued in front",
			edits: []edit{
				{"inspect.go", "			case err != nil || p.Done == p.Total:\n", "			case true:\n"},
			},
			sees: tests("TestWaitBatchWaitsForWhatIsRequeuedMeanwhile"),
		},
		{
			name: "concurrency-caps-batches", oracle: lateness,
			what: "a claim brings as many entries as batches may run: one batch at a time is one entry at a time",
			edits: []edit{
				{"internal/engine/type.go", "return min(calls*t.seats(), processlog.MaxRows)", "return min(calls, processlog.MaxRows)"},
			},
			sees: tests("TestConcurrencyCountsBatchesAndCapsNone"),
		},
		{
			name: "each-of-a-batch-frees-a-slot", oracle: safety,
			what: "each entry of a batch gives a slot back: more batches run at once than the type allows",
			edits: []edit{
				{"internal/engine/batch.go", "		a.slot = slot\n", "		a.slot = nil\n"},
			},
			sees: tests("TestConcurrencyCountsBatchesAndCapsNone").and(simulation, "300"),
		},
		{
			name: "broken-batch-keeps-its-slot", oracle: leak,
			what: "a batch that came to no verdict keeps its slot when its entries have run alone",
			edits: []edit{
				{"internal/engine/batch.go", "slot.left.Store(int32(len(batch)))", "slot.left.Store(int32(len(batch) + 1))"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "batch-waits-for-nobody", oracle: lateness,
			what: "an entry that is due is claimed at once, whatever its type's BatchWait: batches of one",
			edits: []edit{
				{"internal/engine/agenda.go", "scan.hear(now.Add(max(0, in+scan.wait)))", "scan.hear(now.Add(max(0, in)))"},
			},
			sees: tests("TestEntriesRecordedApartShareABatch"),
		},
		{
			name: "start-ends-the-wait", oracle: lateness,
			what: "a Run that begins claims at once what waits for others, and what is recorded until that claim meets it",
			edits: []edit{
				{"internal/engine/agenda.go", "&scan{due: time.Now().Add(t.BatchWait),", "&scan{due: time.Now(),"},
			},
			sees: tests("TestStartOfAProcessEndsNoWait"),
		},
		{
			name: "look-put-off-by-an-old-answer", oracle: lateness,
			what: "the queue, asked before a look at the database, puts off what that has found and it does not know",
			edits: []edit{
				{"internal/engine/linger.go", "		scan.heard++ // the queue may not know of it, and was perhaps asked before\n", ""},
			},
			sees: tests("TestRunBeginsWithALookAtWhatWaitsForOthers"),
		},
		{
			name: "queue-asked-for-what-waits", oracle: leak,
			what: "every word that another process sends of a type whose entries wait for others asks the queue again",
			edits: []edit{
				{"internal/engine/agenda.go", "	if waits && !scan.lingers(time.Now()) {\n", "	if waits {\n"},
			},
			sees: tests("TestQueueIsNotAskedAgainWhileEntriesWaitForOthers"),
		},
		{
			name: "lingering-taken-for-forgotten", oracle: lateness,
			what: "the reconciler claims what waits for others, as if the queue had forgotten it",
			edits: []edit{
				{"internal/engine/reconciler.go", "if t.BatchWait > 0 && len(page) > 0", "if false && len(page) > 0"},
			},
			sees: tests("TestNothingIsClaimedWhileItWaitsForOthers"),
		},
		{
			name: "full-batch-waits", oracle: lateness,
			what: "as many entries as a batch takes wait for others still",
			edits: []edit{
				{"internal/engine/linger.go", "	if found >= t.BatchSize {\n", "	if found > 1<<20 {\n"},
			},
			sees: tests("TestFullBatchDoesNotWait"),
		},
		{
			name: "looks-put-the-batch-off", oracle: lateness,
			what: "each look at the queue makes what is due wait for others anew: for ever",
			edits: []edit{
				{"internal/engine/agenda.go", "	if scan.wait > 0 && wait <= 0 {\n		return\n	}\n", ""},
			},
			sees: tests("TestEntryThatWaitsForOthersIsNotPutOff"),
		},
		{
			name: "never-is-now", oracle: leak,
			what: "never, and as long as entries wait for others, is a moment that is past: a type at rest is claimed in a hot loop",
			edits: []edit{
				{"internal/engine/agenda.go", "in = min(in, processlog.Never-scan.wait)", "in = min(in, processlog.Never)"},
			},
			sees: tests("TestTypeAtRestThatWaitsForOthersIsLeftAlone"),
		},
		{
			name: "follow-up-at-once", oracle: safety,
			what: "what comes after a batch runs although entries of it have not ended",
			edits: []edit{
				{"inspect.go", "	if !open.IsZero() {\n		return Snooze(min(", "	if open.IsZero() && batchID == \"\" {\n		return Snooze(min("},
			},
			sees: tests("TestFollowUpRunsOnceAllOfItsBatchHaveEnded").and(simulation, "1000").and(crash, "batch-ended"),
		},
		{
			name: "batches-that-look-alike", oracle: lateness,
			what: "\"b \" is recorded as a batch of its own, which MySQL counts with \"b\": what comes after that waits for both",
			edits: []edit{
				{"record.go", "	if strings.HasSuffix(e.BatchID, \" \") {\n		refuse(\"batch id\", endsWithSpace)\n	}\n", ""},
			},
			sees: tests("TestBatchIDThatEndsWithASpaceIsRefused"),
		},
		{
			name: "follow-up-before-retries", oracle: safety,
			what: "an entry that failed and is to be tried again has ended, for what comes after its batch",
			edits: []edit{
				{"inspect.go", "[]State{Pending, Retrying, Compensating}", "[]State{Pending, Compensating}"},
			},
			sees: tests("TestFollowUpRunsOnceAllOfItsBatchHaveEnded"),
		},
		{
			name: "answer-fits-by-chance", oracle: safety,
			what: "a batch handler's wrong answer is taken for one about entries that it was not given, for it has as many errors",
			edits: []edit{
				{"handler.go", "return make([]error, len(entries)+1)", "return answers"},
			},
			sees: tests("TestAnswerForEntriesThatCouldNotBeDecodedIsNoVerdict"),
		},
	}
}
