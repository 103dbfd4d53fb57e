package ui

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// A listing that is taken away is read in pages, each of which the Admin puts on record.
const (
	exportPage = 1000
	exportMost = 10_000 // entries
)

// MayExport reports whether somebody may take any of these away.
func (rq *request) MayExport(lines []admin.Line) bool {
	return slices.ContainsFunc(lines, func(l admin.Line) bool { return rq.May(admin.Export, admin.Subject{Type: l.Entry.BusinessType}) })
}

// export answers with what the filter names, as a file, up to exportMost of it. Nothing is sent before all of it is read, so that half
// a file is none.
func (s *server) export(rq *request) {
	if err := rq.r.ParseForm(); err != nil {
		rq.failed(&compensator.FieldError{Field: "form", Reason: err.Error()})
		return
	}
	form := rq.r.PostForm
	filter, err := readFilter(form).filter()
	if err != nil {
		rq.failed(err)
		return
	}
	why := readWhy(form)
	lines, more, err := gathered(func(cursor string, limit int) (admin.LinePage, error) {
		filter.Cursor, filter.Limit = cursor, limit
		return s.admin.Export(rq.ctx, rq.Actor, filter, why)
	})
	if err != nil {
		rq.failed(err)
		return
	}
	name := "entries-" + time.Now().UTC().Format("20060102T150405Z")
	if more {
		name += fmt.Sprintf("-first-%d", len(lines))
	}
	rq.file(name, form.Get("format"), lines)
}

// gathered reads pages until there is no other, or exportMost lines are there. A page may have few lines, or none, and not be
// the last: of a filter that no index knows. How many such it reads is bounded by the request's time.
func gathered(read func(cursor string, limit int) (admin.LinePage, error)) (lines []admin.Line, more bool, err error) {
	var page admin.LinePage
	for first := true; (first || page.Next != "") && len(lines) < exportMost; first = false {
		if page, err = read(page.Next, min(exportPage, exportMost-len(lines))); err != nil {
			return nil, false, err
		}
		lines = append(lines, page.Lines...)
	}
	return lines, page.Next != "", nil
}

// file answers with lines as a file to be kept.
func (rq *request) file(name, format string, lines []admin.Line) {
	var text bytes.Buffer
	write, kind := admin.WriteCSV, "text/csv; charset=utf-8"
	if format == "jsonl" {
		write, kind = admin.WriteJSONLines, "application/jsonl; charset=utf-8"
	} else {
		format = "csv"
	}
	if err := write(&text, lines); err != nil {
		rq.failed(err)
		return
	}
	rq.w.Header().Set("Content-Type", kind)
	rq.w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	rq.w.Header().Set("Content-Disposition", `attachment; filename="`+name+"."+format+`"`)
	_, _ = rq.w.Write(text.Bytes())
}
