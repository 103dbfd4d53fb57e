package ui

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// Sentence returns a reason as a sentence in the person's language.
func (rq *request) Sentence(r admin.Reason) (template.HTML, error) {
	text, isFound := rq.texts["explain."+r.Code]
	if longer, hasLonger := rq.texts["explain."+r.Code+"+"]; hasLonger && r.Text != "" {
		text = longer
	}
	if !isFound {
		// A later version of package admin may have a code for which these pages have no text. Then show the text of
		// package admin.
		return template.HTML(template.HTMLEscapeString(r.String())), nil
	}
	var b strings.Builder
	at := 0
	for _, place := range placeholder.FindAllStringIndex(text, -1) {
		value, err := rq.formatTerm(text[place[0]:place[1]], r)
		if err != nil {
			return "", err
		}
		b.WriteString(template.HTMLEscapeString(text[at:place[0]]) + string(value))
		at = place[1]
	}
	b.WriteString(template.HTMLEscapeString(text[at:]))
	return template.HTML(b.String()), nil
}

func (rq *request) formatTerm(name string, r admin.Reason) (template.HTML, error) {
	element := func(tag, text string) template.HTML {
		return template.HTML("<" + tag + ">" + template.HTMLEscapeString(text) + "</" + tag + ">")
	}
	switch name {
	case "{at}":
		return rq.Time(r.At), nil
	case "{until}":
		return rq.Time(r.Until), nil
	case "{every}":
		span, err := rq.Span(max(r.Every, time.Second))
		return template.HTML(template.HTMLEscapeString(span)), err
	case "{n}":
		return template.HTML(rq.Number(r.N)), nil
	case "{entry}":
		return template.HTML(rq.entryLinkText(r.Entry)), nil
	case "{entries}":
		links := make([]string, len(r.Entries))
		for i, id := range r.Entries {
			links[i] = rq.entryLinkText(id)
		}
		return template.HTML(strings.Join(links, " ")), nil
	case "{state}":
		return template.HTML(template.HTMLEscapeString(rq.Word("state", r.State))), nil
	case "{name}":
		return element("bdi", r.Name), nil
	case "{text}":
		return element("bdi", r.Text), nil
	case "{actor}":
		if r.Actor != "" {
			return element("bdi", r.Actor), nil
		}
		key := "explain.a_program"
		if r.Code == "ended_person" {
			key = "explain.a_person"
		}
		person, err := rq.T(key)
		return template.HTML(template.HTMLEscapeString(person)), err
	}
	return "", fmt.Errorf("ui: no value for %s in a sentence", name)
}

func (rq *request) entryLinkText(id compensator.EntryID) string {
	return fmt.Sprintf(`<a href="%s">#%s</a>`, template.HTMLEscapeString(rq.EntryLink(id)), id)
}
