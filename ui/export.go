package ui

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/desk"
)

// A listing that is taken away is read in pages, each of which the Desk puts on record.
const (
	exportPage  = 1000
	exportPages = 10
)

// MayExport reports whether somebody may take any of these away.
func (rq *request) MayExport(lines []desk.Line) bool {
	return slices.ContainsFunc(lines, func(l desk.Line) bool { return rq.May(desk.Export, desk.Subject{Type: l.Entry.BusinessType}) })
}

// export answers with what the filter names, as a file, up to ten pages of it. Nothing is sent before all of it is read, so that half
// a file is none.
func (s *server) export(rq *request) {
	if err := rq.r.ParseForm(); err != nil {
		rq.failed(&compensator.FieldError{Field: "form", Reason: err.Error()})
		return
	}
	form := rq.r.PostForm
	filter, err := readFilter(form).filter()
	filter.Limit = exportPage
	why := readWhy(form)
	var lines []desk.Line
	for range exportPages {
		if err != nil {
			break
		}
		var page desk.LinePage
		page, err = s.desk.Export(rq.ctx, rq.Actor, filter, why)
		lines, filter.Cursor = append(lines, page.Lines...), page.Next
		if filter.Cursor == "" {
			break
		}
	}
	if err != nil {
		rq.failed(err)
		return
	}
	name := "entries-" + time.Now().UTC().Format("20060102T150405Z")
	if filter.Cursor != "" {
		name += fmt.Sprintf("-first-%d", len(lines))
	}
	rq.file(name, form.Get("format"), lines)
}

// file answers with lines as a file to be kept.
func (rq *request) file(name, format string, lines []desk.Line) {
	var text bytes.Buffer
	write, kind := desk.WriteCSV, "text/csv; charset=utf-8"
	if format == "jsonl" {
		write, kind = desk.WriteJSONLines, "application/jsonl; charset=utf-8"
	} else {
		format = "csv"
	}
	if err := write(&text, lines); err != nil {
		rq.failed(err)
		return
	}
	rq.w.Header().Set("Content-Type", kind)
	rq.w.Header().Set("Content-Disposition", `attachment; filename="`+name+"."+format+`"`)
	_, _ = rq.w.Write(text.Bytes())
}
