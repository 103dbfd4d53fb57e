package ui

import (
	"bytes"
	"fmt"
	"html/template"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

// formatMoney never uses a float.
func formatMoney(amount *big.Int, currency string) string {
	decimals := admin.Decimals(currency)
	digits := new(big.Int).Abs(amount).String()
	if len(digits) <= decimals {
		digits = strings.Repeat("0", decimals+1-len(digits)) + digits
	}
	whole, part := digits[:len(digits)-decimals], digits[len(digits)-decimals:]
	if part != "" {
		part = "." + part
	}
	sign := ""
	if amount.Sign() < 0 {
		sign = "−"
	}
	return currency + "\u00a0" + sign + groupDigits(whole) + part
}

// Amount formats an amount. It returns "" if the amount is unknown.
func (w words) Amount(a compensator.Amount) string {
	if !a.Known() {
		return ""
	}
	return formatMoney(big.NewInt(a.Minor), a.Currency)
}

// Time returns a time in the zone of the page. The tooltip shows it in UTC.
func (w words) Time(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	utc := t.UTC().Format("2006-01-02T15:04:05.000Z")
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%[1]s">%s</time>`, utc, w.formatTime(t, "2006-01-02 15:04:05")))
}

// Span formats a duration in its two largest units.
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

// Took formats a duration that may be shorter than a second.
func (w words) Took(d time.Duration) (string, error) {
	switch {
	case d < time.Second:
		return w.T("span.ms", d.Milliseconds())
	case d < time.Minute:
		return w.T("span.s", strconv.FormatFloat(d.Seconds(), 'f', 1, 64))
	}
	return w.Span(d)
}

// VerdictIcon returns the icon for the verdict on a failed attempt.
func (w words) VerdictIcon(v admin.AttemptVerdict) string {
	switch v {
	case processlog.AttemptFailed:
		return "retrying"
	case processlog.AttemptWaits, processlog.AttemptInterrupted:
		return "pending"
	}
	return "dead"
}

// twoUnits uses the text keyOne, without a small unit, if smallUnit is 0.
func (w words) twoUnits(keyOne string, largeUnit, smallUnit int, key string) (string, error) {
	if smallUnit == 0 {
		return w.T(keyOne, largeUnit)
	}
	return w.T(key, largeUnit, smallUnit)
}

// Number formats a number with commas between thousands.
func (w words) Number(n int) string { return groupDigits(fmt.Sprint(n)) }

// Entries returns a number of entries, with commas between thousands.
func (w words) Entries(n int) (string, error) { return w.T("n_entries", w.Number(n)) }

func groupDigits(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// showInvisible replaces invisible characters, and characters that change the direction of text, by their numbers. It
// changes only text between tags, and leaves a textarea as it is, because the browser sends that text back.
func showInvisible(html []byte) []byte {
	if !bytes.ContainsFunc(html, processlog.IsInvisible) {
		return html
	}
	var buffer bytes.Buffer
	isInTag, isInArea := false, false
	for at, r := range string(html) {
		switch {
		case r == '<':
			isInTag, isInArea = true, bytes.HasPrefix(html[at:], []byte("<textarea"))
		case r == '>':
			isInTag = false
		}
		if !isInTag && !isInArea && processlog.IsInvisible(r) && !bytes.HasPrefix(html[at:], []byte("\r\n")) {
			fmt.Fprintf(&buffer, "[U+%04X]", r)
			continue
		}
		buffer.WriteRune(r)
	}
	return buffer.Bytes()
}

// Badge returns a word with an icon and a colour.
func (w words) Badge(kind, text string) template.HTML {
	kind, _, _ = strings.Cut(kind, " ") // The first word of a state is its CSS class.
	return template.HTML(`<span class="badge k-` + kind + `"><svg class="i" aria-hidden="true"><use href="#i-` + kind + `"/></svg>` + template.HTMLEscapeString(text) + `</span>`)
}

// State returns the badge of an entry's state.
func (w words) State(state compensator.State) template.HTML {
	return w.Badge(state.String(), w.Word("state", state))
}

// ExplainsEnd reports whether EndedBy says something that the state does not say.
func (w words) ExplainsEnd(by compensator.EndedBy) bool {
	return by != compensator.EndedByHandler && by != compensator.EndedByPerson && by != compensator.EndedByCancel
}

// Due returns the time by which a person should look at a case.
func (w words) Due(c *admin.Case) (template.HTML, error) {
	remaining := time.Until(c.DueAt)
	span, err := w.Span(remaining)
	if err != nil {
		return "", err
	}
	key, kind := "case.in", "pending"
	if remaining < 0 {
		key, kind = "case.late", "unknown"
	}
	text, err := w.T(key, span)
	return w.Badge(kind, text) + ` <span class="sub">` + w.Time(c.DueAt) + `</span>`, err
}

// Unsure reports whether c is an open case of an entry whose outcome is unknown.
func (w words) Unsure(c *admin.Case) bool { return isUncertain(c) }

// UnsureGroup reports whether the outcome of the group's example is unknown.
func (w words) UnsureGroup(g admin.Group) bool { return g.Kind == admin.CaseUnknown }

// OwnedByOther reports whether another person has the case.
func (rq *request) OwnedByOther(c *admin.Case) bool {
	return isOpen(c) && c.Owner != "" && c.Owner != rq.Actor.ID
}

// Key returns the idempotency key that the handler sends with its calls.
func (w words) Key(e compensator.Entry) string { return e.CallKey() }

// Kinds returns the kinds of cases.
func (w words) Kinds() []string {
	return []string{admin.CaseDead.String(), admin.CaseUnknown.String()}
}

// AnswerIcon returns the icon of an answer.
func (w words) AnswerIcon(answer string) string {
	switch answer {
	case "done":
		return "succeeded"
	case "changed", "busy", "state", "finished":
		return "pending"
	}
	return "cancelled"
}

// Help returns the key of the text that explains an action.
func (w words) Help(do string) string { return "help." + do }

// Delays reports whether an action takes a delay.
func (w words) Delays(do string) bool {
	return do == string(admin.Requeue) || do == string(admin.Compensate) || do == string(admin.Reschedule)
}

// Sums returns the sums of a group as texts, one for each currency.
func (w words) Sums(g admin.Group) []string { return newRisk([]admin.Group{g}, false).Sums }

// Seen returns the id and the versions of an entry as a text. A form sends this text back, so that the action fails if
// the entry has changed; see formatSeen.
func (w words) Seen(l admin.Line) string { return formatSeen(l.Entry.ID, l.Entry.Version, l.Case) }

// EntryLink returns the address of an entry.
func (rq *request) EntryLink(id compensator.EntryID) string {
	return rq.s.base + "entries/" + id.String()
}

// CasesOf returns the address of the cases of a failure.
func (rq *request) CasesOf(g admin.Group) (string, error) {
	rows := ""
	if g.N > pageSize {
		rows = strconv.Itoa(longPage)
	}
	return rq.Link("cases/due", "failure", g.Fingerprint, "type", g.Type, "rows", rows)
}

// These types hold the data of partial templates: the request, and the values that the partial template shows.
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
	eventPart struct {
		R   *request
		X   admin.Event
		Max int // maximum number of attempts; 0: no maximum
	}
	pausedPart struct {
		R      *request
		Paused admin.Paused
	}
	trendPart struct {
		R     *request
		Trend trend
	}
	timePart struct {
		R     *request
		Field timeField
	}
	limitedPart struct {
		R       *request
		Limited admin.Limited
	}
	brokenPart struct {
		R      *request
		Broken admin.Broken
	}
)

// Did returns the action of the record, as a key for the word that the page shows.
func (p recordPart) Did() string {
	if p.X.Action == doAssign && p.X.Subject == "" {
		return doGiveBack
	}
	return p.X.Action
}

// Number returns how many entries the batches of an action have changed. For other records it returns "".
func (p recordPart) Number() (string, error) {
	if p.X.Bulk == nil || p.X.Action == doStop {
		return "", nil
	}
	return p.R.Entries(p.X.N)
}

// Subject returns what the record says about its subject, in the person's language.
func (p recordPart) Subject() (template.HTML, error) {
	subject := p.X.Subject
	if subject == "" || p.X.Bulk != nil || subject == p.X.Actor {
		return "", nil
	}
	if p.X.Action == doPause || p.X.Action == doChangePause {
		if length, err := time.ParseDuration(strings.TrimPrefix(subject, "for ")); err == nil {
			until, err := p.R.T("paused.until")
			return template.HTML(template.HTMLEscapeString(until)) + " " + p.R.Time(p.X.At.Add(length)), err
		}
		open, err := p.R.T("pause.open")
		return template.HTML(template.HTMLEscapeString(open)), err
	}
	text, err := p.R.SubjectText(subject)
	return "<bdi>" + template.HTML(template.HTMLEscapeString(text)) + "</bdi>", err
}

func (rq *request) Group(g admin.Group) groupPart            { return groupPart{rq, g} }
func (rq *request) Risk(r risk) riskPart                     { return riskPart{rq, r} }
func (rq *request) Trend(t trend) trendPart                  { return trendPart{rq, t} }
func (rq *request) Record(x admin.AuditLogRecord) recordPart { return recordPart{rq, x} }
func (rq *request) Event(x admin.Event, e compensator.Entry) eventPart {
	return eventPart{rq, x, e.MaxAttempts}
}

// IsRepeat reports whether the event is the requeue of an entry that had succeeded.
func (p eventPart) IsRepeat() bool {
	a := p.X.Action
	return a != nil && a.Action == string(admin.Requeue) && a.Before != nil && a.Before.State == compensator.Succeeded
}

// IsSuccess reports whether the event is the success of the entry.
func (p eventPart) IsSuccess() bool {
	return p.X.Kind == admin.EventEnded && p.X.State == compensator.Succeeded && p.X.EndedBy == compensator.EndedByHandler
}

func (rq *request) Pausing(p admin.Paused) pausedPart   { return pausedPart{rq, p} }
func (rq *request) Broken(b admin.Broken) brokenPart    { return brokenPart{rq, b} }
func (rq *request) TimeField(f timeField) timePart      { return timePart{rq, f} }
func (rq *request) Limited(l admin.Limited) limitedPart { return limitedPart{rq, l} }
