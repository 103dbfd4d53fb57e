package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

func (rq *request) sendPage(status int, html []byte) {
	h := rq.w.Header()
	if status == http.StatusOK && isRead(rq.r) && h.Get("ETag") == "" && rq.hasTag(rq.pageTag(html)) {
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	if rq.compresses() {
		h.Set("Content-Encoding", "gzip")
		html = compress(html)
	}
	h.Set("Content-Length", strconv.Itoa(len(html)))
	rq.w.WriteHeader(status)
	_, _ = rq.w.Write(html)
}

// A page and a 304 send the time of setTime as Last-Modified.
func (rq *request) setTime(at time.Time) {
	rq.Now = at
	rq.w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
}

func isRead(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// hasTag answers 304 and returns true if the browser has this page.
func (rq *request) hasTag(tag string) bool {
	h := rq.w.Header()
	h.Set("ETag", tag)
	if strings.TrimPrefix(rq.r.Header.Get("If-None-Match"), "W/") != tag { // A proxy that compresses an answer adds W/ to its tag.
		return false
	}
	for _, pageHeader := range []string{"Content-Security-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Referrer-Policy"} {
		h.Del(pageHeader) // Remove these headers from the 304. They describe a new page, and a browser would not apply them to the page that it already has.
	}
	rq.w.WriteHeader(http.StatusNotModified)
	return true
}

// pageTag ignores the nonce and the time at which the page was built.
func (rq *request) pageTag(html []byte) string {
	for _, pagePart := range []string{rq.Nonce, string(rq.Time(rq.Now))} {
		html = bytes.ReplaceAll(html, []byte(pagePart), nil)
	}
	return newTag(html)
}

func newTag(content []byte) string {
	hash := sha256.Sum256(content)
	return `"` + hex.EncodeToString(hash[:12]) + `"`
}

// unchanged answers 304 without building the page, if the browser has a page with the same hash. So data must contain
// everything that the page shows, such as rights and formatted durations.
func (rq *request) unchanged(page string, data any) bool {
	parts, err := json.Marshal([]any{rq.s.makingsHash, page, rq.Lang, rq.Theme(), rq.ZoneName(), rq.Actor.ID, rq.Here(), data})
	return err == nil && rq.hasTag(newTag(parts))
}

// compresses reports whether to compress a page. If another site can cause a request, the answer is not compressed.
// Otherwise this site could put guesses of a secret into the request, and learn from the length of the answer which
// guess is right. Answers to a POST, for example pages with revealed content, are never compressed.
func (rq *request) compresses() bool {
	site := rq.r.Header.Get("Sec-Fetch-Site")
	return isRead(rq.r) && (site == "same-origin" || site == "none") && acceptsGzip(rq.r)
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}

// compressors caches gzip writers, because each takes a megabyte of memory.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func compress(data []byte) []byte {
	var buffer bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&buffer)
	_, _ = z.Write(data) // A bytes.Buffer never returns an error.
	_ = z.Close()
	return buffer.Bytes()
}
