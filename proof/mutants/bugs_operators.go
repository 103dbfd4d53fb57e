package main

func operating() []mutant {
	return []mutant{
		{
			name: "purge-takes-what-waits", breaks: "G31",
			what: "A purge deletes dead entries whose cases are still open.",
			edits: []edit{
				{"Log.Purge",
					`return $s == compensator.Dead`,
					`return $s == compensator.Dead && age < 0`},
			},
			sees: tests("TestPurgeTakesNoDeadEntryWhileItWaitsForSomebody"),
		},
		{
			name: "case-forgets-the-timeout", breaks: "G31",
			what: "The case of an entry whose attempt timed out does not say that the outcome is unknown.",
			edits: []edit{
				{"Type.outcomeOf",
					`$faults.OutcomeUnknown = $faults.OutcomeUnknown || $timedOut || $mayBeCutOff && $toldToStop($cause) || LostLeases($row) > 0 || $called && verdict.IsOutcomeUnknown($err)`,
					`$faults.OutcomeUnknown = $faults.OutcomeUnknown || $mayBeCutOff && $toldToStop($cause) || LostLeases($row) > 0 || $called && verdict.IsOutcomeUnknown($err)`},
			},
			sees: tests("TestCaseOfAnAttemptThatTimedOutIsUnknownWhateverItReturned"),
		},
		{
			name: "plain-failure-clears-the-doubt", breaks: "G31",
			what: "An entry's timeout is forgotten when a later attempt of the epoch fails plainly.",
			edits: []edit{
				{"Type.outcomeOf",
					`$faults.OutcomeUnknown = $faults.OutcomeUnknown || $timedOut || $mayBeCutOff && $toldToStop($cause) || LostLeases($row) > 0 || $called && verdict.IsOutcomeUnknown($err)`,
					`$faults.OutcomeUnknown = $timedOut || $mayBeCutOff && $toldToStop($cause) || LostLeases($row) > 0 || $called && verdict.IsOutcomeUnknown($err)`},
			},
			sees: tests("TestOutcomeStaysUnknownThroughPlainFailures"),
		},
		{
			name: "lost-lease-is-forgotten", breaks: "G31",
			what: "The doubt about an attempt whose process died ends with the next stored outcome.",
			edits: []edit{
				{"Type.outcomeOf",
					`$faults.OutcomeUnknown = $faults.OutcomeUnknown || $timedOut || $mayBeCutOff && $toldToStop($cause) || LostLeases($row) > 0 || $called && verdict.IsOutcomeUnknown($err)`,
					`$faults.OutcomeUnknown = $faults.OutcomeUnknown || $timedOut || $mayBeCutOff && $toldToStop($cause)`},
			},
			sees: tests("TestOutcomeStaysUnknownAfterALostLease"),
		},
		{
			name: "stopped-attempt-had-no-effect", breaks: "G31",
			what: "An attempt whose context the library ended, for example because the process stops, counts as one without an effect.",
			edits: []edit{
				{"Type.outcomeOf",
					`$faults.OutcomeUnknown = $faults.OutcomeUnknown || $timedOut || $mayBeCutOff && $toldToStop($cause) || LostLeases($row) > 0 || $called && verdict.IsOutcomeUnknown($err)`,
					`$faults.OutcomeUnknown = $faults.OutcomeUnknown || $timedOut || LostLeases($row) > 0 || $called && verdict.IsOutcomeUnknown($err)`},
			},
			sees: tests("TestOutcomeOfAnAttemptThatAStopEndsIsUnknown").with(simulation, "300"),
		},
		{
			name: "lost-result-of-a-call-is-forgotten", breaks: "G31",
			what: "An attempt whose call has returned nil, and whose success was not stored, counts as one without an effect.",
			edits: []edit{
				{"Engine.Finish", `if $a.Acted {`, `if false {`},
			},
			sees: tests("TestOutcomeIsUnknownIfTheResultOfACallIsLost").with(simulation, "1000"),
		},
		{
			name: "lost-result-of-a-handler-is-forgotten", breaks: "G31",
			what: "An attempt whose handler has returned a result that cannot be stored counts as one without an effect.",
			edits: []edit{
				{"HandleResult", `return verdict.OutcomeUnknown($c.setResult($e, $codec, $result))`, `return verdict.LibraryWait($c.setResult($e, $codec, $result))`},
			},
			sees: tests("TestOutcomeIsUnknownIfTheResultOfACallIsLost"),
		},
		{
			name: "lost-answer-had-no-effect", breaks: "G31",
			what: "An error which says that the call may have arrived counts as one without an effect.",
			edits: []edit{
				{"IsOutcomeUnknown", `return $ok && $u.OutcomeUnknown()`, `return $ok && false && $u.OutcomeUnknown()`},
			},
			sees: tests("TestOutcomeIsUnknownIfAPartnerDidNotAnswer", "TestOutcomeIsUnknownIfTheResultOfACallIsLost").with(simulation, "1000"),
		},
		{
			name: "repeated-call-never-arrived", breaks: "G31",
			what: "If the transport repeats a call and the last connection fails, the error says that nothing was sent.",
			edits: []edit{
				{"following.mayHaveArrived", `if $f.traced.Load() {`, `if false {`},
			},
			sees: tests("TestErrorSaysThatTheCallMayHaveArrived"),
		},
		{
			name: "refused-case-holds-up-others", breaks: "G31",
			what: "Maintenance opens, closes and deletes none of up to a hundred cases if the database refuses one of them.",
			edits: []edit{
				{"Store.casesApart", `writeApart($ctx, $s, $chunk, $write)`, `[]refusal[processlog.ID](nil), 0, $write($chunk)`},
			},
			sees: tests("TestRefusedCaseHoldsUpNoOther"),
		},
		{
			name: "others-follow-the-tried-one-unasked", breaks: "G32",
			what: "An action that tries one entry first changes all of them.",
			edits: []edit{
				{"admin.Admin.StartBulk", `if $opts.TryFirst && len($c.versions) > 1 {`, `if false {`},
			},
			sees: tests("TestOneEntryIsTriedBeforeTheOthers"),
		},
		{
			name: "form-sent-twice-tries-two", breaks: "G32",
			what: "A request to try another entry that is sent twice tries two entries.",
			edits: []edit{
				{"Admin.TryAnother", `!$bulk.isTrying() || $bulk.last().Record != $lastBatch`, `!$bulk.isTrying()`},
			},
			sees: tests("TestAnotherEntryIsTriedBeforeTheOthers"),
		},
		{
			name: "action-on-all-stands-still", breaks: "G32",
			what: "An action on all that match does not move its position, so it visits entries again that have died again.",
			edits: []edit{
				{"matchingRun.goOn", `$p.Cursor = $entries[len($entries)-1].ID`, `$p.Cursor = $p.Cursor`},
			},
			sees: tests("TestActionOnAllThatMatchVisitsEachEntryOnce").with(chaos, "30s"),
		},
		{
			name: "action-goes-on-after-its-stop", breaks: "G32",
			what: "An action on all that match goes on after a person has stopped it.",
			edits: []edit{
				{"matchingPlan.isOver", `$p.Ended || $p.Stopped`, `$p.Ended`},
			},
			sees: tests("TestStoppedActionVisitsNoFurtherEntry").with(chaos, "30s"),
		},
		{
			name: "failed-trial-goes-on-unasked", breaks: "G34",
			what: "After a failed trial, the page changes all other entries although nobody has confirmed that.",
			edits: []edit{
				{"ui.hasFailed", `$t.Outcome == admin.BulkDead || $t.Outcome == admin.BulkOverridden`, `$t.Outcome == admin.BulkOverridden`},
			},
			sees: tests("TestOneIsTriedFirstWithoutScript"),
		},
		{
			name: "planted-cookie-continues", breaks: "G34",
			what: "The page of an action continues an action that another person began, if somebody has set its cookie.",
			edits: []edit{
				{"server.showBulkView", `$view.ActedLast && `, ``},
			},
			sees: tests("TestPlantedCookieContinuesNothing"),
		},
		{
			name: "total-counts-hidden-entries", breaks: "G32",
			what: "The total of an action on several entries counts those that the reader may not see.",
			edits: []edit{
				{"Admin.viewBulk", `if $a.ID != $view.Actor {`, `if false {`},
			},
			sees: tests("TestActionOnManyIsShownByRight"),
		},
		{
			name: "content-is-read-before-the-right", breaks: "G32",
			what: "An Admin reads the content of an entry before it asks whether the actor may see the entry.",
			edits: []edit{
				{"Admin.visibleID", `if len($rows) == 0 || !$d.mayDo($ctx, $a, SeeEntries, Subject{Type: $rows[0].BusinessType}) {`, `if len($rows) == 0 {`},
			},
			sees: tests("TestNoContentOfAHiddenEntryIsRead"),
		},
		{
			name: "hidden-limit-is-refused-otherwise", breaks: "G32",
			what: "A change of a limit of hidden types is refused otherwise than that of an absent limit.",
			edits: []edit{
				{"Admin.refuseLimit", `$err != ErrNotAllowed || !$isHidden`, `$err != ErrNotAllowed || types != nil || !$isHidden`},
			},
			sees: tests("TestLimitOfHiddenTypesIsLikeNone"),
		},
		{
			name: "entries-of-a-batch-fill-the-audit-log", breaks: "G32",
			what: "The audit log lists each entry of an action on several entries beside the record of the action.",
			edits: []edit{
				{"auditLogQuery.withoutEntries", `$side != 0 || `, `true || `},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/BatchIsRecordedWithItsChange"),
		},
		{
			name: "batches-of-an-action-are-lines", breaks: "G32",
			what: "The page of the audit log has a line for each batch of an action.",
			edits: []edit{
				{"addBatch", `if $at < 0 {`, `if true {`},
			},
			sees: tests("TestBatchesOfOneActionAreOneLine"),
		},
		{
			name: "new-end-is-recorded-as-a-pause", breaks: "G32",
			what: "The audit log does not tell a new end of a pause from the pause itself.",
			edits: []edit{
				{"Admin.PauseWith", `"change pause"`, `"pause"`},
			},
			sees: tests("TestPauseGetsANewEnd"),
		},
		{
			name: "reason-of-nothing-visible", breaks: "G32",
			what: "A reason may consist of characters that nobody can see.",
			edits: []edit{
				{"processlog.IsBlank", `!IsInvisible($r) && !unicode.IsSpace($r)`, `!unicode.IsSpace($r)`},
			},
			sees: tests("TestReasonsOfInvisibleCharactersAreRefused"),
		},
		{
			name: "form-acts-on-its-address", breaks: "G34",
			what: "A form takes fields from its address if its body does not have them.",
			edits: []edit{
				{"request.form", `return $rq.r.PostForm`, `return $rq.r.Form`},
			},
			sees: tests("TestFormsActOnTheirBodyAlone"),
		},
		{
			name: "address-of-any-length", breaks: "G34",
			what: "The pages accept an address of any length, and repeat it in many links.",
			edits: []edit{
				{"site.setSecurityHeaders", `if $n := len($r.URL.Path) + len($r.URL.RawQuery); $$rest {`, `if false {`},
			},
			sees: tests("TestLongAddressesMakeNoLargePages"),
		},
		{
			name: "scrubber-knows-only-cards", breaks: "G32",
			what: "Errors are shown with the numbers of identity cards, mobile phones and bank accounts.",
			edits: []edit{
				{"scrub.kinds", `{card, identity, mobile, account}`, `{card}`},
			},
			sees: tests("TestEachKindOfSecretIsGone"),
		},
		{
			name: "fraction-of-a-time-is-a-card", breaks: "G32",
			what: "The scrubber takes the fraction of a time and what follows it for a card number, so failures that are alike fall into different groups.",
			edits: []edit{
				{"mostInGroup", `7`, `19`},
				{"scrub.card", `if $at > 1 && $text[$at-1] == '.' && isDigit($text[$at-2]) {`, `if false {`},
			},
			sees: tests("TestTimesStayWhole"),
		},
		{
			name: "migrate-beside-a-foreign-side-table", breaks: "G32",
			what: "Migrate creates tables beside a user's own table that has the name of one of them.",
			edits: []edit{
				{"sqlstore.checkForeignSides", `return errors.Join($errs...)`, `return nil`},
			},
			sees: tests("TestMigrateNamesTablesOfYourOwnAndCreatesNothing"),
		},
		{
			name: "running-list-has-free-entries", breaks: "G44",
			what: "The list of the entries that processes hold has entries that no process holds.",
			edits: []edit{
				{"listing.narrows", `"lease_until>{now}"`, `"lease_until>=0"`},
				{"Filter.Admits", `$f.Leased || $r.LeaseLeft > 0`, `$f.Leased || true`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/LeasedEntriesAreListedByTheirProcess"),
		},
		{
			name: "backlog-hides-what-runs", breaks: "G44",
			what: "The list of what runs in all types reads the longest due rows of the first types only.",
			edits: []edit{
				{"listing.readLeased", `max(1, cmp.Or($l.f.MaxRead, processlog.DefaultRead)/len($groups))`, `cmp.Or($l.f.MaxRead, processlog.DefaultRead)`},
			},
			sees: tests("TestRunningEntriesOfAllTypesCostAShareOfEachType"),
		},
		{
			name: "form-sent-twice-acts-twice", breaks: "G32",
			what: "Two requests with the key of one form begin two actions.",
			edits: []edit{
				{"sqlstore.Store.requireFirst", `if $err == nil && len($rows) > 0 {`, `if false {`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ActionWithASecretBeginsOnce").with(chaos, "30s"),
		},
		{
			name: "second-runner-repeats-a-batch", breaks: "G32",
			what: "A caller of ContinueBulk stores a batch although another caller has stored it meanwhile.",
			edits: []edit{
				{"matchingRun.store", `Follows: $r.follows`, `Follows: 0`},
			},
			sees: tests("TestActionOnAllThatMatchIsContinuedByOne", "TestActionOnAllThatMatchIsFinishedWithOneRead"),
		},
		{
			name: "batch-forgets-what-it-changed", breaks: "G32",
			what: "The record of an action names the entries in the versions that they had before it.",
			edits: []edit{
				{"BulkBatch.With", `BulkEntry{$seen[$i].ID, $after.Version, $after.Epoch}`, `BulkEntry{$seen[$i].ID, $after.Version - 1, $after.Epoch - 1}`},
			},
			sees: tests("TestActionOnManyFollowsItsEntries"),
		},
		{
			name: "change-by-others-is-an-outcome", breaks: "G32",
			what: "An entry that another person has changed since an action counts as an outcome of the action.",
			edits: []edit{
				{"admin.outcomeOf", `$row.Epoch != $e.Epoch || `, ``},
			},
			sees: tests("TestActionOnManyFollowsItsEntries"),
		},
		{
			name: "action-is-shown-without-the-right", breaks: "G32",
			what: "A person sees the entries of an action although he may not see their type.",
			edits: []edit{
				{"Admin.viewBulk", `if !$mayRead.holds($ctx, $row.BusinessType) && ($isFound || $a.ID != $view.Actor) {`, `if false && $isFound {`},
			},
			sees: tests("TestActionOnManyIsShownByRight"),
		},
		{
			name: "attempt-without-its-outcome", breaks: "G42",
			what: "The failed attempt of an outcome is written although the outcome itself was dropped.",
			edits: []edit{
				{"sqlstore.Store.writeAttempts", `"token", s.d.binary($token[:])`, `"token", "token"`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/FailedAttemptIsStoredWithItsOutcomeOnly"),
		},
		{
			name: "last-attempt-is-not-kept", breaks: "G42",
			what: "The attempt after which an entry is dead or is compensated is not kept.",
			edits: []edit{
				{"attempts.verdictOf", `return processlog.AttemptExhausted`, `return ""`},
			},
			sees: tests("TestEachFailedAttemptIsKeptForPeople").with(simulation, "300"),
		},
		{
			name: "erasure-ends-an-entry-again", breaks: "G43",
			what: "The erasure of a succeeded entry counts as one more success.",
			edits: []edit{
				{"Engine.ChangeCommitted", `case $after.State != $before.State:`, `default:`},
			},
			sees: tests("TestErasureOfAnEndedEntryCountsNothing"),
		},
		{
			name: "outcome-counts-before-it-is-stored", breaks: "G43",
			what: "An outcome counts when it is sent to the database, also if the database then drops it.",
			edits: []edit{
				{"statistics.Attach", `h.Stored = append(h.Stored, $c.stored)`,
					`h.Prepare = append(h.Prepare, func(a *engine.Attempt, o processlog.Outcome) processlog.Outcome { $c.stored(a, o.To, engine.Counted(&a.Row, &o)); return o })`},
			},
			sees: selection{}.with(chaos, "60s"),
		},
		{
			name: "folded-counts-stay", breaks: "G43",
			what: "Folded rows of statistics are added to others, but are not deleted.",
			edits: []edit{
				{"sqlstore.Store.FoldStats", `_, err = tx.ExecContext($ctx, s.sql(statsFolded, "keys", strings.Join($keys, " OR ")))`, `_ = $keys`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/FoldingKeepsEveryCount"),
		},
		{
			name: "written-minute-is-forgotten", breaks: "G43",
			what: "The table does not remember which minute a process has written last.",
			edits: []edit{
				{"sqlstore.Store.WriteStats", `first+len(chunk) == len($stats)`, `first < 0`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CountsWrittenTwiceCountOnce"),
		},
		{
			name: "slice-skips-entries-of-the-same-time", breaks: "G45",
			what: "A slice of the backlog begins after the due time at which the previous one has ended, and not after its last entry.",
			edits: []edit{
				{"sqlstore.afterPosition", `" AND next_at>=%[1]d AND (next_at>%[1]d OR id>%[2]s)"`, `" AND next_at>%[1]d AND %[2]s>0"`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/SlicesCountEachEntryOnce"),
		},
		{
			name: "backlog-ends-with-its-first-slice", breaks: "G45",
			what: "A round counts one slice of each type and state.",
			edits: []edit{
				{"backlog.Round", `!r.After.ID.IsZero()`, `false`},
			},
			sees: tests("TestBacklogCountsEachEntryOnceInBoundedStatements").with(simulation, "300"),
		},
		{
			name: "process-with-work-rests", breaks: "G45",
			what: "A process that gets work does not notice that the backlog must be counted every minute now.",
			edits: []edit{
				{"reading.rest", `$rest = min($rest, $next.Sub(r.now)-$since)`, `_ = $next`},
			},
			sees: tests("TestCalendarOfMaintenanceReadsTheMarksOncePerSlot"),
		},
		{
			name: "stored-minute-begins-again", breaks: "G43",
			what: "If the database's clock is set back, a process counts a minute again that it has stored.",
			edits: []edit{
				{"Counter.beginMinute", `if c.at.Before(c.next) {`, `if false {`},
			},
			sees: tests("TestNoMinuteIsStoredTwiceIfTheDatabasesClockIsSetBack"),
		},
		{
			name: "late-report-revives-a-process", breaks: "G44",
			what: "A report that arrives after the end of its process makes the process live again.",
			edits: []edit{
				{"instanceWrite", `" ended_at=CASE WHEN {instance}.ended_at>0 THEN {instance}.ended_at ELSE {offered end} END"`, `" ended_at={offered end}"`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/EndedInstanceStaysEnded"),
		},
		{
			name: "pause-ends-early", breaks: "G32",
			what: "A pause for a time ends after half of the time.",
			edits: []edit{
				{"Setting.PauseEnd", `time.Duration($millis) * time.Millisecond`, `time.Duration($millis/2) * time.Millisecond`},
			},
			sees: tests("TestPauseEndsByItself", "TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/SettingIsPutAsItWasSeen"),
		},
		{
			name: "pause-ends-by-the-clock-of-its-write", breaks: "G32",
			what: "A pause for a time never ends, because the time of the read is ignored.",
			edits: []edit{
				{"processlog.PausedType", `$s.ReadAt.Before($end)`, `$s.At.Before($end)`},
			},
			sees: tests("TestPauseEndsByItself").with(simulation, "300"),
		},
		{
			name: "end-of-a-pause-waits-for-a-round", breaks: "G32",
			what: "A process notices the end of a pause with its next round, and not at once.",
			edits: []edit{
				{"Pauses.untilNext", `if $p.firstEnd.IsZero() {`, `if true {`},
			},
			sees: tests("TestPauseEndsWhenTheDatabasesClockSaysSo"),
		},
		{
			name: "new-end-replaces-an-unseen-pause", breaks: "G32",
			what: "A person gives a pause a new end although another person has changed the pause.",
			edits: []edit{
				{"Admin.PauseWith", `$current != $opts.Instead`, `$current > 0 && $opts.Instead == 0`},
			},
			sees: tests("TestPauseGetsANewEnd"),
		},
		{
			name: "slots-show-hidden-entries", breaks: "G32",
			what: "The page of periodic types names entries that the actor may not see.",
			edits: []edit{
				{"Admin.addSlotEntries", `byKey[$key] = &$types[$i]; mayRead.holds($ctx, $name) {`, `byKey[$key] = &$types[$i]; mayRead.holds($ctx, $name) || true {`},
			},
			sees: tests("TestPeriodicTypesShowTheirSlots"),
		},
		{
			name: "passed-slots-are-not-missed", breaks: "G23",
			what: "Slots that have passed and are not recorded are shown as slots to come.",
			edits: []edit{
				{"PeriodicType.addSlots", `case slot.After(now):`, `case !slot.IsZero():`},
			},
			sees: tests("TestPeriodicTypesShowTheirSlots"),
		},
		{
			name: "hold-of-every-entry", breaks: "G44",
			what: "An entry that has lost no lease is said to wait for suspects of another process.",
			edits: []edit{
				{"explainer.addOtherProcesses", `$hold != nil && $hold.LostLeases <= $row.DeliveryCount && $$rest {`, `$hold != nil {`},
			},
			sees: tests("TestExplanationNamesTheProcessThatDoesNotClaim"),
		},
		{
			name: "leases-do-not-name-their-process", breaks: "G44",
			what: "The token of a claim does not begin with the mark of its process.",
			edits: []edit{
				{"Base.LeaseToken", `token = token.Mark(b.instance)`, `_ = b.instance`},
			},
			sees: tests("TestEachProcessSaysWhatItIs").with(simulation, "300"),
		},
		{
			name: "closed-process-looks-killed", breaks: "G44",
			what: "Close does not store that the process has ended.",
			edits: []edit{
				{"Reporter.Done", `r.writer.Add(report{ended: true})`, ``},
			},
			sees: tests("TestEachProcessSaysWhatItIs"),
		},
		{
			name: "errors-of-attempts-survive-erasure", breaks: "G42",
			what: "The errors of an entry's failed attempts stay when a person erases the entry.",
			edits: []edit{
				{"sqlstore.Store.erase", `[]string{attemptsErase, eraseCase, eraseReasons}`, `[]string{eraseCase, eraseReasons}`},
			},
			sees: tests("TestErrorsOfAttemptsAreErasedAndPurged", "TestTextsOfOtherProcessesAreErasedAndPurged"),
		},
		{
			name: "attempts-of-other-processes-survive-the-purge", breaks: "G42",
			what: "A process that keeps no failed attempts leaves those of other processes in the table when it purges their entries.",
			edits: []edit{
				{"Store.lookForAttempts", `if len($found) > 0 {`, `if len($found) < 0 {`},
			},
			sees: tests("TestTextsOfOtherProcessesAreErasedAndPurged"),
		},
		{
			name: "faults-of-another-epoch-count", breaks: "G7",
			what: "What an entry met before a person requeued it still counts.",
			edits: []edit{
				{"Faults.In", `if $epoch != $inEpoch {`, `if false && $epoch != $inEpoch {`},
			},
			sees: tests("TestFaultsFollowTheErrors"),
		},
		{
			name: "faults-without-their-outcome", breaks: "G31",
			what: "The faults of an outcome are written although the outcome itself was dropped.",
			edits: []edit{
				{"Store.writeFaults", `"token", s.d.binary($token[:])`, `"token", "token"`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/FaultsAreStoredWithTheirOutcomeOnly"),
		},
		{
			name: "faults-survive-the-purge", breaks: "G31",
			what: "A purge leaves the faults of the entries that it deletes.",
			edits: []edit{
				{"purge.deleteFree", `if err := p.s.deleteFaults($ctx, $tx, $ids); err != nil {`, `if err := error(nil); err != nil {`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/PurgeTakesTheFaultsToo"),
		},
		{
			name: "case-forgets-the-late-batch", breaks: "G31",
			what: "The same case is wrong where the whole batch timed out before the entry ran alone.",
			edits: []edit{
				{"batchCalls.rerunAlone",
					`if $timedOut {
	$note($a)`,
					`if false {
	c.b.noteTimeout(a)`},
			},
			sees: tests("TestCaseOfAnAttemptThatTimedOutIsUnknownWhateverItReturned"),
		},
		{
			name: "desk-changes-unchecked", breaks: "G32",
			what: "A person may change an entry of unknown outcome without saying that it was checked.",
			edits: []edit{
				{"Change.Unchecked",
					`if !$checked && $outcomeUnknown && $action != $reschedule {`,
					`if false && !$checked && $outcomeUnknown && $action != $reschedule {`},
			},
			sees: tests("TestUnknownOutcomeWaitsForSomebodysWord", "TestAttemptUnderWayIsOfUnknownOutcome").with(simulation, "1000"),
		},
		{
			name: "case-taken-unseen", breaks: "G32",
			what: "A case is assigned although it has changed since the person saw it.",
			edits: []edit{
				{"SeenCase.Assigned", `case $version != $seenVersion:`, `case $version < $seenVersion:`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/CasesAreAssignedAsTheyWereSeen", "TestManyCasesAreTakenAtOnce"),
		},
		{
			name: "right-of-the-first-is-all", breaks: "G32",
			what: "A person who may see a type may also change its entries.",
			edits: []edit{
				{"Admin.checkChange", `case !$may($ctx, $a, $action, $on):`, `case !$may($ctx, $a, SeeEntries, $on):`},
			},
			sees: tests("TestEachRightAllowsWhatItSaysAndNothingElse", "TestRightsAreAskedForWhatAnEntryIsWorth"),
		},
		{
			name: "reveal-before-the-record", breaks: "G32",
			what: "Content is shown although the audit record could not be written.",
			edits: []edit{
				{"Admin.Reveal",
					`if $err != nil {
	return compensator.Entry{}, $err
}
$lastError = $told($lastError, $may($ctx, $a, $seeErrors, $subject{$type: $businessType}))
return *$e, nil`,
					`return *$e, $err`},
			},
			sees: tests("TestWhatCannotBeRecordedIsNotDone"),
		},
		{
			name: "case-keeps-secrets", breaks: "G32",
			what: "A case stores the error text without the scrubber.",
			edits: []edit{
				{"Compensator.draftCase",
					`if $kept := processlog.FitCaseError($scrubbed); $kept != processlog.FitCaseError($lastError) {
	$error = $kept`,
					`if $kept := processlog.FitCaseError($scrubbed); $kept != processlog.FitCaseError($lastError) {
	$error = ""`},
			},
			sees: tests("TestNoCaseKeepsAndNoAdminShowsWhatAScrubberTakesOut"),
		},
		{
			name: "command-yes-is-checked", breaks: "G32",
			what: "The option --yes also confirms that unknown outcomes were checked.",
			edits: []edit{
				{"program.newChangeCommand",
					`$ch := admin.Change{$action: $action2, $why: $whyWhy, $delay: $delay2, $checked: $checked2, $again: $pAgain}`,
					`$ch := admin.Change{$action: $action2, $why: $whyWhy, $delay: $delay2, $checked: $checked2 || flags.confirmed, $again: $pAgain}`},
			},
			sees: tests("TestUnknownOutcomesWaitForAWord"),
		},
		{
			name: "dropped-attempt-had-no-effect", breaks: "G32",
			what: "After a cancel or a reschedule, the attempt that held the entry counts as one without an effect.",
			edits: []edit{
				{"Change.After", `if $abandons($before) {`, `if false {`},
			},
			sees: tests("TestAttemptThatAChangeDroppedIsOfUnknownOutcome"),
		},
		{
			name: "broken-tracer-fails-the-handler", breaks: "G33",
			what: "A tracer that panics fails the attempt of the handler.",
			edits: []edit{
				{"Telemetry.begin", `defer $survive()`, ``},
			},
			sees: tests("TestPanickingProviderHarmsNoEntry"),
		},
		{
			name: "series-without-end", breaks: "G33",
			what: "Each business type gets metric series of its own without a limit.",
			edits: []edit{
				{"names.canonical", `$known, $full := $nKnown[$name], len($nKnown) >= $most`, `$known := $nKnown[$name]`},
				{"names.canonical",
					`case $full:
	return $other, false
}
$lock()`,
					`}
$lock()`},
				{"names.canonical",
					`case len($known) >= $most:
	return $other, false`,
					``},
			},
			sees: tests("TestOddValuesMakeABoundedNumberOfSeries"),
		},
		{
			name: "long-trace-refuses-its-entry", breaks: "G33",
			what: "A long tracestate makes Record refuse the entry.",
			edits: []edit{
				{"maxTraceState", `$maxTraceState = 512`, `$maxTraceState = 1 << 20`},
			},
			sees: tests("TestLongTraceStateRefusesNoEntry"),
		},
		{
			name: "search-names-hidden-entries", breaks: "G32",
			what: "A search for a mistyped entry id names entries that the person may not see.",
			edits: []edit{
				{"nearSearch.addEntryIDs", `$rows, $err := $s.d.outlines($ctx, $actor, $ids)`, `$rows, $err := $s.d.log.Operations().Outlines($ctx, $ids)`},
			},
			sees: tests("TestSearchTellsNothingOfHiddenEntries"),
		},
		{
			name: "pages-for-nobody", breaks: "G34",
			what: "The pages admit users that Identify does not know.",
			edits: []edit{
				{"site.requireActor", `if !$ok || $id == "" {`, `if !$ok && false || false {`},
			},
			sees: tests("TestEveryRouteRefusesWhoHasNoRight"),
		},
		{
			name: "pages-of-one-log-for-all", breaks: "G34",
			what: "The pages of each log show the first log, and change its entries.",
			edits: []edit{
				{"server.register", `$serve($s, $request($w, $WithContext($ctx)))`, `$serve($s.servers[0], $s.servers[0].request($w, $WithContext($ctx)))`},
			},
			sees: tests("TestPagesOfSeveralLogsStayApart"),
		},
		{
			name: "pages-take-foreign-forms", breaks: "G34",
			what: "A form on another site acts for the signed-in user.",
			edits: []edit{
				{"site.handler",
					`return $bounded($secured($handler($identified($received($routes())))))`,
					`return $bounded($secured($identified($received($routes()))))`},
			},
			sees: tests("TestPostFromAnotherOriginIsRefused"),
		},
		{
			name: "pages-act-on-get", breaks: "G34",
			what: "A GET request changes entries.",
			edits: []edit{
				{"allRoutes",
					`{"POST reveal", (*$server).$reveal},`,
					`{"GET do", (*$server).doAction},
{"POST reveal", (*$server).$reveal},`},
			},
			sees: tests("TestGETChangesNothing"),
		},
		{
			name: "pages-forget-what-was-seen", breaks: "G34",
			what: "A form acts on the current version instead of the one that the page showed.",
			edits: []edit{
				{"server.performAction",
					`$answers, $err = $change($ctx, $actor, $wiChange())`,
					`now, _ := s.checkSelection(rq, action)
for i := range now.Lines {
	action.Seen[i].Version = now.Lines[i].Entry.Version
}
$answers, $err = $change($ctx, $actor, $wiChange())`},
			},
			sees: tests("TestOperatorWithoutScriptPutsRefundsRight"),
		},
		{
			name: "pages-show-masked-values", breaks: "G34",
			what: "Revealed content includes values that the type's view does not name.",
			edits: []edit{
				{"printer.printScalar", `if !$shown {`, `if !$shown && false {`},
			},
			sees: tests("TestContentIsShownOnlyToWhoRevealsItAndOnlyWhatTheViewNames"),
		},
	}
}
