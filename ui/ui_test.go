package ui

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// Failure: F131
func TestEachTextIsThereInEachLanguage(t *testing.T) {
	english := slices.Sorted(maps.Keys(languages[0].texts))
	for _, w := range languages[1:] {
		if other := slices.Sorted(maps.Keys(w.texts)); !slices.Equal(english, other) {
			t.Errorf("%s has other texts than %s", w.Lang, languages[0].Lang)
		}
		for key, text := range w.texts {
			for _, place := range []string{"{0}", "{1}"} {
				if strings.Contains(text, place) != strings.Contains(languages[0].texts[key], place) {
					t.Errorf("%s: %q says %s in one language alone", w.Lang, key, place)
				}
			}
		}
	}
	used := regexp.MustCompile(`\bT "([^"]+)"|T\("([^"]+)"|fail\([^)]*?"([a-z_.]+)"`)
	for _, pattern := range []string{"pages/*.html", "*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range used.FindAllStringSubmatch(string(source), -1) {
				key := match[1] + match[2] + match[3]
				_, plain := languages[0].texts[key]
				_, one := languages[0].texts[key+".one"]
				_, other := languages[0].texts[key+".other"]
				if !plain && (!one || !other) && !strings.HasSuffix(key, ".") {
					t.Errorf("%s: no text %q", name, key)
				}
			}
		}
	}
}

// Failure: F131
func TestEachWordHasAText(t *testing.T) {
	want := func(kind string, word any) {
		if _, isFound := languages[0].texts[fmt.Sprintf("%s.%v", kind, word)]; !isFound {
			t.Errorf("no text %s.%v", kind, word)
		}
	}
	for _, state := range []compensator.State{compensator.Pending, compensator.Retrying, compensator.Compensating, compensator.Dead, compensator.Succeeded,
		compensator.Compensated, compensator.Cancelled, compensator.SettledManually} {
		want("state", state)
	}
	for _, by := range (filterForm{}).Ends() {
		want("ended", by)
	}
	for _, right := range changes {
		want("do", right)
		want("help", right)
		want("did", right)
	}
	for _, do := range []string{doTake, doAssign, doGiveBack, doNote, doReveal, doPause, doResume, doLimit, doResetLimit} {
		want("do", do)
		want("help", do)
	}
	for _, action := range auditLogActions {
		want("did", action)
	}
	for _, recorded := range append(slices.Clone(changes), admin.TakeCase, admin.AssignCase, admin.NoteCase, admin.SeeContent, admin.Export, admin.Pause, "resume", "set policy") {
		if !slices.Contains(auditLogActions, string(recorded)) {
			t.Errorf("the trail cannot be asked for %q", recorded)
		}
	}
	for _, verdict := range []admin.AttemptVerdict{processlog.AttemptFailed, processlog.AttemptWaits, processlog.AttemptExhausted, processlog.AttemptPermanent, processlog.AttemptCrashed, processlog.AttemptInterrupted} {
		want("verdict", verdict)
	}
	for _, kind := range languages[0].Kinds() {
		want("kind", kind)
	}
	for _, answer := range (outcome{}).Answers() {
		want("answer", answer)
		want("answer", answer+".help")
	}
}

// Failure: F132
func TestAmountsAreExact(t *testing.T) {
	for want, a := range map[string]compensator.Amount{
		"CNY 129.00": {Minor: 12900, Currency: "CNY"}, "CNY 0.05": {Minor: 5, Currency: "CNY"}, "USD −1,234.50": {Minor: -123450, Currency: "USD"},
		"JPY 1,234,567": {Minor: 1234567, Currency: "JPY"}, "KWD 0.001": {Minor: 1, Currency: "KWD"}, "CLF 0.0001": {Minor: 1, Currency: "CLF"}, "CNY 0.00": {Currency: "CNY"},
		"CNY 90,000,000,000.00": {Minor: 9_000_000_000_000, Currency: "CNY"}, "": {Minor: 5},
	} {
		if got := strings.ReplaceAll(languages[0].Amount(a), "\u00a0", " "); got != want && a.Known() {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	groups := slices.Repeat([]admin.Group{{N: 1, Sums: []compensator.Amount{{Minor: 1<<63 - 1, Currency: "CNY"}}}}, 3)
	if got := newRisk(groups, false).Sums[0]; got != formatMoney(new(big.Int).Mul(big.NewInt(3), big.NewInt(1<<63-1)), "CNY") {
		t.Errorf("a sum beyond 64 bits: %s", got)
	}
}

func TestSpansAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		59 * time.Second: "59 s", 10 * time.Minute: "10 min", time.Hour: "1 h", -90 * time.Minute: "1 h 30 min", 48 * time.Hour: "2 d", 49 * time.Hour: "2 d 1 h",
	} {
		if got, err := languages[0].Span(d); err != nil || got != want {
			t.Errorf("%v: %q %v, want %q", d, got, err, want)
		}
	}
}

// A reveal shows of a result only the fields that TypeView.ShowResult names. TypeView.Show does not apply to results.
// Failure: F132
func TestRevealShowsOfAResultWhatTheViewNames(t *testing.T) {
	e := compensator.Entry{Content: []byte(`{"id":1}`), Result: []byte(`{"id":2,"receipt":"r-7"}`)}
	got := newRevealed(e, TypeView{Show: []string{"id"}, ShowResult: []string{"receipt"}})
	if got.Masked != 0 || got.Result.Masked != 1 || !strings.Contains(got.Result.Text, `"r-7"`) || strings.Contains(got.Result.Text, "2") {
		t.Errorf("%+v %+v", got, got.Result)
	}
	if hidden := newRevealed(e, TypeView{Show: []string{"."}}); strings.Contains(hidden.Result.Text, "r-7") {
		t.Errorf("%+v", hidden.Result)
	}
	if e.Result = nil; newRevealed(e, TypeView{}).Result != nil {
		t.Error("an entry without a result shows none")
	}
}

// Failure: F132
func TestRevealShowsWhatTheViewNames(t *testing.T) {
	content := `{"id":12345678901234567890.10,"buyer":{"name":"lin","tags":["a",{"b":"<c>"}]},"n":null,"e":{}}`
	show := func(content string, paths ...string) revealed {
		return newRevealed(compensator.Entry{Content: []byte(content), Headers: map[string]string{"traceparent": "00-1", "token": "secret"}}, TypeView{Show: paths})
	}
	all := show(content, ".")
	for _, part := range []string{"12345678901234567890.10", `"lin"`, `"<c>"`, "null", "{}"} {
		if !strings.Contains(all.Text, part) {
			t.Errorf("no %s in %s", part, all.Text)
		}
	}
	if some := show(content, "id", "buyer.tags"); !strings.Contains(some.Text, `"<c>"`) || strings.Contains(some.Text, "lin") || some.Masked != 2 {
		t.Errorf("%+v", some)
	}
	if none := show(content); regexp.MustCompile(`lin|123|<c>`).MatchString(none.Text) || none.Headers[0].Value != maskText || none.Headers[1].Value != "00-1" {
		t.Errorf("%+v", none)
	}
	for _, odd := range []string{"", "plain text", `{"a":1} trailing`, strings.Repeat("[", 20_000), "\xff"} {
		if got := show(odd, "a"); !got.Opaque || got.Text != "" {
			t.Errorf("%.20q: %+v", odd, got)
		}
	}
	if got := show("plain text", "."); got.Text != "plain text" {
		t.Errorf("%+v", got)
	}
}

// Failure: F132
func TestDeepAndWideContentMakesNoLargePage(t *testing.T) {
	deep := func(n int, inside string) string { return strings.Repeat("[", n) + inside + strings.Repeat("]", n) }
	show := func(content string, paths ...string) revealed {
		return newRevealed(compensator.Entry{Content: []byte(content)}, TypeView{Show: paths})
	}
	most := maxShownLength + 1000
	if got := show(deep(9000, "1"), "."); got.Opaque || !strings.HasPrefix(got.Text, "[\n") || len(got.Text) > most {
		t.Errorf("deep: %d bytes, opaque %v", len(got.Text), got.Opaque)
	}
	wide := deep(100, "1"+strings.Repeat(",1", 200_000))
	if got := show(wide); !got.Opaque || got.Text != "" {
		t.Errorf("deep and wide, nothing of it shown: %d bytes", len(got.Text))
	}
	if got := show(wide, "."); got.Text != wide {
		t.Errorf("deep and wide, all of it shown: %d bytes", len(got.Text))
	}
}

// Failure: F132
func TestControlCharactersAreShownBetweenTags(t *testing.T) {
	if got := string(showInvisible([]byte("<b title=\"\u202e\">a\u202egpj.exe\x07</b>\n"))); got != "<b title=\"\u202e\">a[U+202E]gpj.exe[U+0007]</b>\n" {
		t.Errorf("%q", got)
	}
	const family = "<textarea name=\"reason\" required>\U0001F468\u200d\U0001F469</textarea>"
	if got := string(showInvisible([]byte(family + "\u200d"))); got != family+"[U+200D]" {
		t.Errorf("%q: what is sent back is not what was typed", got)
	}
	if got := string(showInvisible([]byte("<b>a\u3164\u034f\u2800\U000E0001\ufe0f\u115f</b>"))); got != "<b>a[U+3164][U+034F][U+2800][U+E0001][U+FE0F][U+115F]</b>" {
		t.Errorf("%q", got)
	}
	if got := string(showInvisible([]byte("<q>one\r\ntwo\rthree\r</q>\r\n"))); got != "<q>one\r\ntwo[U+000D]three[U+000D]</q>\r\n" {
		t.Errorf("ends of lines: %q", got)
	}
}

// Failure: F133
func TestBackStaysUnderTheBase(t *testing.T) {
	for _, base := range []string{"/", "/ops/", "/a/b/"} {
		rq := &request{s: &server{base: base}}
		for to, want := range map[string]string{
			base + "entries?c=1": base + "entries?c=1", base + "?types=all": base + "?types=all", base: base, "": base, "https://evil.example/": base, "//evil.example": base, `/\evil.example`: base,
			"javascript:alert(1)": base, base + "../../x": base, "\x00": base,
		} {
			if base == "/" && strings.HasSuffix(want, "/") && !strings.Contains(to, ":") {
				if got := rq.safeReturnPath(to); strings.HasPrefix(got, "//") || !strings.HasPrefix(got, "/") {
					t.Errorf("back to %q: %q", to, got)
				}
				continue
			}
			if got := rq.safeReturnPath(to); got != want {
				t.Errorf("back to %q: %q, want %q", to, got, want)
			}
		}
	}
}

// Failure: F133
func TestAllowanceIsEachActorsOwnAndComesBack(t *testing.T) {
	l, now := newLimiter(5), time.Unix(1, 0)
	spend := func(actor string) (n int) {
		for l.allowRequest(actor, now) {
			n++
		}
		return n
	}
	if a, b := spend("a"), spend("b"); a != 10 || b != 10 {
		t.Errorf("%d and %d, want 10 each", a, b)
	}
	now = now.Add(time.Second)
	if n := spend("a"); n != 5 {
		t.Errorf("%d a second later, want 5", n)
	}
	for i := range 3 * maxActors {
		now = now.Add(time.Millisecond)
		l.allowRequest(fmt.Sprint(i), now)
	}
	if len(l.actors) > maxActors+1 {
		t.Errorf("%d actors are remembered", len(l.actors))
	}
}

// A realm with special characters must not change the rest of its header.
func TestOnlyAnUnknownPersonIsAskedForAPassword(t *testing.T) {
	identify := func(r *http.Request) (admin.Actor, bool) {
		name, password, _ := r.BasicAuth()
		return admin.Actor{ID: name}, password == "right"
	}
	for realm, want := range map[string]string{
		"":                 "",
		"operators":        `Basic realm="operators", charset="UTF-8"`,
		`a "b", c="d" \ e`: `Basic realm="a \"b\", c=\"d\" \\ e", charset="UTF-8"`,
	} {
		pages, err := New(Options{Identify: identify, Realm: realm}, new(admin.Admin))
		if err != nil {
			t.Fatal(err)
		}
		for _, password := range []string{"", "wrong", "right"} {
			for _, path := range []string{"/", "/nowhere"} {
				r, w := httptest.NewRequest(http.MethodPut, path, nil), httptest.NewRecorder()
				r.SetBasicAuth("ann", password)
				pages.ServeHTTP(w, r)
				status, asked := http.StatusUnauthorized, want
				if password == "right" {
					status, asked = http.StatusMethodNotAllowed, ""
				}
				if got := w.Header().Get("WWW-Authenticate"); w.Code != status || got != asked {
					t.Errorf("realm %q, password %q: %d, %q, want %d, %q", realm, password, w.Code, got, status, asked)
				}
			}
		}
	}
	for _, realm := range []string{"a\r\nSet-Cookie: b=c", "a\x00", "tab\t", "\x7f", "bediener-süd", "\xff"} {
		var refused *compensator.FieldError
		if _, err := New(Options{Identify: identify, Realm: realm}, new(admin.Admin)); !errors.As(err, &refused) || refused.Field != "Realm" {
			t.Errorf("realm %q: %v", realm, err)
		}
	}
}

// A person's or a partner's text must not become HTML.
func TestExplanationsAreWrittenInEachLanguage(t *testing.T) {
	bad := `<b onclick="x">{at}`
	for _, w := range languages {
		rq := &request{words: w, s: &server{base: "/ops/"}}
		for _, code := range admin.ReasonCodes() {
			for _, text := range []string{"", bad} {
				html, err := rq.Sentence(admin.Reason{Code: code, Name: bad, Actor: bad, Text: text, State: "dead", N: 3, At: time.Now(), Until: time.Now(), Every: time.Minute})
				got := string(html)
				if err != nil || got == "" || strings.Contains(got, "<b o") || strings.Contains(strings.ReplaceAll(got, "{at}", ""), "{") || got == code {
					t.Errorf("%s, %s: %q %v", w.Lang, code, got, err)
				}
			}
		}
		if html, err := rq.Sentence(admin.Reason{Code: "<new>"}); err != nil || html != "&lt;new&gt;" {
			t.Errorf("%s: %q %v", w.Lang, html, err)
		}
	}
}

func TestTextsAreFilledInOnce(t *testing.T) {
	if got, err := (words{texts: map[string]string{"x": "{0} {1}"}}).T("x", "{1}", "b"); err != nil || got != "{1} b" {
		t.Errorf("%q %v", got, err)
	}
}

func TestLanguageIsTheOneChosenOrTheBrowsers(t *testing.T) {
	for header, want := range map[string]string{"": "en", "zh": "zh-CN", "zh-HK,en;q=0.5": "zh-CN", "fr, en-GB;q=0.9, zh": "en", ";;,": "en"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Language", header)
		if got := wordsFor(r).Lang; got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
		r.AddCookie(&http.Cookie{Name: languageCookie, Value: "zh-CN"})
		if got := wordsFor(r).Lang; got != "zh-CN" {
			t.Errorf("%q with a cookie: %s", header, got)
		}
	}
}

func TestListingIsTakenAwayWhateverItsPagesHold(t *testing.T) {
	for _, tc := range []struct{ pages, lines, want, asked int }{
		{45, 1, 45, 45}, {45, 0, 0, 45}, {1, 7, 7, 1}, {10, exportPage, maxExported, 10}, {11, exportPage, maxExported, 10}, {30, 600, maxExported, 17},
	} {
		asked := 0
		lines, hasMore, err := gatherLines(func(cursor string, limit int) (page admin.LinePage, _ error) {
			if want := strings.Repeat("c", asked); cursor != want {
				t.Errorf("page %d is asked for by %q", asked, cursor)
			}
			if asked++; asked < tc.pages {
				page.Next = strings.Repeat("c", asked)
			}
			page.Lines = make([]admin.Line, min(limit, tc.lines))
			return page, nil
		})
		if err != nil || len(lines) != tc.want || asked != tc.asked || hasMore != (asked < tc.pages) {
			t.Errorf("%+v: %d lines of %d pages, more: %v, %v", tc, len(lines), asked, hasMore, err)
		}
	}
	gone := errors.New("gone")
	if lines, _, err := gatherLines(func(string, int) (admin.LinePage, error) { return admin.LinePage{Lines: make([]admin.Line, 1)}, gone }); !errors.Is(err, gone) || lines != nil {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

func TestLargestOutcomeFitsIntoACookie(t *testing.T) {
	w := httptest.NewRecorder()
	rq := &request{s: &server{site: &site{opts: Options{Base: "/ops/"}}, base: "/ops/"}, w: w, r: httptest.NewRequest(http.MethodPost, "/ops/do", nil)}
	o := outcome{Do: "settle by hand", Back: "/ops/entries?" + strings.Repeat("c=1&", 200)}
	ids, errs := make([]compensator.EntryID, admin.MaxEntries), make([]error, admin.MaxEntries)
	for i := range ids {
		id, err := compensator.ParseEntryID(fmt.Sprint(uint64(1<<63) + uint64(i)))
		if err != nil {
			t.Fatal(err)
		}
		ids[i], errs[i] = id, admin.ErrNotAllowed
	}
	errs[0] = nil
	o.addResults(ids, errs)
	if o.List[0].Answer != "not_allowed" || o.All() != admin.MaxEntries || o.Shown() != maxAnswers {
		t.Errorf("%+v", o)
	}
	rq.setOutcome(o)
	cookie := w.Result().Header.Get("Set-Cookie")
	if len(cookie) == 0 || len(cookie) > 4096 {
		t.Errorf("%d bytes", len(cookie))
	}
	var back answer
	if text, _ := o.List[3].MarshalText(); back.UnmarshalText(text) != nil || back != o.List[3] {
		t.Errorf("%v, then %v", o.List[3], back)
	}
}

func TestOverviewBeginsWithTheTypesThatAreToBeSeenTo(t *testing.T) {
	calm := func(n int) []typeRow { return slices.Repeat([]typeRow{{Cells: make([]cell, len(overviewStates))}}, n) }
	hasProblems := []typeRow{
		{Cells: []cell{{N: 1}}}, {Cells: make([]cell, 4), Overdue: "4 min"},
		{Cells: make([]cell, 4), Paused: &admin.Paused{}}, {Cells: make([]cell, 4), Broken: &admin.Broken{}},
	}
	for _, tc := range []struct {
		rows []typeRow
		want int
	}{
		{nil, 0}, {calm(3), 3}, {calm(40), maxOverviewTypes}, {hasProblems, 4},
		{slices.Concat(hasProblems, calm(40)), maxOverviewTypes},
		{slices.Concat(slices.Repeat(hasProblems, 5), calm(40)), 20}, // No type with problems may be left out.
		{slices.Repeat(hasProblems, 5), 20},
	} {
		if got := len(firstRows(tc.rows)); got != tc.want {
			t.Errorf("%d of %d types, want %d", got, len(tc.rows), tc.want)
		}
	}
}

func TestSumsThatMayNotBeAllSaySo(t *testing.T) {
	pages, err := parsePages()
	if err != nil {
		t.Fatal(err)
	}
	groups := []admin.Group{{N: 1234, Sums: []compensator.Amount{{Minor: 100, Currency: "CNY"}}}}
	for _, hasMore := range []bool{false, true} {
		var html strings.Builder
		if err := pages["groups"].ExecuteTemplate(&html, "risk", riskPart{&request{words: languages[0]}, newRisk(groups, hasMore)}); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"1,234+</b>", "1.00+</b>"} {
			if strings.Contains(strings.ReplaceAll(html.String(), "&#43;", "+"), text) != hasMore {
				t.Errorf("more: %v: %s", hasMore, html.String())
			}
		}
	}
}

func TestCookiesStayWithThePages(t *testing.T) {
	pages, err := New(Options{Base: "/ops/", Identify: func(*http.Request) (admin.Actor, bool) { return admin.Actor{ID: "ann"}, true }}, new(admin.Admin))
	if err != nil {
		t.Fatal(err)
	}
	post := func(origin, form string) *http.Response {
		r, w := httptest.NewRequest(http.MethodPost, "/ops/preferences", strings.NewReader(form)), httptest.NewRecorder()
		r.Host = "shop.example"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin)
		pages.ServeHTTP(w, r)
		return w.Result()
	}
	for origin, secure := range map[string]bool{"https://shop.example": true, "http://shop.example": false} {
		cookies := post(origin, "theme=dark&language=en").Cookies()
		if len(cookies) != 2 {
			t.Fatalf("%v", cookies)
		}
		for _, c := range cookies {
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure != secure || c.Path != "/ops/" {
				t.Errorf("from %s: %v", origin, c)
			}
		}
	}
	if got := post("https://shop.example", "theme=dark&x="+strings.Repeat("x", maxRequestBytes)); got.StatusCode != http.StatusRequestEntityTooLarge || len(got.Cookies()) != 0 {
		t.Errorf("a form of a megabyte: %d", got.StatusCode)
	}
}
