package main

// showing: the operator's pages.
func showing() []mutant {
	return []mutant{
		{
			name: "pages-measured-by-others", oracle: safety,
			what: "another site has somebody's browser ask for a page that repeats what the site guesses, and it is sent compressed",
			edits: []edit{
				{"ui/transfer.go", "(site == \"same-origin\" || site == \"none\")", "site != \"\""},
			},
			sees: pageTests("TestPagesAreCompressedOnlyWhereNobodyElseHasAsked"),
		},
		{
			name: "overview-leaves-out-what-is-to-be-seen-to", oracle: safety,
			what: "of more types with something to be seen to than the overview begins with, those beyond are not on it",
			edits: []edit{
				{"ui/overview.go", "rows[:min(max(calm, typesAtAGlance), len(rows))]", "rows[:min(typesAtAGlance, len(rows))]"},
			},
			sees: pageTests("TestOverviewLeadsToTheTypesThatItLeavesOut"),
		},
		{
			name: "page-of-another-taken-for-ones-own", oracle: safety,
			what: "who comes with the tag of a page that somebody else saw is told that it has not changed",
			edits: []edit{
				{"ui/transfer.go", "rq.Theme(), rq.Actor.ID, rq.Here(), data}", "rq.Theme(), rq.Here(), data}"},
			},
			sees: pageTests("TestTagOfTheOverviewStandsForAllThatItSays"),
		},
		{
			name: "rights-missing-in-the-tag", oracle: safety,
			what: "a page goes on to offer what its reader may not do any more, for its tag says nothing of rights",
			edits: []edit{
				{"ui/overview.go", "	MayPause bool\n", "	MayPause bool `json:\"-\"`\n"},
			},
			sees: pageTests("TestTagOfTheOverviewStandsForAllThatItSays"),
		},
		{
			name: "desk-shows-what-was", oracle: safety,
			what: "who has just paused a type, or put entries right, is shown what was before",
			edits: []edit{
				{"desk/shared.go", "s.acts == acts.Load() && (", "s.acts >= 0 && ("},
			},
			sees: tests("TestWhatIsReadIsSharedUntilItIsOldOrSomethingIsDone", "TestWhatWasDoneMeanwhileIsReadAnew"),
		},
		{
			name: "pages-for-nobody", oracle: safety,
			what: "the pages let in whom Identify does not know",
			edits: []edit{
				{"ui/server.go", "		if !ok || actor.ID == \"\" {", "		if !ok && false || false {"},
			},
			sees: pageTests("TestEveryRouteRefusesWhoHasNoRight"),
		},
		{
			name: "pages-take-foreign-forms", oracle: safety,
			what: "a form of another site acts for whoever is signed in",
			edits: []edit{
				{"ui/ui.go", "s.bounded(s.secured(s.origins.Handler(s.identified(s.received(s.routes())))))", "s.bounded(s.secured(s.identified(s.received(s.routes()))))"},
			},
			sees: pageTests("TestPostFromAnotherOriginIsRefused"),
		},
		{
			name: "pages-export-past-the-desk", oracle: safety,
			what: "a listing is taken away by who may only see it, and nothing of it is on record",
			edits: []edit{
				{"ui/export.go", "return s.desk.Export(rq.ctx, rq.Actor, filter, why)", "_ = why\n		return s.desk.EntryLines(rq.ctx, rq.Actor, filter)"},
			},
			sees: pageTests("TestListingIsTakenAwayByRightAndOnRecord", "TestEveryRouteRefusesWhoHasNoRight"),
		},
		{
			name: "pages-forget-what-was-seen", oracle: safety,
			what: "a form acts on entries as they are, and not as they were seen",
			edits: []edit{
				{"ui/act.go", "		answers, err = s.desk.Change(", "		now, _ := s.weigh(rq, wi)\n		for i := range now.Lines {\n			wi.Seen[i].Version = now.Lines[i].Entry.Version\n		}\n		answers, err = s.desk.Change("},
			},
			sees: pageTests("TestOperatorWithoutScriptPutsRefundsRight"),
		},
		{
			name: "pages-read-before-they-ask", oracle: safety,
			what: "a body that comes slowly holds its connection before anybody is asked who sends it",
			edits: []edit{
				{"ui/bounds.go", "			if r.ProtoMajor == 1 {\n				w.Header()", "			if r.ProtoMajor == 0 {\n				w.Header()"},
				{"ui/bounds.go", "SetReadDeadline(in.began.Add(s.times.body))", "SetReadDeadline(time.Time{})"},
			},
			sees: pageTests("TestSlowBodyIsAnsweredBeforeItArrives"),
		},
		{
			name: "pages-do-not-warn", oracle: safety,
			what: "what may have happened runs again without a question",
			edits: []edit{
				{"ui/act.go", "Checked: wi.Sure, Again: wi.Sure}", "Checked: true, Again: true}"},
			},
			sees: pageTests("TestWhatMayHaveHappenedAsksOnceMore"),
		},
		{
			name: "pages-show-masked-values", oracle: safety,
			what: "revealed content shows values that the type's view does not name",
			edits: []edit{
				{"ui/content.go", "	if !shown {\n		text = masked", "	if !shown && false {\n		text = masked"},
			},
			sees: pageTests("TestContentIsShownOnlyToWhoRevealsItAndOnlyWhatTheViewNames"),
		},
		{
			name: "pages-act-on-get", oracle: safety,
			what: "a link acts",
			edits: []edit{
				{"ui/server.go", "	{\"POST do\", (*server).do},", "	{\"POST do\", (*server).do},\n	{\"GET do\", (*server).do},"},
			},
			sees: pageTests("TestGETChangesNothing"),
		},
		{
			name: "pages-show-anothers-outcome", oracle: safety,
			what: "what came of an action is shown to whoever signs in on that browser next",
			edits: []edit{
				{"ui/outcome.go", " || o.Whose != whose(rq.Actor) {", " {"},
			},
			sees: pageTests("TestOutcomeIsShownToWhoActedAlone"),
		},
		{
			name: "pages-need-health", oracle: safety,
			what: "the overview breaks for who may see a type, and not the process that serves him",
			edits: []edit{
				{"ui/pages/overview.html", "{{if .Data.Health}}", "{{if true}}"},
			},
			sees: pageTests("TestPagesAreThereForWhoMaySeeNoHealth"),
		},
		{
			name: "pages-turn-texts-around", oracle: safety,
			what: "characters that turn a text around reach the reader",
			edits: []edit{
				{"ui/request.go", "rq.send(status, visible(html.Bytes()))", "rq.send(status, html.Bytes())"},
			},
			sees: pageTests("TestHostileTextsStayTexts"),
		},
	}
}
