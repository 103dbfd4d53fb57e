package ui

import (
	"bytes"
	"fmt"
	"html/template"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// money writes an amount of minor units: "CNY 12,900.00". Never through a float.
func money(minor *big.Int, currency string) string {
	places := admin.Decimals(currency)
	digits := new(big.Int).Abs(minor).String()
	if len(digits) <= places {
		digits = strings.Repeat("0", places+1-len(digits)) + digits
	}
	whole, part := digits[:len(digits)-places], digits[len(digits)-places:]
	if part != "" {
		part = "." + part
	}
	sign := ""
	if minor.Sign() < 0 {
		sign = "−"
	}
	return currency + "\u00a0" + sign + thousands(whole) + part
}

// Amount is what something is worth; empty: it is not known.
func (w words) Amount(a compensator.Amount) string {
	if !a.Known() {
		return ""
	}
	return money(big.NewInt(a.Minor), a.Currency)
}

// Time is an instant, in UTC; the script makes it local, and shows the other in a tooltip.
func (w words) Time(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format("2006-01-02T15:04:05.000Z"), t.Format("2006-01-02 15:04:05 UTC")))
}

// Span is a duration in its two largest units.
func (w words) Span(d time.Duration) (string, error) {
	d = d.Abs()
	switch {
	case d < time.Minute:
		return w.T("span.s", int(d.Seconds()))
	case d < time.Hour:
		return w.T("span.m", int(d.Minutes()))
	case d < 48*time.Hour:
		return w.twoUnits("span.h", int(d.Hours()), int(d.Minutes())%60, "span.h_m")
	}
	return w.twoUnits("span.d", int(d.Hours())/24, int(d.Hours())%24, "span.d_h")
}

// twoUnits leaves out the smaller one where there is none of it.
func (w words) twoUnits(one string, large, small int, both string) (string, error) {
	if small == 0 {
		return w.T(one, large)
	}
	return w.T(both, large, small)
}

// Number has its thousands apart.
func (w words) Number(n int) string { return thousands(fmt.Sprint(n)) }

// thousands puts a comma between each three digits.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// visible shows, between tags, the characters that would turn or hide a text as their numbers. The templates have none, so
// that all there are come from outside; in an attribute they confine themselves to it, as in a textarea, of which the browser sends
// back what it was given: what stands there is to stay what was typed. A CR that ends a line with its LF is none.
func visible(html []byte) []byte {
	if !bytes.ContainsFunc(html, unseen) {
		return html
	}
	var out bytes.Buffer
	inTag, inArea := false, false
	for at, r := range string(html) {
		switch {
		case r == '<':
			inTag, inArea = true, bytes.HasPrefix(html[at:], []byte("<textarea"))
		case r == '>':
			inTag = false
		}
		if !inTag && !inArea && unseen(r) && !bytes.HasPrefix(html[at:], []byte("\r\n")) {
			fmt.Fprintf(&out, "[U+%04X]", r)
			continue
		}
		out.WriteRune(r)
	}
	return out.Bytes()
}

// unseen reports whether a character turns or hides a text.
func unseen(r rune) bool {
	if r < utf8.RuneSelf {
		return (r < ' ' || r == 0x7f) && r != '\n' && r != '\t'
	}
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Cf, r)
}

// Badge is a word with its icon and colour: never the colour alone.
func (w words) Badge(kind, text string) template.HTML {
	kind, _, _ = strings.Cut(kind, " ") // settled manually
	return template.HTML(`<span class="badge k-` + kind + `"><svg class="i" aria-hidden="true"><use href="#i-` + kind + `"/></svg>` + template.HTMLEscapeString(text) + `</span>`)
}

// State is an entry's state.
func (w words) State(state compensator.State) template.HTML {
	return w.Badge(state.String(), w.Word("state", state))
}

// Telling reports whether what ended an entry says more than its state.
func (w words) Telling(by compensator.EndedBy) bool {
	return by != compensator.EndedByHandler && by != compensator.EndedByPerson && by != compensator.EndedByCancel
}

// Due says until when somebody should have looked at a case.
func (w words) Due(c *admin.Case) (template.HTML, error) {
	left := time.Until(c.DueAt)
	span, err := w.Span(left)
	if err != nil {
		return "", err
	}
	key, kind := "case.in", "pending"
	if left < 0 {
		key, kind = "case.late", "unknown"
	}
	text, err := w.T(key, span)
	return w.Badge(kind, text) + ` <span class="sub">` + w.Time(c.DueAt) + `</span>`, err
}

// Unsure reports whether nobody knows what has happened; see unsure.
func (w words) Unsure(c *admin.Case) bool { return unsure(c) }

// UnsureGroup is Unsure of a group, as far as one of it tells.
func (w words) UnsureGroup(g admin.Group) bool { return g.Kind == admin.CaseUnknown }

// Theirs reports whether a case is in the hands of somebody else.
func (rq *request) Theirs(c *admin.Case) bool {
	return open(c) && c.Owner != "" && c.Owner != rq.Actor.ID
}

// Key is what a handler gives to whatever it calls.
func (w words) Key(e compensator.Entry) string { return e.CallKey() }

// Kinds are those of cases.
func (w words) Kinds() []string {
	return []string{admin.CaseDead.String(), admin.CaseUnknown.String()}
}

// AnswerIcon is the icon of what came of an entry.
func (w words) AnswerIcon(answer string) string {
	switch answer {
	case "done":
		return "succeeded"
	case "changed", "busy", "state":
		return "pending"
	}
	return "cancelled"
}

// Help is the text that says what an action does.
func (w words) Help(do string) string { return "help." + do }

// Delays reports whether an action may be put off.
func (w words) Delays(do string) bool {
	return do == string(admin.Requeue) || do == string(admin.Compensate) || do == string(admin.Reschedule)
}

// Sums are a group's, by currency.
func (w words) Sums(g admin.Group) []string { return riskOf([]admin.Group{g}, false).Sums }

// Seen names an entry as a page shows it.
func (w words) Seen(l admin.Line) string { return seenText(l.Entry.ID, l.Entry.Version, l.Case) }

// EntryLink leads to an entry.
func (rq *request) EntryLink(id compensator.EntryID) string {
	return rq.s.opts.Base + "entries/" + id.String()
}

// CasesOf leads to the cases of a failure, on one page if that has room.
func (rq *request) CasesOf(g admin.Group) (string, error) {
	rows := ""
	if g.N > pageSize {
		rows = strconv.Itoa(manyRows)
	}
	return rq.Link("cases/due", "failure", g.Fingerprint, "type", g.Type, "rows", rows)
}

// A part of a page is given the request beside what it shows.
type (
	groupPart struct {
		R *request
		G admin.Group
	}
	riskPart struct {
		R    *request
		Risk risk
	}
	recordPart struct {
		R *request
		X admin.AuditLogRecord
	}
	pausedPart struct {
		R      *request
		Paused admin.Paused
	}
	brokenPart struct {
		R      *request
		Broken admin.Broken
	}
)

// Did is the word for what was done: a case that is assigned to nobody was given back.
func (p recordPart) Did() string {
	if p.X.Action == doAssign && p.X.Subject == "" {
		return doGiveBack
	}
	return p.X.Action
}

func (rq *request) Group(g admin.Group) groupPart            { return groupPart{rq, g} }
func (rq *request) Risk(r risk) riskPart                     { return riskPart{rq, r} }
func (rq *request) Record(x admin.AuditLogRecord) recordPart { return recordPart{rq, x} }
func (rq *request) Pausing(p admin.Paused) pausedPart        { return pausedPart{rq, p} }
func (rq *request) Broken(b admin.Broken) brokenPart         { return brokenPart{rq, b} }
