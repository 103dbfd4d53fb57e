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

// schema is the version of the output of -o json and jsonl. New fields do not change it.
const schema = 1

var formats = []string{"table", "json", "jsonl", "csv", "ids"}

// format is the value of --output.
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

// check returns an error if the format is ids and the command has no ids.
func (f format) check(use string) error {
	if name, _, _ := strings.Cut(use, " "); f == "ids" && name != "list" {
		return usage("-o ids works only with list and cases list")
	}
	return nil
}

// column is a column of the output.
type column struct {
	name string // name in JSON and CSV
	head string // heading in tables; empty: tables leave out the column
}

// listing is the output of a command. Each value in a row is a text, digits, a bool, an int, a time, a duration, a map
// of texts, or another listing. An amount takes two columns. CSV leaves out inner listings. JSON leaves out nil and
// empty values.
type listing struct {
	kind    string
	columns []column
	rows    [][]any
	inner   []string // names of the columns that hold listings; needed when there are no rows
	ids     []string // ids that -o ids prints
	more    bool     // whether further rows exist
	single  bool     // whether the listing is a single row, which is printed with one line per field
}

// digits is a number that JSON shows as a string, because many JSON decoders round large numbers.
type digits string

// print writes a listing in the format of --output. If further rows exist and the format cannot show that, print says
// so on standard error.
func (p *program) print(l listing) error {
	if l.more && p.flags.format != "table" && p.flags.format != "json" {
		p.say("there are more than %d: raise --limit", len(l.rows))
	}
	var b bytes.Buffer
	var err error
	switch p.flags.format {
	case "json":
		err = l.json(&b)
	case "jsonl":
		for _, row := range l.rows {
			err = cmp.Or(err, writeJSON(&b, object(l.kind, l.columns, row)))
		}
	case "csv":
		err = l.csv(&b)
	case "ids":
		for _, id := range l.ids {
			fmt.Fprintln(&b, id)
		}
	default:
		if l.single {
			l.lines(&b, p.colour)
		} else {
			l.table(&b, p.colour)
		}
	}
	if err != nil {
		return err
	}
	_, err = p.out.Write(b.Bytes())
	return err
}

// json writes one document.
func (l listing) json(to io.Writer) error {
	if l.single && len(l.rows) == 1 {
		return writeJSON(to, object(l.kind, l.columns, l.rows[0]))
	}
	doc := fields{{"schema", schema}, {"kind", l.kind + " list"}, {"items", l.objects()}}
	if l.more {
		doc = append(doc, field{"more", true})
	}
	return writeJSON(to, doc)
}

// objects returns each row as an object.
func (l listing) objects() []fields {
	all := make([]fields, len(l.rows))
	for i, row := range l.rows {
		all[i] = object(l.kind, l.columns, row)
	}
	return all
}

// These types are a JSON object with ordered fields.
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

// object returns a row as a JSON object.
func object(kind string, columns []column, row []any) fields {
	f := fields{{"schema", schema}, {"kind", kind}}
	for i, c := range columns {
		if v := forJSON(row[i]); v != nil {
			f = append(f, field{c.name, v})
		}
	}
	return f
}

func forJSON(value any) any {
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
		_, err = to.Write(append(inASCII(text), '\n'))
	}
	return err
}

// csv writes all columns except inner listings.
func (l listing) csv(to io.Writer) error {
	var b strings.Builder
	var head []string
	for _, c := range l.columns {
		if !slices.Contains(l.inner, c.name) {
			head = append(head, c.name)
		}
	}
	b.WriteString(strings.Join(head, ",") + "\n")
	for _, row := range l.rows {
		var cells []string
		for i, value := range row {
			if !slices.Contains(l.inner, l.columns[i].name) {
				cells = append(cells, forCSV(value))
			}
		}
		b.WriteString(strings.Join(cells, ",") + "\n")
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func forCSV(value any) string {
	switch v := value.(type) {
	case digits, bool, int, int64: // Print numbers unchanged, because a negative number is no formula.
		return fmt.Sprint(v)
	case map[string]string:
		return admin.Cell(forTable(v))
	case time.Time, time.Duration:
		if v := forJSON(v); v != nil {
			return fmt.Sprint(v)
		}
		return ""
	case nil:
		return ""
	}
	return admin.Cell(shown(fmt.Sprint(value))) // The value is of another string type.
}

// forTable returns a value as a table shows it.
func forTable(value any) string {
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
		return shown(string(text))
	case bool:
		if !v {
			return ""
		}
		return "yes"
	case nil:
		return ""
	}
	return shown(fmt.Sprint(value)) // The value is of another string type.
}

// These are the maximum widths of a table's columns, and of its last column. Use -o json to see the full text.
const (
	columnMost = 60
	lastMost   = 160
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
			most := columnMost
			if at == len(shownColumns)-1 {
				most = lastMost
			}
			line[at] = cut(forTable(row[i]), most)
		}
		lines = append(lines, line)
	}
	align(to, lines, colour)
	if l.more {
		fmt.Fprintln(to, "… and more: raise --limit")
	}
}

func cut(text string, most int) string {
	if width(text) <= most {
		return text
	}
	columns := 0
	for i, r := range text {
		if columns += width(string(r)); columns >= most {
			return text[:i] + "…"
		}
	}
	return text
}

func align(to io.Writer, lines [][]string, colour bool) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], width(cell))
		}
	}
	for n, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			padded := cell + strings.Repeat(" ", widths[i]-width(cell)+2)
			if colour && n > 0 {
				padded = coloured(padded, cell)
			}
			b.WriteString(padded)
		}
		fmt.Fprintln(to, strings.TrimRight(b.String(), " "))
	}
}

// lines writes a listing of one row with one line per field. Inner listings follow below.
func (l listing) lines(to io.Writer, colour bool) {
	var below []listing
	var lines [][]string
	for i, c := range l.columns {
		if of, is := l.rows[0][i].(listing); is {
			below = append(below, of)
			continue
		}
		if text := forTable(l.rows[0][i]); text != "" {
			lines = append(lines, []string{c.name, text})
		}
	}
	align(to, append([][]string{{l.kind, ""}}, lines...), colour)
	for _, of := range below {
		if len(of.rows) > 0 {
			fmt.Fprintf(to, "\n%s\n", of.kind)
			of.table(to, colour)
		}
	}
}

// money returns the values of an amount's two columns.
func money(a compensator.Amount) (minor, currency any) {
	if !a.Known() {
		return nil, nil
	}
	return digits(strconv.FormatInt(a.Minor, 10)), a.Currency
}

// worth formats an amount for people: "129.00 CNY".
func worth(a compensator.Amount) string {
	if !a.Known() {
		return ""
	}
	return inUnits(a.Minor, a.Currency)
}

func inUnits(minor int64, currency string) string {
	places := admin.Decimals(currency)
	sign, text := "", strconv.FormatInt(minor, 10)
	if minor < 0 {
		sign, text = "-", text[1:]
	}
	if short := places + 1 - len(text); short > 0 {
		text = strings.Repeat("0", short) + text
	}
	if places > 0 {
		text = text[:len(text)-places] + "." + text[len(text)-places:]
	}
	return sign + text + " " + currency
}
