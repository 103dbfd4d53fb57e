package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/compensator-go/compensator/processlog"
)

// WriteJSONLines writes one JSON object per Line. It writes ids, versions and amounts as strings.
func WriteJSONLines(to io.Writer, lines []Line) error {
	encoder := json.NewEncoder(to)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

var csvHead = []string{"id", "version", "business_type", "state", "process_count", "next_at", "ended_by", "idempotent_id", "batch_id", "business_id", "business_ext_id",
	"user_id", "amount_minor", "currency", "case", "case_owner", "case_due_at", "last_error", "created_at", "updated_at"}

// WriteCSV writes a header row and one row per Line, for use in a spreadsheet. The file is UTF-8 with a byte order
// mark. Times are RFC 3339 in UTC. Amounts are in the currency's smallest unit. Texts are encoded by Cell.
func WriteCSV(to io.Writer, lines []Line) error {
	writer := bufio.NewWriter(to)       // bufio.Writer keeps its first error, and Flush returns it.
	_, _ = writer.WriteString("\ufeff") // Without the byte order mark some spreadsheets assume a local encoding.
	_, _ = writer.WriteString(strings.Join(csvHead, ",") + "\n")
	for _, line := range lines {
		_, _ = writer.WriteString(strings.Join(csvRow(line), ",") + "\n")
	}
	return writer.Flush()
}

func csvRow(line Line) []string {
	e, amountText, c := line.Entry, "", Case{}
	if line.Amount.Known() {
		amountText = strconv.FormatInt(line.Amount.Minor, 10)
	}
	kind := ""
	if line.Case != nil && line.Case.ClosedAt.IsZero() {
		c = *line.Case
		kind = c.Kind.String()
	}
	return []string{e.ID.String(), strconv.FormatUint(e.Version, 10), Cell(e.BusinessType), e.State.String(), strconv.Itoa(e.ProcessCount), csvTime(e.NextAt), string(e.EndedBy),
		Cell(string(e.IdempotencyKey)), Cell(e.BatchID), Cell(e.BusinessID), Cell(e.BusinessExtID), Cell(e.UserID), amountText, Cell(line.Amount.Currency), kind, Cell(c.Owner), csvTime(c.DueAt),
		Cell(e.LastError), csvTime(e.CreatedAt), csvTime(e.UpdatedAt)}
}

func csvTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Cell returns a text as a CSV cell that no spreadsheet reads as a formula or as two cells. If a text would be a
// formula, Cell puts a ' in front. Invisible characters become their numbers, because a terminal obeys some of them.
func Cell(text string) string {
	text = showInvisible(text)
	printable := strings.TrimLeftFunc(text, func(r rune) bool { return r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.IsSpace(r) })
	if firstRune, _ := utf8.DecodeRuneInString(printable); printable != "" && strings.ContainsRune("=+-@＝＋－＠", firstRune) {
		text = "'" + text
	}
	if strings.ContainsAny(text, ",;\t\"\r\n") || strings.TrimSpace(text) != text {
		return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	return text
}

func showInvisible(text string) string {
	if !strings.ContainsFunc(text, processlog.IsInvisible) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if processlog.IsInvisible(r) && r != '\r' {
			fmt.Fprintf(&b, "[U+%04X]", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
