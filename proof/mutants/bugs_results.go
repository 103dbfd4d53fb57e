package main

func resulting() []mutant {
	return []mutant{
		{
			name: "result-without-its-success", breaks: "G38",
			what: "The result of an outcome that was dropped replaces the result of the success that was stored.",
			edits: []edit{
				{"sqlstore.Store.writeResults", `"token", s.d.binary($token[:])`, `"token", "token"`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ResultIsStoredWithItsOutcomeOnly"),
		},
		{
			name: "success-without-its-result", breaks: "G38",
			what: "The success of a transactional attempt commits, and its result is not written.",
			edits: []edit{
				{"sqlstore.Store.SettleTx", `case $changed == 1 && hasResult(&$o):`, `case $changed == 2 && hasResult(&$o):`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ResultCommitsWithTheHandlersTransaction").with(chaos, "60s"),
		},
		{
			name: "outcome-without-its-result", breaks: "G38",
			what: "The outcome of a success has no result, so callers learn that there is none.",
			edits: []edit{
				{"engine.successOutcome", `o.To, o.EndedBy, o.Result = processlog.Succeeded, processlog.EndedByHandler, row.Result`,
					`o.To, o.EndedBy = processlog.Succeeded, processlog.EndedByHandler`},
			},
			sees: tests("TestResultIsStoredWithItsSuccess").with(simulation, "300"),
		},
		{
			name: "result-of-an-earlier-epoch", breaks: "G38",
			what: "A success without a result shows the result of an earlier epoch.",
			edits: []edit{
				{"readEnds", `"SELECT {columns and result} FROM {log} LEFT JOIN {result} ON entry_id=id AND result_epoch=epoch AND state+0=1 WHERE id IN ({ids})"`,
					`"SELECT {columns and result} FROM {log} LEFT JOIN {result} ON entry_id=id AND state+0=1 WHERE id IN ({ids})"`},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnTheUsersConnections/ResultCountsInItsEpochOnly"),
		},
		{
			name: "result-survives-the-erasure", breaks: "G38",
			what: "An erasure leaves the result, which may hold personal data.",
			edits: []edit{
				{"sqlstore.Store.erase", `err = s.deleteResults($ctx, $tx, []processlog.ID{row.oldRow.ID})`, `_ = s.deleteResults`},
			},
			sees: tests("TestResultGoesWithItsEntry"),
		},
		{
			name: "result-survives-the-purge", breaks: "G38",
			what: "A purge leaves the results of the entries that it deletes.",
			edits: []edit{
				{"purge.deleteFree", `if err := p.s.deleteResults($ctx, $tx, $ids); err != nil {`, `if err := error(nil); err != nil {`},
			},
			sees: tests("TestResultGoesWithItsEntry"),
		},
		{
			name: "result-in-the-clear", breaks: "G38",
			what: "The result of a type that seals its contents is stored as it is.",
			edits: []edit{
				{"Compensator.encodeResult", `if sealing, $ok := $codec.(SealingCodec); $ok {`, `if sealing, ok := codec.(SealingCodec); ok && false {`},
			},
			sees: tests("TestResultIsSealedByTheCodecOfItsType"),
		},
		{
			name: "older-read-answers", breaks: "G39",
			what: "A read that began before a Wait answers it, so the caller does not find an entry that has committed.",
			edits: []edit{
				{"Waiting.answerCallsLocked", `if !c.readBegun || !$ended {`, `if !ended {`},
			},
			sees: tests("TestOlderReadAnswersNoLaterWait"),
		},
		{
			name: "answer-of-another-entry", breaks: "G39",
			what: "All callers whose entries are read together get the row of the first entry.",
			edits: []edit{
				{"Waiting.readEntries", `row, $exists := $found[id]`, `row, exists := found[ids[0]]`},
			},
			sees: selection{}.with(simulation, "300"),
		},
		{
			name: "end-here-is-not-told", breaks: "G39",
			what: "A caller learns of an end in its own process only by the next read.",
			edits: []edit{
				{"Waiting.Ended", `if !w.hasCallers.Load() {`, `if true {`},
			},
			sees: tests("TestEndInThisProcessIsSeenAtOnce", "TestEndInAnotherProcessIsPublished"),
		},
		{
			name: "reads-drift-apart", breaks: "G39",
			what: "Entries are read at times of their own, so a thousand callers cost hundreds of statements a round.",
			edits: []edit{
				{"Waiting.nextReadAt", `return w.startedAt.Add($now.Sub(w.startedAt).Truncate($pause) + $pause)`, `return now.Add(pause)`},
			},
			sees: tests("TestThousandWaitsCostTwoStatementsARound"),
		},
		{
			name: "call-in-the-transaction", breaks: "G40",
			what: "The transaction is open during the call, and holds a connection.",
			edits: []edit{
				{"Transactions.runCall", `err := handler($a.Context(), $t.beginOnce, &$a.Row)`, `_, _ = t.beginTx()
err := handler(a.Context(), func() (Transaction, error) { return t.tx, nil }, &a.Row)`},
			},
			sees: tests("TestCallNeedsNoConnectionOfItsOwn"),
		},
		{
			name: "late-call-is-free", breaks: "G40",
			what: "An attempt whose call used up the timeout costs nothing, so the partner is called without end.",
			edits: []edit{
				{"Transactions.runCall", `case $t.beginErr != nil && $a.Context().Err() != nil:`, `case t.beginErr != nil && false:`},
			},
			sees: tests("TestCallThatTakesTooLongIsAFailure"),
		},
		{
			name: "then-commits-without-success", breaks: "G40",
			what: "The writes of then stay although the entry had moved on.",
			edits: []edit{
				{"attemptTx.storeSuccess", `return engine.Result{Err: $err, MovedOn: $err == errEntryChanged}`, `_ = t.tx.Commit()
return engine.Result{Err: err, MovedOn: err == errEntryChanged}`},
			},
			sees: tests("TestCallThatLostItsEntryHasNoEffect").with(simulation, "300"),
		},
		{
			name: "hidden-failure-commits", breaks: "G5",
			what: "A middleware hides the failure of a transactional handler, and the writes before the failure stay.",
			edits: []edit{
				{"handlerTx.Over", `if $tx.failure != nil {`, `if false {`},
			},
			sees: tests("TestHiddenFailureOfATransactionalHandlerCommitsNothing"),
		},
		{
			name: "long-result-is-stored", breaks: "G38",
			what: "A result may be longer than Config.MaxContent.",
			edits: []edit{
				{"Compensator.encodeResult", `if len($encoded) > c.cfg.MaxContent {`, `if false {`},
			},
			sees: tests("TestResultThatCannotBeStoredIsAFailure"),
		},
	}
}
