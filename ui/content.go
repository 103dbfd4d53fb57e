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

// revealed is what the page shows of an entry after a reveal.
type revealed struct {
	shownText            // the content
	Result    *shownText // nil: the handler returned no result
	UserName  string
	Headers   []header
}

// shownText is the part of a content or a result that the page shows.
type shownText struct {
	Text   string // the text; values that TypeView does not show are masked
	Masked int    // number of masked values
	Opaque bool   // whether nothing is shown: no TypeView shows the text, and it is too long or not JSON
}

type header struct{ Name, Value string }

// traceHeaders are shown in full, because they hold only the ids of a trace.
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
	shown.shownText = showText(e.Content, view.Show)
	if e.Result != nil {
		result := showText(e.Result, view.ShowResult)
		shown.Result = &result
	}
	return shown
}

// showText prints a content or a result. It masks every value that show does not name.
func showText(content []byte, show []string) shownText {
	var text bytes.Buffer
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	p := printer{out: &text, show: show}
	all := slices.Contains(show, ".")
	switch {
	case json.Valid(content) && p.value(decoder, "", all) == nil: // json.Valid limits the depth of the content.
		return shownText{Text: text.String(), Masked: p.masked}
	case all && utf8.Valid(content):
		return shownText{Text: string(content)}
	}
	return shownText{Opaque: true}
}

// printer prints JSON from its bytes, so that numbers keep their digits. It masks values that may not be shown.
type printer struct {
	out    *bytes.Buffer
	show   []string
	masked int
	depth  int
}

// These constants limit the printed text. The content decides its depth and its width, and the size of indented text
// grows with their product.
const (
	deepest      = 32      // maximum number of levels that are indented
	longestShown = 2 << 20 // maximum size of the printed text in bytes
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

// The method inside prints the rest of an object or array after its opening bracket.
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

// quoted returns v as JSON without HTML escapes. The template escapes HTML.
func quoted(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}
