package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
)

// revealed is what of a content is shown.
type revealed struct {
	Text     string // masked where TypeView does not show it
	Masked   int    // values that are not shown
	Opaque   bool   // it is no JSON, or too long, and no TypeView shows it
	UserName string
	Headers  []header
}

type header struct{ Name, Value string }

// traceHeaders are shown whole: they lead to the trace, and say nothing else.
var traceHeaders = []string{"traceparent", "tracestate"}

const masked = "•••"

func reveal(e compensator.Entry, view TypeView) revealed {
	shown := revealed{UserName: e.UserName}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		h := header{name, masked}
		if slices.Contains(traceHeaders, strings.ToLower(name)) || slices.Contains(view.Show, ".") {
			h.Value = e.Headers[name]
		}
		shown.Headers = append(shown.Headers, h)
	}
	var text bytes.Buffer
	decoder := json.NewDecoder(bytes.NewReader(e.Content))
	decoder.UseNumber()
	p := printer{out: &text, show: view.Show}
	all := slices.Contains(view.Show, ".")
	switch {
	case json.Valid(e.Content) && p.value(decoder, "", all) == nil: // Valid bounds how deep it is
		shown.Text, shown.Masked = text.String(), p.masked
	case all && utf8.Valid(e.Content):
		shown.Text = string(e.Content)
	default:
		shown.Opaque = true
	}
	return shown
}

// printer writes JSON as its bytes say, numbers digit by digit, values that are not shown masked.
type printer struct {
	out    *bytes.Buffer
	show   []string
	masked int
	depth  int
}

// What is written grows with how deep it is, and how wide: both are somebody else's.
const (
	deepest      = 32      // what is deeper is not indented any more
	longestShown = 2 << 20 // bytes
)

var errTooLong = errors.New("too long to be shown")

func (p *printer) line() {
	p.out.WriteByte('\n')
	p.out.WriteString(strings.Repeat("  ", min(p.depth, deepest)))
}

func (p *printer) value(d *json.Decoder, path string, shown bool) error {
	if p.out.Len() > longestShown {
		return errTooLong
	}
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return p.inside(d, t, path, shown)
	case json.Number:
		p.scalar(t.String(), shown)
	default:
		text, err := quoted(t)
		if err != nil {
			return err
		}
		p.scalar(text, shown)
	}
	return nil
}

func (p *printer) scalar(text string, shown bool) {
	if !shown {
		text = masked
		p.masked++
	}
	p.out.WriteString(text)
}

// inside prints an object or an array, which has begun.
func (p *printer) inside(d *json.Decoder, open json.Delim, path string, shown bool) error {
	p.out.WriteString(open.String())
	p.depth++
	n := 0
	for ; d.More(); n++ {
		if n > 0 {
			p.out.WriteByte(',')
		}
		p.line()
		at, visible := path, shown
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			text, err := quoted(name)
			if err != nil {
				return err
			}
			p.out.WriteString(text + ": ")
			at = strings.TrimPrefix(path+"."+name, ".")
			visible = shown || slices.Contains(p.show, at)
		}
		if err := p.value(d, at, visible); err != nil {
			return err
		}
	}
	p.depth--
	if n > 0 {
		p.line()
	}
	end, err := d.Token()
	if err == nil {
		p.out.WriteString(end.(json.Delim).String())
	}
	return err
}

// quoted is JSON without the escapes that HTML does not need here.
func quoted(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}
