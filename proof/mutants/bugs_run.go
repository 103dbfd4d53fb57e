package main

// running: leases of attempts, and the end of Run.
func running() []mutant {
	return []mutant{
		{
			name: "unanswered-claims-untold", oracle: lateness,
			what: "Run returns nil while a claim is not answered: that its entries wait for its lease is told nobody",
			edits: []edit{
				{"internal/engine/engine.go", "	if !await(patience, &e.intake.resolve,", "	if false && !await(patience, &e.intake.resolve,"},
			},
			sees: tests("TestClaimThatIsNotAnsweredUntilRunReturnsIsNamed"),
		},
		{
			name: "claims-end-before-requests", oracle: lateness,
			what: "a program that stops claims nothing any more while requests still record",
			edits: []edit{
				{"serve/serve.go", "	err = stop(kept, cfg", "	stopWorking()\n	<-work.done\n	err = stop(kept, cfg"},
			},
			sees: tests("TestProgramStopsFromTheOutsideIn", "TestRequestUnderWayIsRecordedAndWhatIsDueRunsWhileTheProgramStops"),
		},
		{
			name: "pages-close-first", oracle: lateness,
			what: "operators' pages and probes are gone while the program still stops",
			edits: []edit{
				{"serve/serve.go", "	err = stop(kept, cfg", "	_ = stop(kept, insideStop, inside)\n	err = stop(kept, cfg"},
			},
			sees: tests("TestProgramStopsFromTheOutsideIn"),
		},
		{
			name: "deaf-server-holds-up-the-stop", oracle: lateness,
			what: "a server that is stuck in a function of the user's is waited for: a program that stops goes on past its time, until it is killed",
			edits: []edit{
				{"serve/serve.go", "	go func() { told <- p.tell(ctx) }()\n", "	told <- p.tell(ctx)\n"},
			},
			sees: tests("TestServerThatDoesNotEndIsNamedAndHoldsUpNoStop"),
		},
		{
			name: "never-renewed", oracle: duplicates,
			what: "the lease of a running attempt is not renewed: another process runs the entry, too",
			edits: []edit{
				{"internal/engine/renewer.go", "case a.leaseEnd.Sub(now) < lease*2/3:", "case a.leaseEnd.Sub(now) < -lease:"},
			},
			sees: tests("TestLeaseIsRenewedWhileTheHandlerRuns"),
		},
		{
			name: "locked-is-stored", oracle: lateness,
			what: "an outcome whose row is locked is taken for one that was stored: Health says that nothing is wrong, while a lost session holds what it could not write",
			edits: []edit{
				{"internal/engine/settler.go", "		if err != nil || slices.ContainsFunc(results, func(r processlog.Settled) bool { return !r.Busy }) {", "		if true {"},
			},
			sees: tests("TestOutcomeWhoseRowIsLockedIsNotTakenForStored"),
		},
		{
			name: "renewals-stay-a-trouble", oracle: lateness,
			what: "renewals that failed stand in Health when nothing is left to renew, until some other lease needs one",
			edits: []edit{
				{"internal/engine/renewer.go", "			r.troubles.passed(troubleRenew, \"\") //", "			//"},
			},
			sees: tests("TestRenewalsAreNoTroubleOnceNothingIsLeftToRenew"),
		},
		{
			name: "overtaken-attempt-renewed", oracle: duplicates,
			what: "an attempt that a person's requeue has overtaken is renewed beside the new one, which is then taken for lost, too",
			edits: []edit{
				{"internal/engine/renewer.go", "		if n := len(kept); n > 0 && kept[n-1].row.ID == a.row.ID {\n", "		if n := len(kept); n < 0 {\n"},
			},
			sees: tests("TestRequeuedEntryKeepsItsLeaseBesideTheAttemptItOvertook").and(simulation, "3000"),
		},
		{
			name: "renewal-without-fence", oracle: lateness,
			what: "a renewal asks for neither version nor state: a handler whose entry was cancelled is not told",
			edits: []edit{
				{"internal/sqlstore/claim.go", "fence := fmt.Sprintf(\"version=%d AND state+0 IN (0,-1,-3)\", version)", "fence := fmt.Sprintf(\"version>=0*%d\", version)"},
				{"compensatortest/memory/claim.go", "case row == nil || row.committed == nil || row.committed.entry.Version != h.Version || row.committed.entry.State.Terminal():", "case row == nil || row.committed == nil:"},
			},
			sees:     tests("TestHandlerIsToldThatItsLeaseIsLost", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/RenewKeepsTheVersionAndTellsWhatIsLost"),
			survives: selection{model: "h:renew-unfenced"},
		},
		{
			name: "renewal-revives", oracle: safety,
			what: "a renewal writes the entry back as it was claimed: one that was cancelled elsewhere comes to life again",
			edits: []edit{
				{"internal/sqlstore/claim.go", "fence := fmt.Sprintf(\"version=%d AND state+0 IN (0,-1,-3)\", version)", "fence := fmt.Sprintf(\"version>=0*%d\", version)"},
				{"internal/sqlstore/claim.go", "UPDATE %s SET lease_until=%s+%d WHERE id IN (%s) AND %s%s\"", "UPDATE %s SET lease_until=%s+%d, state=IF(state IN (1,2,3,4,-2),0,state), ended_by='' WHERE id IN (%s) AND %s%s\""},
				{"compensatortest/memory/claim.go", "	next.leaseUntil = until\n", "	next.leaseUntil = until\n	if next.entry.State.Terminal() {\n		next.entry.State, next.entry.EndedBy = processlog.Pending, \"\"\n	}\n"},
				{"compensatortest/memory/claim.go", "case row == nil || row.committed == nil || row.committed.entry.Version != h.Version || row.committed.entry.State.Terminal():", "case row == nil || row.committed == nil:"},
			},
			sees: tests("TestHandlerIsToldThatItsLeaseIsLost", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/RenewKeepsTheVersionAndTellsWhatIsLost").and(simulation, "300").and(model, "m:renew-revives"),
		},
		{
			name: "outcome-through-ended-context", oracle: safety,
			what: "outcomes are written under a context that ends when Run stops: what handlers did is lost",
			edits: []edit{
				{"internal/engine/settler.go", "		ctx, cancel := s.statement()\n		asked", "		ctx, cancel := context.WithTimeout(s.ended, statementTimeout)\n		asked"},
				{"internal/engine/settler.go", "import (\n", "import (\n	\"context\"\n"},
				{"internal/engine/settler.go", "	lane    groupcommit", "	ended   context.Context\n	lane    groupcommit"},
				{"internal/engine/dispatcher.go", "	d.handler, d.stop = context.WithCancelCause(d.work)\n", "	d.handler, d.stop = context.WithCancelCause(d.work)\n	d.settler.ended = d.handler\n"},
			},
			sees: tests("TestHandlersThatFinishWhileRunStopsAreRecorded").and(simulation, "10000"),
		},
		{
			name: "stop-drops-outcomes", oracle: safety,
			what: "Run returns before the outcomes of its handlers are stored",
			edits: []edit{
				{"internal/engine/engine.go", "if !await(patience, &e.settler.lane, &e.settler.prompt, &e.settler.slow) {", "if false {"},
				{"internal/engine/engine.go", " && await(patience, &e.announcer.acks, &e.announcer.fresh, &e.announcer.moved)\n", "\n"},
			},
			sees: tests("TestRunReturnsOnlyOnceOutcomesAreStored").and(simulation, "1000"),
		},
		{
			name: "stop-outlasts-its-patience", oracle: lateness,
			what: "a stop whose patience is over waits for what the queue is to be told for as long as that takes",
			edits: []edit{
				{"internal/engine/engine.go", "	_ = await(patience, &e.intake.next, &e.turns.rested) && await(patience, &e.intake.next, &e.turns.gone) && await(", "	_, _ = await(patience, &e.intake.next, &e.turns.rested), await("},
			},
			sees: tests("TestStopWhosePatienceIsOverWaitsForNothingMore"),
		},
		{
			name: "stop-spends-attempts", oracle: safety,
			what: "a handler that obeys the stop has failed",
			edits: []edit{
				{"internal/engine/outcome.go", "return toldToStop(cause) && (", "return toldToStop(cause) && !errors.Is(cause, processlog.ErrStopping) && ("},
			},
			sees: tests("TestHandlersThatObeyTheStopSpendNothing"),
		},
		{
			name: "effect-without-fence", oracle: safety,
			what: "a transactional handler commits its effect although somebody else has taken its entry over",
			edits: []edit{
				{"internal/sqlstore/settle.go", "	case changed == 1:\n		return nil\n", "	case changed <= 1:\n		return nil\n"},
				{"compensatortest/memory/settle.go", "	case row == nil || !row.seenBy(own).admits(outcome):\n", "	case row != nil && !row.seenBy(own).admits(outcome):\n		return nil\n	case row == nil:\n"},
			},
			sees: tests("TestStaleTransactionalEffectIsRolledBack", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/SettleTxIsFenced").and(simulation, "300"),
		},
		{
			name: "unknown-handler-commit-fails", oracle: safety,
			what: "a transactional handler whose commit's answer was lost has failed, and that counts",
			edits: []edit{
				{"internal/engine/transactional.go", "	case errors.Is(err, processlog.ErrCommitUnknown):\n", "	case errors.Is(err, processlog.ErrCommitUnknown):\n		return ending{err: err}\n"},
			},
			sees: tests("TestTransactionalEffectHappensOnceThoughItsCommitIsUnknown").and(model, "m:unknown-is-failure").and(simulation, "2000"),
		},
		{
			name: "unknown-handler-commit-succeeds", oracle: lateness,
			what: "a transactional handler whose commit's answer was lost has succeeded: if not, nobody looks until its lease ends",
			edits: []edit{
				{"internal/engine/transactional.go", "	case errors.Is(err, processlog.ErrCommitUnknown):\n", "	case errors.Is(err, processlog.ErrCommitUnknown):\n		return ending{settled: true}\n"},
			},
			sees: tests("TestLostCommitOfAHandlerIsRepeatedWithinItsLease").and(model, "m:unknown-is-success"),
		},
		{
			name: "batch-in-first-context", oracle: safety,
			what: "a batch runs in the values that travelled with its first entry: one tenant's work is done as another's",
			edits: []edit{
				{"internal/engine/batch.go", "d.handlerContext(t, nil)", "d.handlerContext(t, &batch[0].row)"},
			},
			sees: tests("TestBatchCarriesTheValuesOfNoEntryAndEachItemItsOwn").and(simulation, "300"),
		},
		{
			name: "batch-failure-spreads", oracle: safety,
			what: "a batch that came to no verdict fails each of its entries",
			edits: []edit{
				{"internal/engine/batch.go", "				d.again(a)\n", "				d.finish(a, ending{err: errNoVerdict})\n"},
			},
			sees: tests("TestBatchWithoutAVerdictForEachEntrySpendsNoAttempt").and(simulation, "10000"),
		},
		{
			name: "holder-claims-again", oracle: safety,
			what: "a process claims again what it runs, or whose outcome it holds, once the lease has ended: it is run twice, or taken out, and its success dropped",
			edits: []edit{
				{"internal/engine/picker.go", "	case held != nil && !stuck, stuck &&", "	case held != nil && stuck &&"},
				{"internal/engine/holdings.go", "if run.Err() != nil || h.held[a.holding()] != nil ||", "if run.Err() != nil ||"},
			},
			sees: tests("TestOutcomeThatWaitsComesBeforeAClaimOfItsOwnProcess").and(simulation, "300").and(model, "m:holder-claims-again"),
		},
		{
			name: "lease-counted-from-its-answer", oracle: duplicates,
			what: "a claim's lease is counted from when its answer came: one that was answered after it has ended starts what another process has had",
			edits: []edit{
				{"internal/engine/dispatcher.go", "leaseEnd: asked.Add(row.LeaseLeft)}", "leaseEnd: time.Now().Add(row.LeaseLeft)}"},
			},
			sees: tests("TestClaimAnsweredAfterItsLeaseStartsNothing", "TestNoHandlerStartsUnderALeaseThatHasEnded"),
		},
		{
			name: "lane-left-before-outcome-is-durable", oracle: safety,
			what: "a suspect lets the next one in when its handler returns: a process that dies while outcomes wait counts against all of them",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	s := settlement{a: a, outcome: a.t.safeOutcomeOf(", "	d.holdings.leaveQuarantine(a, true)\n	s := settlement{a: a, outcome: a.t.safeOutcomeOf("},
			},
			sees: tests("TestSuspectHoldsItsLaneUntilItsOutcomeIsStored").and(simulation, "1000").and(model, "m:lane-left-at-return"),
		},
		{
			name: "suspects-run-with-all", oracle: safety,
			what: "entries of one lost lease run like any others: all that was claimed beside a killer is at its last delivery after two crashes",
			edits: []edit{
				{"internal/engine/quarantine.go", "	if f.full || f.held >= f.allowed {\n", "	if false {\n"},
			},
			sees: tests("TestSuspectsRunAmongFewAndThoseOfTwoLostLeasesAlone", "TestInnocentsBesideKillersAreToldApart", "TestEntriesOfAPlainKillAreWorkedOffAmongFew").and(simulation, "2000"),
		},
		{
			name: "completed-by-its-handler-is-dropped", oracle: lateness,
			what: "a handler that completes its own entry in its own transaction counts as an outcome that came too late",
			edits: []edit{
				{"internal/engine/settler.go", "	if completed(o, r) {\n", "	if false {\n"},
			},
			sees: tests("TestHandlerThatCompletesItsOwnEntryHasSettledIt"),
		},
		{
			name: "unread-lease-is-left-to-its-end", oracle: lateness,
			what: "an entry that is inserted with a lease and cannot be read back waits for the end of that lease, which counts as lost",
			edits: []edit{
				{"internal/engine/intake.go", "		in.disown(batch)\n", "		for _, f := range batch {\n			in.giveBack(f)\n		}\n"},
			},
			sees: tests("TestLeaseThatAnEntryIsInsertedWithIsGivenBackWhereItCannotBeReadBack"),
		},
		{
			name: "nameless-lease-is-left-to-its-end", oracle: lateness,
			what: "the same of an entry whose id the database did not tell at first",
			edits: []edit{
				{"internal/engine/intake.go", "	if len(leased) > 0 && in.pause(", "	if false && in.pause("},
			},
			sees: tests("TestLeaseThatAnEntryIsInsertedWithIsGivenBackOnceItsIDIsTold"),
		},
		{
			name: "suspects-of-a-batch-run-one-by-one", oracle: lateness,
			what: "what a killed process held of a batch type takes a call for each entry",
			edits: []edit{
				{"internal/engine/type.go", "		return withSuspects\n", "		return alone\n"},
			},
			sees: tests("TestEntriesThatAKilledProcessHeldAreWorkedOffInFewCalls", "TestClaimedEntriesNeedAsManyCallsAsHandlersRun"),
		},
		{
			name: "suspects-share-a-batch-with-innocents", oracle: safety,
			what: "an entry that has lost a lease shares its batch with those that have not, and may take them with it",
			edits: []edit{
				{"internal/engine/type.go", "		return withSuspects\n", "		return withOthers\n"},
			},
			sees: tests("TestSuspectsStayOutOfBatches").and(simulation, "1000"),
		},
		{
			name: "alone-beside-few", oracle: safety,
			what: "an entry of two lost leases runs beside those of one: it may take one of them to its last delivery",
			edits: []edit{
				{"internal/engine/quarantine.go", "	case lost >= aloneAfter && q.total > 0:\n", "	case false:\n"},
			},
			sees: tests("TestSuspectsRunAmongFewAndThoseOfTwoLostLeasesAlone", "TestSuspectThatIsToRunAloneGetsItsTurn").and(simulation, "1000"),
		},
		{
			name: "late-commit-suspected", oracle: leak,
			what: "an entry that was committed long after its Record passes for one that has lost a lease, and keeps a place that nobody gives back",
			edits: []edit{
				{"internal/engine/picker.go", "	if row.Version == 0 && row.DeliveryCount > 0 &&", "	if false &&"},
			},
			sees: tests("TestEntryClaimedOnAfterALateCommitTakesNoPlaceInQuarantine").and(simulation, "5000"),
		},
		{
			name: "broken-batch-runs-after-stop", oracle: duplicates,
			what: "a batch that breaks after the end of Run's context is run again entry by entry",
			edits: []edit{
				{"internal/engine/batch.go", "	case stopping, errors.Is(cause, processlog.ErrStopping):\n", "	case stopping && false:\n"},
				{"internal/engine/dispatcher.go", "	case d.stopping():\n		return ending{", "	case false:\n		return ending{"},
			},
			sees: tests("TestBatchThatBreaksAfterTheEndOfRunsContextIsNotRunAgain").and(simulation, "300"),
		},
		{
			name: "unstarted-kept-at-the-stop", oracle: duplicates,
			what: "what a claim brings when Run is told to stop is neither started nor given back: it waits for the end of its lease, and that counts as a crash",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	d.claims.release(attempts[0].row.Token, entries...)\n", "	if !d.stopping() {\n		d.claims.release(attempts[0].row.Token, entries...)\n	}\n"},
			},
			sees: selection{simulation: "1000"},
		},
		{
			name: "start-after-its-time", oracle: duplicates,
			what: "a handler is called although its attempt ran out of time while its transaction began, passes for stuck, and has left its place to another suspect",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	case a.ctx.Err() != nil:\n", "	case false:\n"},
			},
			sees: tests("TestHandlerIsNotCalledOnceItsAttemptIsOver"),
		},
		{
			name: "outcome-waits-while-leases-end", oracle: safety,
			what: "an entry is taken out as soon as its third lease has ended, although a living process may still hold its success",
			edits: []edit{
				{"internal/engine/picker.go", "	case row.DeliveryCount > crashBudget:\n", "	case row.DeliveryCount >= crashBudget:\n"},
				{"internal/engine/dispatcher.go", "		if lost > crashBudget {\n", "		if lost >= crashBudget {\n"},
			},
			sees: tests("TestCrashBudgetLeavesALeaseToTheSuccessOfALivingProcess").and(simulation, "300"),
		},
		{
			name: "handler-starts-after-stop", oracle: duplicates,
			what: "what a claim brings after the end of Run's context is started",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	run, _ := d.contexts()\n	attempts, refused", "	_, run := d.contexts()\n	attempts, refused"},
				{"internal/engine/dispatcher.go", "	case d.stopping():\n		return ending{", "	case false:\n		return ending{"},
			},
			sees: tests("TestNoHandlerStartsOnceRunsContextHasEnded", "TestNoTransactionalHandlerStartsOnceRunsContextHasEnded").and(simulation, "300"),
		},
		{
			name: "late-success-unlogged", oracle: safety,
			what: "a success that comes too late is thrown away without a word in the log: the work is done, and the entry says otherwise",
			edits: []edit{
				{"internal/engine/settler.go", "		return slog.LevelWarn\n", "		return slog.LevelDebug\n"},
			},
			sees: tests("TestSuccessThatComesTooLateIsLoggedAsAWarning"),
		},
		{
			name: "held-up-start-after-stop", oracle: duplicates,
			what: "what was let in before the end of Run's context, and held up before its handler, is started after it",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	case d.stopping():\n		return ending{", "	case false:\n		return ending{"},
				{"internal/engine/batch.go", "	if !d.stopping() {\n		verdicts", "	if true {\n		verdicts"},
			},
			sees: tests("TestNoHandlerStartsOnceRunsContextHasEndedWhileItsStartWasHeldUp"),
		},
		{
			name: "late-batch-runs-again", oracle: duplicates,
			what: "a batch that breaks after its leases have ended is run again entry by entry, beside whoever has them now",
			edits: []edit{
				{"internal/engine/batch.go", "	case !a.gone && time.Now().After(a.leaseEnd):\n", "	case false:\n"},
				{"internal/engine/batch.go", "		d.renewer.renewAll(t.Lease, late)\n", ""},
			},
			sees: tests("TestBatchThatBreaksAfterItsLeasesIsNotRunAgainHere"),
		},
		{
			name: "stuck-batch-stays-stuck", oracle: lateness,
			what: "an entry of a batch that was stuck, run again alone, passes for stuck from its first moment: no lease is renewed, and nobody hears of it if it is",
			edits: []edit{
				{"internal/engine/dispatcher.go", "a.started, a.stuck = ctx, cancel, time.Now(), false\n", "a.started = ctx, cancel, time.Now()\n"},
			},
			sees: tests("TestEntryOfABrokenBatchThatWasStuckStartsAfresh"),
		},
		{
			name: "lease-counted-beside-renewal", oracle: lateness,
			what: "a process counts a lease against an entry whose batch was stuck and has returned, while its lease is asked for anew to run it alone",
			edits: []edit{
				{"internal/engine/attempt.go", "a.stuck && !a.anew && ", "a.stuck && "},
			},
			sees: tests("TestNoLeaseIsCountedWhileTheLeasesOfABrokenBatchAreAskedForAnew"),
		},
		{
			name: "stuck-takes-retries-from-others", oracle: lateness,
			what: "a process that is stuck on an entry takes the next try, which another process has asked for, and lets a lease pass in it",
			edits: []edit{
				{"internal/engine/picker.go", "min(-row.LeaseLeft, -row.DueIn) <", "-row.LeaseLeft <"},
			},
			sees: tests("TestStuckProcessLeavesARetryToOthers").and(simulation, "3000"),
		},
		{
			name: "stuck-claimed-here", oracle: leak,
			what: "a process runs an entry again that one of its handlers is stuck on: two goroutines hang",
			edits: []edit{
				{"internal/engine/picker.go", "	case stuck, row.DeliveryCount == crashBudget:\n", "	case row.DeliveryCount == crashBudget:\n"},
				{"internal/engine/holdings.go", "|| h.held[a.holding()] != nil ||", "|| h.held[a.holding()] != nil && !h.held[a.holding()].stuck ||"},
			},
			sees: tests("TestEntryWhoseHandlerNeverReturnsIsNotRunBesideIt").and(simulation, "300").and(model, "m:stuck-claims-again"),
		},
		{
			name: "cancelled-after-timeout-run-again", oracle: duplicates,
			what: "an entry that was cancelled when its batch had timed out, and not returned, is run again alone",
			edits: []edit{
				{"internal/engine/attempt.go", "	a.gone = true\n", "	a.gone = a.ctx.Err() == nil\n"},
			},
			sees: tests("TestEntryCancelledAfterItsBatchTimedOutIsNotRunAgain"),
		},
		{
			name: "debts-forgotten", oracle: safety,
			what: "a lease that could not be given back is left to end by itself, and counts as lost",
			edits: []edit{
				{"internal/engine/debts.go", "		d.owe(left[i].ids())\n	}\n	d.lane.Add(left...)\n", "		_ = left[i]\n	}\n"},
			},
			sees: tests("TestClaimsOfUnknownEndCostNoDelivery"),
		},
		{
			name: "busy-believed-renewed", oracle: safety,
			what: "the lease of a row that another transaction holds is taken for renewed, and its handler runs on after it",
			edits: []edit{
				{"internal/engine/renewer.go", "		case !slices.Contains(left.Busy, a.row.ID): //", "		default: //"},
			},
			sees: tests("TestHandlerIsToldWhenTheLeaseOfALockedRowEnds"),
		},
		{
			name: "owed-claimed-anew", oracle: safety,
			what: "an entry whose lease is still to be given back is claimed anew: that lease can be given back no more, and counts as lost",
			edits: []edit{
				{"internal/engine/debts.go", "		out := d.owed[w.ID] > 0\n", "		out := false\n"},
			},
			sees: tests("TestWhatIsOwedIsNotAskedForMeanwhile"),
		},
		{
			name: "debt-is-all-or-nothing", oracle: lateness,
			what: "of leases that are to be given back one row is locked, and all stay owed for as long as it is",
			edits: []edit{
				{"internal/engine/debts.go", "	if !errors.Is(err, processlog.ErrBusy) || len(rest.entries) == 1 {\n", "	if len(rest.entries) > 0 {\n"},
			},
			sees: tests("TestOneLockedRowKeepsNoOtherFromBeingGivenBack"),
		},
		{
			name: "debts-wait-for-one", oracle: lateness,
			what: "a lease whose row is locked is tried until it is given back, and what is owed since waits behind it",
			edits: []edit{
				{"internal/engine/debts.go", "		err := d.pay(&batch[i])\n", "		err := d.pay(&batch[i])\n		for len(batch[i].entries) == 1 && err != nil && d.pause(time.Second) {\n			err = d.pay(&batch[i])\n		}\n"},
			},
			sees: tests("TestWhatIsOwedIsPaidWhileARowOfAnotherDebtIsLocked"),
		},
		{
			name: "hanging-in-every-slot-uncounted", oracle: lateness,
			what: "an entry whose stuck handler has the last slot is never taken out",
			edits: []edit{
				{"internal/engine/reconciler.go", "	r.countHanging()\n", ""},
			},
			sees: tests("TestEntryIsTakenOutAlsoWhereItsStuckHandlerHasTheOnlySlot"),
		},
		{
			name: "take-out-first", oracle: safety,
			what: "an entry is taken out although the handler that was stuck on it has returned, and its success waits beside",
			edits: []edit{
				{"internal/engine/settler.go", "		return held != nil && !stuck\n", "		return held == nil && stuck\n"},
			},
			sees: tests("TestWhatAStuckHandlerReportsComesBeforeItsTakingOut", "TestTakeOutThatWaitsGivesWayToTheStuckHandlersSuccess"),
		},
		{
			name: "sqlite-transaction-loses-its-lease", oracle: duplicates,
			what: "on SQLite a transactional handler's own lock keeps its renewal out: what takes longer than the lease runs again for ever",
			edits: []edit{
				{"handler.go", "case oneWriter && usesTx && cfg.Lease < enough:", "case oneWriter && usesTx && cfg.Lease > enough:"},
			},
			sees: sqliteTests("TestTransactionalHandlerMayTakeLongerThanItsLease", "TestLeaseOfATransactionOnSQLiteOutlastsItsTimeout"),
		},
		{
			name: "small-sqlite-pool-loses-its-lease", oracle: duplicates,
			what: "a small pool of SQLite's on a Connector is taken for one beside which the library has connections of its own",
			edits: []edit{
				{"handler.go", "(c.connector == nil || oneWriter)", "c.connector == nil"},
			},
			sees: sqliteTests("TestLeaseOfATransactionOnSQLiteOutlastsItsTimeout"),
		},
		{
			name: "small-pool-loses-its-lease", oracle: duplicates,
			what: "on a small plain pool no lease is raised above the timeout, although no connection may be left to renew it by",
			edits: []edit{
				{"handler.go", "case size != 0 && size <= 3 &&", "case size < 0 && size <= 3 &&"},
			},
			sees: tests("TestLeaseOutlastsTheTimeoutOnASmallPlainPoolAlone"),
		},
		{
			name: "business-words-are-sqlites", oracle: duplicates,
			what: "a handler's error with a database's words or codes is taken for SQLite's condition: the entry runs twice as often as it may",
			edits: []edit{
				{"internal/txwatch/outcome.go", "	if strings.Contains(of.PkgPath(), \"sqlite\") {", "	if of != nil {"},
			},
			sees: tests("TestErrorOfNoDriverIsNotOfSQLitesCondition").and(sqlite, "TestErrorOfTheBusinessIsNotTakenForSQLites"),
		},
		{
			name: "unavailable-never-backs-off", oracle: duplicates,
			what: "an entry whose service is down for a day calls it every three seconds, all day",
			edits: []edit{
				{"internal/engine/outcome.go", "	return max(wait, longer)\n", "	return wait\n"},
			},
			sees: tests("TestUnavailableBacksOffToMinutes"),
		},
		{
			name: "hostile-error-ends-the-process", oracle: safety,
			what: "an error of a handler whose methods panic, a nil pointer for example, is looked at where nothing recovers",
			edits: []edit{
				{"internal/engine/type.go", "	return usererr.Of(t.Run(ctx, row))\n", "	return t.Run(ctx, row)\n"},
			},
			sees: tests("TestErrorWhoseMethodsPanicIsAFailureLikeAnyOther"),
		},
		{
			name: "hostile-batch-ends-the-process", oracle: safety,
			what: "the same of a batch's errors",
			edits: []edit{
				{"internal/engine/type.go", "		copies[i] = usererr.Of(err)\n", "		copies[i] = err\n"},
			},
			sees: tests("TestErrorWhoseMethodsPanicIsAFailureLikeAnyOther"),
		},
	}
}
