package main

// commanding: what a person at a terminal is shown, and what is done for them.
func commanding() []mutant {
	return []mutant{
		{
			name: "command-unconfirmed", oracle: safety,
			what: "whatever is typed stands for the number of entries",
			edits: []edit{
				{"cmd/compensator/change.go", "	if strings.TrimSpace(typed) != word {\n", "	if strings.TrimSpace(typed) == \"\" {\n"},
			},
			sees: commandTests("TestNothingIsDoneUntilTheNumberIsTyped"),
		},
		{
			name: "command-yes-is-checked", oracle: duplicates,
			what: "--yes stands for the word that unknown outcomes were looked up",
			edits: []edit{
				{"cmd/compensator/change.go", "Checked: checked, Again", "Checked: checked || yes, Again"},
			},
			sees: commandTests("TestUnknownOutcomesWaitForAWord"),
		},
		{
			name: "command-takes-what-stands", oracle: safety,
			what: "an entry that was listed under a version is changed under the one it has by now",
			edits: []edit{
				{"cmd/compensator/change.go", "		return picked{name: one.name, id: id, seen: *one.seen}, nil\n",
					"		view, err := s.Entry(ctx, s.actor, one.of)\n		return picked{name: one.name, id: id, seen: max(*one.seen, view.Entry.Version)}, err\n"},
			},
			sees: commandTests("TestOnlyWhatWasSeenIsChanged"),
		},
		{
			name: "command-does-again", oracle: duplicates,
			what: "work that has succeeded is done again by whoever names its entry",
			edits: []edit{
				{"cmd/compensator/connect.go", "return (right != desk.RequeueSucceeded || p.again) && ", "return "},
			},
			sees: commandTests("TestExitCodes"),
		},
		{
			name: "command-heeds-no-limit", oracle: safety,
			what: "of the policy only the rights count: what is worth more than a role may touch is touched",
			edits: []edit{
				{"cmd/compensator/policy.go", "	most, named := r.Amounts[on.Amount.Currency]\n	return named && on.Amount.Known() && max(on.Amount.Minor, -on.Amount.Minor) <= most\n", "	return true\n"},
			},
			sees: commandTests("TestPolicyIsHeededByEveryCommand", "TestPolicyDecidesByRoleTypeAndAmount"),
		},
		{
			name: "command-pages-go-by-old-policy", oracle: safety,
			what: "who has the pages open keeps the rights that the policy has taken from him",
			edits: []edit{
				{"cmd/compensator/policy.go", "	if time.Since(r.at) >= policyKept {", "	if time.Since(r.at) >= policyKept && r.at.IsZero() {"},
			},
			sees: commandTests("TestPagesGoByThePolicyAsItIsNow"),
		},
		{
			name: "command-pages-for-all", oracle: safety,
			what: "the pages on loopback open to any browser that asks, with a wrong token or none",
			edits: []edit{
				{"ui/local/local.go", "err == nil && same(cookie.Value, d.session)", "err != nil || same(cookie.Value, d.session)"},
			},
			sees: commandTests("TestPagesAreServedToOneBrowserAndOnlyShow"),
		},
		{
			name: "command-pages-for-any-host", oracle: safety,
			what: "the pages on loopback answer to any host: a cookie that has reached another port is replayed",
			edits: []edit{
				{"ui/local/local.go", "if !same(strings.ToLower(host), d.host) {", "if false && !same(strings.ToLower(host), d.host) {"},
			},
			sees: commandTests("TestPagesAreServedOnLoopbackAlone"),
		},
		{
			name: "command-pages-write", oracle: safety,
			what: "the pages on loopback change things without --write",
			edits: []edit{
				{"cmd/compensator/pages.go", "p.again, p.readOnly = write, !write", "p.again, p.readOnly = write, false"},
			},
			sees: commandTests("TestPagesAreServedToOneBrowserAndOnlyShow"),
		},
		{
			name: "command-sends-what-turns-text", oracle: safety,
			what: "an error's text may turn the direction of a terminal's line: only control characters are escaped",
			edits: []edit{
				{"cmd/compensator/shown.go", "r == utf8.RuneError || !unicode.IsGraphic(r)", "r == utf8.RuneError || unicode.IsControl(r)"},
			},
			sees: commandTests("TestWhatIsPrintedIsHarmless", "TestTextsAreShownAsWhatTheyAre"),
		},
		{
			name: "command-writes-formulas", oracle: safety,
			what: "a cell of a CSV is what an error's text says, a formula too",
			edits: []edit{
				{"cmd/compensator/output.go", "	return desk.Cell(shown(fmt.Sprint(value)))", "	return desk.Cell(\"\") + shown(fmt.Sprint(value))"},
			},
			sees: commandTests("TestWhatIsPrintedIsHarmless"),
		},
		{
			name: "command-begins-upkeep", oracle: safety,
			what: "who only looks begins the mark of the cases' upkeep, and needs the right to",
			edits: []edit{
				{"cmd/compensator/console.go", "func (s *console) Marks(_ context.Context, types []string) (time.Time, map[string]time.Time, error) {\n",
					"func (s *console) Marks(ctx context.Context, types []string) (time.Time, map[string]time.Time, error) {\n	if types != nil {\n		return s.Store.Marks(ctx, types)\n	}\n"},
			},
			sees: commandTests("TestNothingIsWrittenByLooking", "TestGrantsThatCheckPrintsSuffice"),
		},
	}
}
