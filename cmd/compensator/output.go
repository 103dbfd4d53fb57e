package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// New fields do not change the schema version.
const schema = 1

var formats = []string{"table", "json", "jsonl", "csv", "ids"}

type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }
func (f *format) Set(text string) error {
	if !slices.Contains(formats, text) {
		return fmt.Errorf("want %s", strings.Join(formats, ", "))
	}
	*f = format(text)
	return nil
}

func (f format) validate(use string) error {
	if name, _, _ := strings.Cut(use, " "); f == "ids" && name != "list" {
		return newUsageError("-o ids works only with list and cases list")
	}
	return nil
}

type column struct {
	name string // name in JSON and CSV
	head string // heading in tables; empty: tables leave out the column
}

// A value in a row of a listing is a text, digits, a bool, an int, a time, a duration, a map of texts, or another
// listing. An amount takes two columns. CSV leaves out inner listings. JSON leaves out nil and empty values.
type listing struct {
	kind         string
	columns      []column
	rows         [][]any
	innerColumns []string // names of the columns that hold listings; needed when there are no rows
	ids          []string // ids that -o ids prints
	hasMore      bool     // whether further rows exist
	isSingle     bool     // whether the listing is a single row, which is printed with one line per field
}

// digits is a number that JSON shows as a string, because decoders round large numbers.
type digits string

// print writes a listing in the chosen format. Only the formats table and json can show that further rows exist. For
// the other formats, print says so on standard error.
func (p *program) print(l listing) error {
	if l.hasMore && p.flags.format != "table" && p.flags.format != "json" {
		p.printf("there are more than %d: raise --limit", len(l.rows))
	}
	var b bytes.Buffer
	var err error
	switch p.flags.format {
	case "json":
		err = l.json(&b)
	case "jsonl":
		for _, row := range l.rows {
			err = cmp.Or(err, writeJSON(&b, newObject(l.kind, l.columns, row)))
		}
	case "csv":
		err = l.csv(&b)
	case "ids":
		for _, id := range l.ids {
			fmt.Fprintln(&b, id)
		}
	default:
		if l.isSingle {
			l.lines(&b, p.colour)
		} else {
			l.table(&b, p.colour)
		}
	}
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(b.Bytes())
	return err
}

func (l listing) json(to io.Writer) error {
	if l.isSingle && len(l.rows) == 1 {
		return writeJSON(to, newObject(l.kind, l.columns, l.rows[0]))
	}
	doc := fields{{"schema", schema}, {"kind", l.kind + " list"}, {"items", l.objects()}}
	if l.hasMore {
		doc = append(doc, field{"more", true})
	}
	return writeJSON(to, doc)
}

func (l listing) objects() []fields {
	objects := make([]fields, len(l.rows))
	for i, row := range l.rows {
		objects[i] = newObject(l.kind, l.columns, row)
	}
	return objects
}

type (
	field struct {
		name  string
		value any
	}
	fields []field
)

func (f fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, field := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", field.name)
		value, err := json.Marshal(field.value)
		if err != nil {
			return nil, err
		}
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func newObject(kind string, columns []column, row []any) fields {
	f := fields{{"schema", schema}, {"kind", kind}}
	for i, c := range columns {
		if v := formatJSON(row[i]); v != nil {
			f = append(f, field{c.name, v})
		}
	}
	return f
}

func formatJSON(value any) any {
	switch v := value.(type) {
	case string:
		if v == "" {
			return nil
		}
	case digits:
		if v == "" {
			return nil
		}
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return v.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	case time.Duration:
		return v.Seconds()
	case map[string]string:
		if len(v) == 0 {
			return nil
		}
	case listing:
		if len(v.rows) == 0 {
			return nil
		}
		return v.objects()
	}
	return value
}

func writeJSON(to io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = to.Write(append(escapeNonASCII(text), '\n'))
	}
	return err
}

func (l listing) csv(to io.Writer) error {
	var b strings.Builder
	var head []string
	for _, c := range l.columns {
		if !slices.Contains(l.innerColumns, c.name) {
			head = append(head, c.name)
		}
	}
	b.WriteString(strings.Join(head, ",") + "\n")
	for _, row := range l.rows {
		var cells []string
		for i, value := range row {
			if !slices.Contains(l.innerColumns, l.columns[i].name) {
				cells = append(cells, formatCSV(value))
			}
		}
		b.WriteString(strings.Join(cells, ",") + "\n")
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func formatCSV(value any) string {
	switch v := value.(type) {
	case digits, bool, int, int64: // Print numbers unchanged, because a negative number is no formula.
		return fmt.Sprint(v)
	case map[string]string:
		return admin.Cell(formatTable(v))
	case time.Time, time.Duration:
		if v := formatJSON(v); v != nil {
			return fmt.Sprint(v)
		}
		return ""
	case nil:
		return ""
	}
	return admin.Cell(printable(fmt.Sprint(value))) // The value is of another string type.
}

func formatTable(value any) string {
	switch v := value.(type) {
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format("2006-01-02 15:04:05Z")
	case time.Duration:
		if v == 0 {
			return ""
		}
		return v.Round(time.Second).String()
	case map[string]string:
		if len(v) == 0 {
			return ""
		}
		text, _ := json.Marshal(v) // json.Marshal cannot fail for a map of strings.
		return printable(string(text))
	case bool:
		if !v {
			return ""
		}
		return "yes"
	case nil:
		return ""
	}
	return printable(fmt.Sprint(value)) // The value is of another string type.
}

// These are the maximum widths of a table's columns, and of its last column.
const (
	maxColumnWidth     = 60
	maxLastColumnWidth = 160
)

// table writes the columns that have a heading, aligned.
func (l listing) table(to io.Writer, colour bool) {
	var shownColumns []int
	for i, c := range l.columns {
		if c.head != "" {
			shownColumns = append(shownColumns, i)
		}
	}
	lines := make([][]string, 0, len(l.rows)+1)
	head := make([]string, len(shownColumns))
	for at, i := range shownColumns {
		head[at] = l.columns[i].head
	}
	lines = append(lines, head)
	for _, row := range l.rows {
		line := make([]string, len(shownColumns))
		for at, i := range shownColumns {
			maxWidth := maxColumnWidth
			if at == len(shownColumns)-1 {
				maxWidth = maxLastColumnWidth
			}
			line[at] = shorten(formatTable(row[i]), maxWidth)
		}
		lines = append(lines, line)
	}
	alignColumns(to, lines, colour)
	if l.hasMore {
		fmt.Fprintln(to, "… and more: raise --limit")
	}
}

func shorten(text string, maxWidth int) string {
	if displayWidth(text) <= maxWidth {
		return text
	}
	columns := 0
	for i, r := range text {
		if columns += displayWidth(string(r)); columns >= maxWidth {
			return text[:i] + "…"
		}
	}
	return text
}

func alignColumns(to io.Writer, lines [][]string, colour bool) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], displayWidth(cell))
		}
	}
	for n, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			padded := cell + strings.Repeat(" ", widths[i]-displayWidth(cell)+2)
			if colour && n > 0 {
				padded = addColour(padded, cell)
			}
			b.WriteString(padded)
		}
		fmt.Fprintln(to, strings.TrimRight(b.String(), " "))
	}
}

func (l listing) lines(to io.Writer, colour bool) {
	var inner []listing
	var lines [][]string
	for i, c := range l.columns {
		if of, ok := l.rows[0][i].(listing); ok {
			inner = append(inner, of)
			continue
		}
		if text := formatTable(l.rows[0][i]); text != "" {
			lines = append(lines, []string{c.name, text})
		}
	}
	alignColumns(to, append([][]string{{l.kind, ""}}, lines...), colour)
	for _, of := range inner {
		if len(of.rows) > 0 {
			fmt.Fprintf(to, "\n%s\n", of.kind)
			of.table(to, colour)
		}
	}
}

func amountFields(a compensator.Amount) (amount, currency any) {
	if !a.Known() {
		return nil, nil
	}
	return digits(strconv.FormatInt(a.Minor, 10)), a.Currency
}

func amountText(a compensator.Amount) string {
	if !a.Known() {
		return ""
	}
	return formatUnits(a.Minor, a.Currency)
}

func formatUnits(amount int64, currency string) string {
	decimals := admin.Decimals(currency)
	sign, text := "", strconv.FormatInt(amount, 10)
	if amount < 0 {
		sign, text = "-", text[1:]
	}
	if missing := decimals + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	if decimals > 0 {
		text = text[:len(text)-decimals] + "." + text[len(text)-decimals:]
	}
	return sign + text + " " + currency
}
