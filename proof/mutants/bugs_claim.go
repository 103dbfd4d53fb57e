package main

// claiming: from due to leased.
func claiming() []mutant {
	return []mutant{
		{
			name: "foreign-entry-claimed", oracle: safety,
			what: "whatever the queue names under a type's key is claimed for that type: an entry of another one runs in its handler",
			edits: []edit{
				{"internal/engine/picker.go", "	if row.BusinessType != p.t.Name || row.State", "	if row.State"},
			},
			sees: selection{simulation: "2000"},
		},
		{
			name: "claimed-early", oracle: safety,
			what: "a claim takes entries that are not due, when the queue says they are",
			edits: []edit{
				{"internal/sqlstore/claim.go", "case row.DueIn > 0 || row.LeaseLeft > 0 && !c.ours(row):", "case row.LeaseLeft > 0 && !c.ours(row):"},
				{"compensatortest/memory/claim.go", "case before.DueIn > 0 || before.LeaseLeft > 0 && !own:", "case before.LeaseLeft > 0 && !own:"},
			},
			sees: tests("TestStaleQueueEntryNeverRunsTheRowThatGotItsId", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/DelayedEntryIsNotClaimedEarly").and(model, "m:no-early-guard").and(simulation, "300"),
		},
		{
			name: "due-cut", oracle: safety,
			what: "a due moment is stored a millisecond too soon, because the database's now is cut",
			edits: []edit{
				{"processlog/limits.go", "	return Millis(d) + 1\n", "	return Millis(d)\n"},
			},
			sees: tests("TestStoredDueMomentIsNeverEarly"),
		},
		{
			name: "leases-ignored", oracle: duplicates,
			what: "a claim takes entries that another process holds",
			edits: []edit{
				{"internal/sqlstore/claim.go", "case row.DueIn > 0 || row.LeaseLeft > 0 && !c.ours(row):", "case row.DueIn > 0 || false:"},
				{"compensatortest/memory/claim.go", "case before.DueIn > 0 || before.LeaseLeft > 0 && !own:", "case before.DueIn > 0 || false && !own:"},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ClaimSortsWhatItCannotHave", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ConcurrentClaimsGetEachEntryOnce").and(simulation, "300").and(model, "m:queue-trusted"),
		},
		{
			name: "claim-without-version", oracle: duplicates,
			what: "a claim writes without comparing the version it has read: where row locks lock nothing, two get the row",
			edits: []edit{
				{"internal/sqlstore/claim.go", "WHERE id IN (%s) AND version=%d%s\",", "WHERE id IN (%s) AND version>=0*%d%s\","},
			},
			sees: tests("TestClaimsHaveOneOwnerWhereRowLocksLockNothing"),
		},
		{
			name: "claim-by-the-sessions-clock", oracle: safety,
			what: "on MySQL an entry is claimed in a pooled session whose clock somebody has set: early, or with a lease that is over",
			edits: []edit{
				{"internal/sqlstore/session.go", "	if s.own != nil || s.d.steady == \"\" {\n", "	if true {\n"},
				{"internal/txwatch/text.go", "SET STATEMENT timestamp=0, lock_wait_timeout=5", "SET STATEMENT lock_wait_timeout=5"},
			},
			sees: tests("TestClaimInASessionWithAClockOfItsOwnIsNotEarly"),
		},
		{
			name: "skip-locked-removed", oracle: lateness,
			what: "a claim waits for rows that somebody holds, and everything due waits with it",
			edits: []edit{
				{"internal/sqlstore/mysql.go", "skipLocked: \" FOR UPDATE SKIP LOCKED\",", "skipLocked: \" FOR UPDATE\","},
				{"internal/sqlstore/check_instruments.go", "p.s.d.halves = true", "p.s.d.halves = false"}, // it would be found out
			},
			sees: tests("TestLeasesOfFreeRowsAreRenewedWhileOneIsLocked", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ClaimNeverWaitsForALockedRow"),
		},
		{
			name: "slow-server-refused", oracle: lateness,
			what: "New takes a busy server, whose answer comes late, for one whose NOWAIT waits, and the service does not start",
			edits: []edit{
				{"internal/sqlstore/check_instruments.go", "	proofLockWait = 3\n", "	proofLockWait = 1\n"},
			},
			sees: tests("TestNewTakesASlowServerForNoneThatWaits"),
		},
		{
			name: "broken-session-looks-on", oracle: lateness,
			what: "New goes on with the session that it gave up on in the middle of a statement, and the service does not start on a server whose SKIP LOCKED waits",
			edits: []edit{
				{"internal/sqlstore/check_instruments.go", "tx.Rollback() != nil || err != nil", "tx.Rollback() != nil && err != nil"},
			},
			sees: tests("TestEntriesRunOnAServerWhose/SKIP_LOCKED_waits"),
		},
		{
			name: "gone-fails-claim", oracle: lateness,
			what: "one id that does not exist fails the claim of all others",
			edits: []edit{
				{"internal/sqlstore/claim.go", "	c.found.Gone = append(c.found.Gone, without(unread, locked)...)\n	return nil\n", "	if len(locked) < len(unread) {\n		return fmt.Errorf(\"no such entry\")\n	}\n	return nil\n"},
			},
			sees: tests("TestQueueMemberOfAnUncommittedEntryCostsNothing", "TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ClaimSortsWhatItCannotHave"),
		},
		{
			name: "crash-not-counted", oracle: safety,
			what: "a claim does not count its delivery: an entry that kills its process is run for ever",
			edits: []edit{
				{"internal/sqlstore/claim.go", "delivery_count=delivery_count+1", "delivery_count=GREATEST(1,delivery_count)"},
				{"internal/sqlstore/claim.go", "	row.DeliveryCount++\n", "	row.DeliveryCount = max(1, row.DeliveryCount)\n"},
				{"compensatortest/memory/row.go", "	next.entry.DeliveryCount++\n", "	next.entry.DeliveryCount = max(1, next.entry.DeliveryCount)\n"},
			},
			sees: tests("TestEntryThatKillsItsProcessIsTakenOutAndNoOther").and(simulation, "300").and(model, "m:crash-uncounted").and(crash, "claim-committed"),
		},
		{
			name: "crash-budget-unreached", oracle: safety,
			what: "an entry that kills its process is never taken out",
			edits: []edit{
				{"internal/engine/outcome.go", "const crashBudget = 3", "const crashBudget = 1 << 30"},
			},
			sees: tests("TestEntryThatKillsItsProcessIsTakenOutAndNoOther").and(simulation, "300").and(crash, "attempt-started,crashed"),
		},
		{
			name: "slots-leak-on-claim-error", oracle: leak,
			what: "a claim that fails keeps the slots it was to fill",
			edits: []edit{
				{"internal/engine/scanner.go", "	s.returnToQueue(t, leased, found, err)\n	t.slots.release(needed - t.calls(found.Mine))\n", "	s.returnToQueue(t, leased, found, err)\n	if err == nil {\n		t.slots.release(needed - t.calls(found.Mine))\n	}\n"},
			},
			sees: tests("TestFailedClaimsGiveTheirSlotsBack").and(simulation, "300"),
		},
		{
			name: "claims-one-by-one", oracle: lateness,
			what: "what comes due while a claim is under way waits for its end",
			edits: []edit{
				{"internal/engine/scan.go", "	return due\n", "	return false\n"},
			},
			sees: tests("TestEntryDueDuringAClaimNeedNotWaitForItsEnd"),
		},
		{
			name: "unknown-claim-kept", oracle: lateness,
			what: "a claim whose answer was lost is not given back: its entries wait until the lease ends, and that counts as a crash",
			edits: []edit{
				{"internal/engine/claims.go", "		c.releaseUnknown(want, token)\n", ""},
			},
			sees: tests("TestEntryOfAClaimWhoseReplyWasLostIsFreeAgain"),
		},
		{
			name: "release-without-token", oracle: duplicates,
			what: "giving a claim back ends the lease of whoever holds the entry now",
			edits: []edit{
				{"internal/sqlstore/claim.go", "AND token=%s AND delivery_count>0 AND lease_until>0\",", "AND token<>CONCAT(%s,'x') AND delivery_count>0 AND lease_until>0\","},
				{"compensatortest/memory/claim.go", "row.committed.token != token ||", ""},
			},
			sees: tests("TestSQLStoreKeepsEveryPromiseOnConnectionsOfItsOwn/ReleaseUndoesOnlyItsOwnClaim").and(model, "m:release-untokened").and(simulation, "2000"),
		},
	}
}
