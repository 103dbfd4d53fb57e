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

// send answers with a page. If the browser has refreshed a page that has not changed, send answers with a short 304.
func (rq *request) send(status int, html []byte) {
	h := rq.w.Header()
	if status == http.StatusOK && reads(rq.r) && h.Get("ETag") == "" && rq.has(rq.tag(html)) {
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	if rq.compresses() {
		h.Set("Content-Encoding", "gzip")
		html = compressed(html)
	}
	h.Set("Content-Length", strconv.Itoa(len(html)))
	rq.w.WriteHeader(status)
	_, _ = rq.w.Write(html)
}

// asOf sets the time at which the page's data was read. It also sends this time as Last-Modified, with a 304 too.
func (rq *request) asOf(at time.Time) {
	rq.Now = at
	rq.w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// The method has sets the ETag of the answer. If the browser already has the page with this tag, the method answers 304
// and returns true.
func (rq *request) has(tag string) bool {
	h := rq.w.Header()
	h.Set("ETag", tag)
	if strings.TrimPrefix(rq.r.Header.Get("If-None-Match"), "W/") != tag { // A proxy that compresses an answer adds W/ to its tag.
		return false
	}
	for _, ofPages := range []string{"Content-Security-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Referrer-Policy"} {
		h.Del(ofPages) // Remove these headers from the 304. They describe a new page, and a browser would not apply them to the page that it already has.
	}
	rq.w.WriteHeader(http.StatusNotModified)
	return true
}

// tag returns the ETag of a page. It ignores the nonce and the time at which the page was built.
func (rq *request) tag(html []byte) string {
	for _, own := range []string{rq.Nonce, string(rq.Time(rq.Now))} {
		html = bytes.ReplaceAll(html, []byte(own), nil)
	}
	return tagOf(html)
}

func tagOf(of []byte) string {
	hash := sha256.Sum256(of)
	return `"` + hex.EncodeToString(hash[:12]) + `"`
}

// unchanged answers 304 without building the page, if the browser has a page with the same data. So fifty readers cost
// little more than their requests. The template may use only data and the values that unchanged hashes. So data must
// contain everything else that the page shows, such as rights and formatted durations.
func (rq *request) unchanged(page string, data any) bool {
	made, err := json.Marshal([]any{rq.s.made, page, rq.Lang, rq.Theme(), rq.Actor.ID, rq.Here(), data})
	return err == nil && rq.has(tagOf(made))
}

// compresses reports whether to compress a page. The browser must accept gzip and must say that the request comes from
// these pages or from the person. The length of a compressed page reveals whether the page repeats a part of its
// address. Another site can make a browser request any address, so such a request gets no compressed answer. Answers of
// reveal are never compressed.
func (rq *request) compresses() bool {
	site := rq.r.Header.Get("Sec-Fetch-Site")
	return reads(rq.r) && (site == "same-origin" || site == "none") && takesGzip(rq.r)
}

func takesGzip(r *http.Request) bool {
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

func compressed(data []byte) []byte {
	var out bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&out)
	_, _ = z.Write(data) // A bytes.Buffer never returns an error.
	_ = z.Close()
	return out.Bytes()
}
