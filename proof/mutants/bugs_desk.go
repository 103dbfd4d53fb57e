package main

// operating: cases, and what people do through a desk.
func operating() []mutant {
	return []mutant{
		{
			name: "case-after-the-death", oracle: safety,
			what: "a case opens in a transaction after that of the death: a process that dies in between leaves a dead entry that nobody is told of",
			edits: []edit{
				{"internal/sqlstore/cases.go", "			free, err := s.lockFree(ctx, tx, ids)\n			if busy = without(ids, free); err != nil", "			free, err := ids, error(nil)\n			if busy = without(ids, free); err != nil"},
				{"internal/sqlstore/cases.go", "			if changed, err = execCount(ctx, tx, update(free)); err != nil {", "			if changed, err = execCount(ctx, s.pool(), update(free)); err != nil {"},
			},
			sees: selection{crash: "case-opened,staffed"},
		},
		{
			name: "case-of-a-stale-death", oracle: safety,
			what: "a case opens whoever has made its entry dead, and with each outcome that did not: its figures are another's",
			edits: []edit{
				{"internal/sqlstore/cases.go", " AND state+0=-2\" + as +", "\" +"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CaseOpensWithNothingElse"),
		},
		{
			name: "case-stays-closed", oracle: safety,
			what: "an entry that was requeued and dies again keeps its closed case: nobody looks at it any more",
			edits: []edit{
				{"internal/sqlstore/cases.go", ".version+1, closed_at=0\"", ".version+1\""},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CaseIsOpenedAgainWithItsOwner"),
		},
		{
			name: "missing-case-of-another-death", oracle: safety,
			what: "a case that was missing opens whatever its entry has come to since it was read: its figures are those of another death",
			edits: []edit{
				{"internal/sqlstore/cases.go", " AND version=\"+versions+\" ORDER BY id\"", " AND \"+versions+\">=0 ORDER BY id\""},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CaseIsOpenedOfWhatIsAsItWasRead"),
		},
		{
			name: "desk-acts-unseen", oracle: safety,
			what: "an action of the desk is not held to the version that was seen: what changed since is changed again",
			edits: []edit{
				{"desk/change.go", "		case row.Version != seen.Version:", "		case row.Version < seen.Version:"},
			},
			sees: tests("TestWhatIsRequeuedRunsAgainOnceAndItsCaseIsClosed"),
		},
		{
			name: "desk-changes-unchecked", oracle: duplicates,
			what: "an entry whose attempt may have had its effect is changed although nobody says that they have looked",
			edits: []edit{
				{"desk/unchecked.go", "if !ch.Checked && line.OutcomeUnknown", "if false && !ch.Checked && line.OutcomeUnknown"},
			},
			sees: tests("TestUnknownOutcomeWaitsForSomebodysWord", "TestAttemptUnderWayIsOfUnknownOutcome").and(simulation, "1000"),
		},
		{
			name: "desk-repeats-unasked", oracle: duplicates,
			what: "an entry that has succeeded, or was cancelled, runs again for anybody who has the right, without a word",
			edits: []edit{
				{"desk/unchecked.go", "if !ch.Again && repeats", "if false && !ch.Again && repeats"},
			},
			sees: tests("TestFinishedEntriesRunAgainOnlyWhenThatIsSaid"),
		},
		{
			name: "desk-pauses-what-nobody-knows", oracle: safety,
			what: "a name that was mistyped is paused, and the entries that were meant go on",
			edits: []edit{
				{"desk/pause.go", "		err = check(acting(ctx), a, businessType)", "		_ = check"},
			},
			sees: tests("TestMistypedTypeIsNotPaused"),
		},
		{
			name: "desk-cancels-unrecorded", oracle: safety,
			what: "a person's cancellation is taken for a service's, and leaves no record",
			edits: []edit{
				{"processlog/change.go", "return ch.persons() || ch.Actor != \"\"", "return ch.persons()"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ChangeAllDoesClosesAndRecordsInOne", "TestEachRightAllowsWhatItSaysAndNothingElse").and(simulation, "300"),
		},
		{
			name: "case-taken-unseen", oracle: safety,
			what: "a case is given to somebody whatever has become of it since it was seen: two believe that it is theirs",
			edits: []edit{
				{"processlog/operations.go", "	case c.Version != seen.Version:", "	case c.Version < seen.Version:"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CasesAreAssignedAsTheyWereSeen", "TestManyCasesAreTakenAtOnce"),
		},
		{
			name: "cases-taken-unrecorded", oracle: safety,
			what: "of many cases that somebody takes the first alone is on record",
			edits: []edit{
				{"internal/sqlstore/caseowner.go", "s.operate(ctx, tx, ops...)", "s.operate(ctx, tx, ops[:1]...)"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CasesAreAssignedAsTheyWereSeen"),
		},
		{
			name: "case-closed-by-nobody", oracle: safety,
			what: "an action of the desk leaves the case open until the next round of upkeep",
			edits: []edit{
				{"internal/sqlstore/requeue.go", "		return s.closeCasesOf(ctx, tx, rows)\n", "		return nil\n"},
			},
			sees: tests("TestWhatIsRequeuedRunsAgainOnceAndItsCaseIsClosed").and(crash, "audit-written,staffed"),
		},
		{
			name: "case-keeps-secrets", oracle: safety,
			what: "a case keeps an error as the handler said it: whoever reads the table reads the numbers of cards",
			edits: []edit{
				{"operations.go", "		draft.Error = kept\n", "		draft.Error = \"\"\n"},
			},
			sees: tests("TestNoCaseKeepsAndNoDeskShowsWhatAScrubberTakesOut"),
		},
		{
			name: "card-beside-a-number", oracle: safety,
			what: "a card's number is looked for where digits begin, and in all that stand together: one behind another number is kept and shown",
			edits: []edit{
				{"internal/scrub/scrub.go", "		if behind || !joined(rest, at-1) || named(rest[:at]) {", "		if (behind || !joined(rest, at-1)) && !(at > 1 && rest[at-1] == ' ' && rest[at-2] >= '0' && rest[at-2] <= '9') {"},
			},
			sees: tests("TestWhatDoesNotBelongBeforeOthersEyesIsGone", "FuzzText"),
		},
		{
			name: "secrets-of-longer-names", oracle: safety,
			what: "token= is taken out of errors, access_token= and client_secret= are kept and shown",
			edits: []edit{
				{"internal/scrub/scrub.go", "= `[a-z0-9_-]*(?:passw", "= `(?:passw"},
			},
			sees: tests("TestWhatDoesNotBelongBeforeOthersEyesIsGone"),
		},
		{
			name: "torn-secrets-shown", oracle: safety,
			what: "of an error that the log has cut in the middle of a card's number, the first half is kept and shown",
			edits: []edit{
				{"operations.go", "!= processlog.MaxText {\n", "!= 0 {\n"},
			},
			sees: tests("TestNoCaseKeepsAndNoDeskShowsWhatAScrubberTakesOut"),
		},
		{
			name: "desk-shows-secrets", oracle: safety,
			what: "who may see errors in full sees the passwords in them",
			edits: []edit{
				{"desk/shape.go", "return shape(d.log.Scrub(text), inFull) }", "if inFull {\n		return text\n	}\n	return shape(d.log.Scrub(text), inFull)\n}"},
			},
			sees: tests("TestNoCaseKeepsAndNoDeskShowsWhatAScrubberTakesOut"),
		},
		{
			name: "name-of-a-hidden-type-with-a-space", oracle: safety,
			what: "a hidden type is shown to who writes a space behind its name, which MySQL takes for it",
			edits: []edit{
				{"desk/desk.go", " || strings.HasSuffix(on.Type, \" \")", ""},
				{"desk/desk.go", "	\"strings\"\n", ""},
			},
			sees: tests("TestNameThatTheDatabaseTakesForAnotherShowsNothing"),
		},
		{
			name: "reveal-before-the-record", oracle: safety,
			what: "content is shown although it could not be put on record who looked",
			edits: []edit{
				{"desk/entries.go", "	if err != nil {\n		return compensator.Entry{}, err\n	}\n	e.LastError = d.told(e.LastError, d.may(ctx, a, SeeErrors, Subject{Type: e.BusinessType}))\n	return *e, nil\n", "	return *e, err\n"},
			},
			sees: tests("TestWhatCannotBeRecordedIsNotDone"),
		},
		{
			name: "right-of-the-first-is-all", oracle: safety,
			what: "who may see a type may change its entries: the action's own right is not asked",
			edits: []edit{
				{"desk/change.go", "		case !d.may(ctx, a, ch.Action, on):", "		case !d.may(ctx, a, SeeEntries, on):"},
			},
			sees: tests("TestEachRightAllowsWhatItSaysAndNothingElse", "TestRightsAreAskedForWhatAnEntryIsWorth"),
		},
		{
			name: "desk-offers-what-it-refuses", oracle: safety,
			what: "who may requeue is offered what has succeeded, too: he presses, is refused, and the refusal is on record",
			edits: []edit{
				{"desk/change.go", "return d.may(ctx, a, action, on) && d.mayAgain(ctx, a, action, line.Entry.State, on)", "return d.may(ctx, a, action, on)"},
			},
			sees: tests("TestWhatIsOfferedIsWhatChangeDoes"),
		},
		{
			name: "desk-drops-what-it-has-read", oracle: safety,
			what: "rows of types that may not be seen are dropped from a page that was read: short pages and cursors tell that they are there",
			edits: []edit{
				{"desk/read.go", "	if asked == nil && len(types) == len(of) {", "	if asked == nil {"},
			},
			sees: tests("TestPagesAndCursorsAreOfWhatMayBeSeenAlone", "TestWhoSeesSomeTypesFindsNoTraceOfOthers"),
		},
		{
			name: "old-cases-kept-in-quiet", oracle: leak,
			what: "closed cases are kept for ever",
			edits: []edit{
				{"operations.go", "	if err == nil && since == 0 {\n", "	if err == nil && since < 0 {\n"},
			},
			sees: tests("TestOldCasesAreForgottenThoughNothingElseIsToBeDone"),
		},
		{
			name: "no-types-are-any", oracle: safety,
			what: "who lists the cases of the types that somebody may see, of which there are none, is shown all",
			edits: []edit{
				{"internal/sqlstore/cases.go", "	if f.BusinessTypes != nil {\n", "	if len(f.BusinessTypes) > 0 {\n"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CasesAreListedAsTheyAreDue"),
		},
		{
			name: "trail-stops-among-others", oracle: safety,
			what: "a page of the trail ends where reading among records of other types did, and its cursor says so",
			edits: []edit{
				{"internal/sqlstore/trail.go", "f.BusinessTypes == nil && (f.Actor", "(f.BusinessTypes != nil || f.Actor"},
			},
			sees: tests("TestTrailOfSomeTypesEndsWhereTheyDo"),
		},
		{
			name: "trail-ends-where-it-stopped-looking", oracle: safety,
			what: "a page of the trail on which few are asked for says that nothing stands behind what it has looked at",
			edits: []edit{
				{"internal/sqlstore/trail.go", "		sides[i].end = q.end(q.before[i])\n", "		sides[i].end = 0\n"},
			},
			sees: tests("TestTrailGoesOnWhereItStoppedLooking"),
		},
		{
			name: "desk-searches-what-is-masked", oracle: safety,
			what: "entries are found by errors, and users, that the actor may not see",
			edits: []edit{
				{"desk/entries.go", "d.sight(a, append(rights, searches...)...)", "d.sight(a, rights...)"},
			},
			sees: tests("TestSearchFindsOnlyWhatItsRightShows"),
		},
		{
			name: "desk-shows-hidden-breakers", oracle: safety,
			what: "the open breaker of a type that may not be seen is shown, and so are the type and what its handler has said",
			edits: []edit{
				{"desk/overview.go", "		if sees.sees(ctx, b.BusinessType) {", "		if sees.sees(ctx, b.BusinessType) || true {"},
			},
			sees: tests("TestOpenBreakerIsToldToWhoMaySeeItsTypeAlone", "TestEachRightAllowsWhatItSaysAndNothingElse"),
		},
		{
			name: "desk-tells-hidden-from-absent", oracle: safety,
			what: "that somebody tried to take a case that he may not see is put on record, and of one that is not there it is not",
			edits: []edit{
				{"desk/cases.go", "			refused.add(v.EntryID, \"\")\n", "			if found {\n				refused.add(v.EntryID, \"\")\n			}\n"},
			},
			sees: tests("TestHiddenAndAbsentAreToldApartByNothing"),
		},
		{
			name: "desk-records-what-it-hides", oracle: safety,
			what: "a refusal is of the type of the entry that may not be seen: who sees in the trail what is of no type can tell it from one that is not there",
			edits: []edit{
				{"desk/cases.go", "refused.add(v.EntryID, \"\")", "refused.add(v.EntryID, c.BusinessType)"},
			},
			sees: tests("TestHiddenAndAbsentAreToldApartByNothing"),
		},
		{
			name: "desk-weighs-what-is-hidden", oracle: safety,
			what: "contents of entries that the actor may not see are read, and the service's function called, for what they are worth",
			edits: []edit{
				{"desk/change.go", "return !sees.sees(ctx, row.BusinessType) })", "return !sees.sees(ctx, row.BusinessType) && false })"},
			},
			sees: tests("TestNothingIsWeighedThatMayNotBeSeen"),
		},
		{
			name: "desk-reads-without-bound", oracle: producers,
			what: "as many reads of the desk at once as there are people who look: the service waits for connections",
			edits: []edit{
				{"desk/read.go", "readsAtOnce = 4", "readsAtOnce = 4000"},
			},
			sees: tests("TestReadsOfADeskAreFourAtATimeForTwoSeconds"),
		},
		{
			name: "desk-reads-slowly-for-each", oracle: producers,
			what: "what took long to read is old before anybody who waits has seen it: each reads it anew, one after the other",
			edits: []edit{
				{"desk/shared.go", " || s.ended.After(asked))", " || false && s.ended.After(asked))"},
			},
			sees: tests("TestSlowReadIsSharedByAllWhoWaitForIt"),
		},
		{
			name: "desk-shows-waiters-what-was", oracle: safety,
			what: "who has waited for a read is shown it although something was done since it began",
			edits: []edit{
				{"desk/shared.go", "if s.acts == acts.Load() && (asked.Before(s.good) || s.ended.After(asked)) {", "if s.acts == acts.Load() && asked.Before(s.good) || s.ended.After(asked) {"},
			},
			sees: tests("TestSlowReadIsSharedByAllWhoWaitForIt"),
		},
		{
			name: "desk-reads-a-large-log-as-often", oracle: producers,
			what: "what takes long to read is read as often as what does not: people who watch a large log take a share of its database that grows with it",
			edits: []edit{
				{"desk/shared.go", "min(max(sharedFor, sharedTimes*s.ended.Sub(began)), sharedMost)", "sharedFor"},
			},
			sees: tests("TestWhatIsReadIsSharedUntilItIsOldOrSomethingIsDone"),
		},
		{
			name: "overview-waits-for-health", oracle: producers,
			what: "what the overview asks of this process's servers has no end: all who look wait for one that is silent",
			edits: []edit{
				{"desk/shared.go", "read(ctx, d, func(ctx context.Context) (compensator.Health, error) { return d.c.Health(ctx), nil })", "d.c.Health(ctx), nil"},
			},
			sees: tests("TestOverviewWaitsForNoServerThatIsSilent"),
		},
		{
			name: "brake-waits-for-readers", oracle: producers,
			what: "actions read through the room of those who look: with many of them nobody can pause a type",
			edits: []edit{
				{"desk/read.go", "		room = d.actions\n", "		room = d.reads\n"},
			},
			sees: tests("TestActionsWaitForNoReader"),
		},
		{
			name: "server-reads-on", oracle: producers,
			what: "a read whose context is over is ended by the driver alone: the server reads on for nobody",
			edits: []edit{
				{"internal/sqlstore/rows.go", "	if !bounded || left > time.Hour || s.d.ended == nil {", "	if !bounded || left > 0 || s.d.ended == nil {"},
			},
			sees: tests("TestServerEndsAReadWhoseTimeIsOver"),
		},
		{
			name: "stricter-bound-replaced", oracle: producers,
			what: "what the server, or the DSN, allows a read is replaced by what the context does, also where that is more",
			edits: []edit{
				{"internal/sqlstore/rows.go", "	if s.bound > 0 && ", "	if s.bound < 0 && "},
			},
			sees: tests("TestStricterBoundOfTheSessionStays"),
		},
		{
			name: "success-opens-transactions", oracle: lateness,
			what: "with the operator's side on, each outcome is written as a death would be: three round trips more for a success",
			edits: []edit{
				{"internal/engine/settler.go", "s.CaseOf != nil && o.To == processlog.Dead && o.Case == nil", "s.CaseOf != nil && o.Case == nil"},
				{"internal/sqlstore/cases.go", "return o.Case != nil && o.To == processlog.Dead", "return o.Case != nil"},
			},
			sees: tests("TestSuccessCostsTheSameStatements"),
		},
		{
			name: "pause-unheard", oracle: safety,
			what: "what people have paused is read, and not obeyed",
			edits: []edit{
				{"internal/engine/pause.go", "Swap(paused[name] || !known)", "Swap(!known)"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "resume-unheard", oracle: lateness,
			what: "a type that is resumed stays paused in each process that knew of its pause",
			edits: []edit{
				{"internal/engine/pause.go", "	for _, name := range e.types.names() {\n", "	for _, name := range e.types.names() {\n		if known && e.types.named(name).slots.paused.Load() && len(paused) == 0 {\n			continue\n		}\n"},
			},
			sees: selection{simulation: "300"},
		},
		{
			name: "paused-type-is-born-claimed", oracle: safety,
			what: "a paused type's entries are run by the process that records them",
			edits: []edit{
				{"internal/engine/types.go", "t != nil && !t.slots.paused.Load()", "t != nil"},
				{"internal/engine/intake.go", "case !in.types.accepts.Load(), t.slots.paused.Load(),", "case !in.types.accepts.Load(),"},
			},
			sees: tests("TestPausedTypeIsClaimedByNobodyUntilItIsResumed").and(simulation, "300"),
		},
		{
			name: "case-forgets-the-timeout", oracle: safety,
			what: "the case of an entry whose last attempt timed out says dead, and a person repeats a refund that has happened",
			edits: []edit{
				{"operations.go", "unknown := o.TimedOut || ", "unknown := "},
			},
			sees: tests("TestCaseOfAnAttemptThatTimedOutIsUnknownWhateverItReturned"),
		},
		{
			name: "case-forgets-the-late-batch", oracle: safety,
			what: "the same where it was the entry's batch that timed out, before it ran alone",
			edits: []edit{
				{"internal/engine/dispatcher.go", "	if a.lateBatch {\n", "	if false {\n"},
			},
			sees: tests("TestCaseOfAnAttemptThatTimedOutIsUnknownWhateverItReturned"),
		},
		{
			name: "snooze-forgets-the-timeout", oracle: safety,
			what: "the same where the attempt that timed out asked to wait, and the next one failed for good",
			edits: []edit{
				{"internal/engine/outcome.go", "		if o.LastError = row.LastError; o.TimedOut {\n", "		if o.LastError = row.LastError; false {\n"},
			},
			sees: tests("TestOutcomeRemembersThatTheTimeHadPassed", "TestCaseOfAnAttemptThatTimedOutIsUnknownWhateverItReturned"),
		},
	}
}
