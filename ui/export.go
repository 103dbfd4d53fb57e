package ui

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/compensator-go/compensator/admin"
)

// The Admin records each page of an export.
const (
	exportPage  = 1000
	maxExported = 10_000 // maximum number of entries
)

// MayExport reports whether the actor may export any of these lines.
func (rq *request) MayExport(lines []admin.Line) bool {
	return slices.ContainsFunc(lines, func(l admin.Line) bool { return rq.May(admin.Export, admin.Subject{Type: l.Entry.BusinessType}) })
}

// exportEntries reads all entries first, so that a failed export sends no incomplete file.
func (s *server) exportEntries(rq *request) {
	form := rq.form()
	_, filter, err := rq.readFilter(form)
	if err != nil {
		rq.showFailure(err)
		return
	}
	why := readWhy(form)
	lines, hasMore, err := gatherLines(func(cursor string, limit int) (admin.LinePage, error) {
		filter.Cursor, filter.Limit = cursor, limit
		return s.admin.Export(rq.ctx, rq.Actor, filter, why)
	})
	if err != nil {
		rq.showFailure(err)
		return
	}
	name := "entries-"
	if log := rq.Log(); log != "" {
		name += log + "-"
	}
	name += time.Now().UTC().Format("20060102T150405Z")
	if hasMore {
		name += fmt.Sprintf("-first-%d", len(lines))
	}
	rq.file(name, form.Get("format"), lines)
}

// gatherLines continues after short and empty pages.
func gatherLines(readPage func(cursor string, limit int) (admin.LinePage, error)) (lines []admin.Line, hasMore bool, err error) {
	var page admin.LinePage
	for isFirst := true; (isFirst || page.Next != "") && len(lines) < maxExported; isFirst = false {
		if page, err = readPage(page.Next, min(exportPage, maxExported-len(lines))); err != nil {
			return nil, false, err
		}
		lines = append(lines, page.Lines...)
	}
	return lines, page.Next != "", nil
}

func (rq *request) file(name, format string, lines []admin.Line) {
	var text bytes.Buffer
	write, kind := admin.WriteCSV, "text/csv; charset=utf-8"
	if format == "jsonl" {
		write, kind = admin.WriteJSONLines, "application/jsonl; charset=utf-8"
	} else {
		format = "csv"
	}
	if err := write(&text, lines); err != nil {
		rq.showFailure(err)
		return
	}
	rq.w.Header().Set("Content-Type", kind)
	rq.w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	rq.w.Header().Set("Content-Disposition", `attachment; filename="`+name+"."+format+`"`)
	_, _ = rq.w.Write(text.Bytes())
}
