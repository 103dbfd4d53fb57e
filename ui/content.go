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

type revealed struct {
	shownText            // the content
	Result    *shownText // nil: the handler returned no result
	UserName  string
	Headers   []header
}

type shownText struct {
	Text   string // the text; values that TypeView does not show are masked
	Masked int    // number of masked values
	Opaque bool   // whether nothing is shown: no TypeView shows the text, and it is too long or not JSON
}

type header struct{ Name, Value string }

// traceHeaders are shown in full, because they hold only the ids of a trace.
var traceHeaders = []string{"traceparent", "tracestate"}

const maskText = "•••"

func newRevealed(e compensator.Entry, view TypeView) revealed {
	content := revealed{UserName: e.UserName}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		h := header{name, maskText}
		if slices.Contains(traceHeaders, strings.ToLower(name)) || slices.Contains(view.Show, ".") {
			h.Value = e.Headers[name]
		}
		content.Headers = append(content.Headers, h)
	}
	content.shownText = showText(e.Content, view.Show)
	if e.Result != nil {
		result := showText(e.Result, view.ShowResult)
		content.Result = &result
	}
	return content
}

// showText masks the value of every field that is not in shownFields.
func showText(content []byte, shownFields []string) shownText {
	var text bytes.Buffer
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	p := printer{buffer: &text, shownFields: shownFields}
	showsAll := slices.Contains(shownFields, ".")
	switch {
	case json.Valid(content) && p.printValue(decoder, "", showsAll) == nil: // json.Valid limits the depth of the content.
		return shownText{Text: text.String(), Masked: p.maskedCount}
	case showsAll && utf8.Valid(content):
		return shownText{Text: string(content)}
	}
	return shownText{Opaque: true}
}

// printer prints JSON from its bytes, so that numbers keep their digits. It masks values that may not be shown.
type printer struct {
	buffer      *bytes.Buffer
	shownFields []string
	maskedCount int
	depth       int
}

// The size of indented text grows with the product of depth and width.
const (
	maxDepth       = 32      // maximum number of levels that are indented
	maxShownLength = 2 << 20 // maximum size of the printed text in bytes
)

var errTooLong = errors.New("too long to be shown")

func (p *printer) breakLine() {
	p.buffer.WriteByte('\n')
	p.buffer.WriteString(strings.Repeat("  ", min(p.depth, maxDepth)))
}

func (p *printer) printValue(d *json.Decoder, path string, isShown bool) error {
	if p.buffer.Len() > maxShownLength {
		return errTooLong
	}
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return p.printInside(d, t, path, isShown)
	case json.Number:
		p.printScalar(t.String(), isShown)
	default:
		text, err := quoteJSON(t)
		if err != nil {
			return err
		}
		p.printScalar(text, isShown)
	}
	return nil
}

func (p *printer) printScalar(text string, isShown bool) {
	if !isShown {
		text = maskText
		p.maskedCount++
	}
	p.buffer.WriteString(text)
}

func (p *printer) printInside(d *json.Decoder, bracket json.Delim, path string, isShown bool) error {
	p.buffer.WriteString(bracket.String())
	p.depth++
	n := 0
	for ; d.More(); n++ {
		if n > 0 {
			p.buffer.WriteByte(',')
		}
		p.breakLine()
		at, visible := path, isShown
		if bracket == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			text, err := quoteJSON(name)
			if err != nil {
				return err
			}
			p.buffer.WriteString(text + ": ")
			at = strings.TrimPrefix(path+"."+name, ".")
			visible = isShown || slices.Contains(p.shownFields, at)
		}
		if err := p.printValue(d, at, visible); err != nil {
			return err
		}
	}
	p.depth--
	if n > 0 {
		p.breakLine()
	}
	closing, err := d.Token()
	if err == nil {
		p.buffer.WriteString(closing.(json.Delim).String())
	}
	return err
}

// quoteJSON leaves escaping of HTML to the template.
func quoteJSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}
