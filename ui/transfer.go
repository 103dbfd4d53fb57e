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

// send answers with a page. A page that refreshes itself, and has it already, is told so in a few bytes.
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

// asOf is when what a page tells was read. A browser that has it hears of no other change.
func (rq *request) asOf(at time.Time) {
	rq.Now = at
	rq.w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// has gives the answer its tag, and reports whether the browser has what bears it: then it is told so, and that is all.
func (rq *request) has(tag string) bool {
	h := rq.w.Header()
	h.Set("ETag", tag)
	if strings.TrimPrefix(rq.r.Header.Get("If-None-Match"), "W/") != tag { // weak: a proxy has compressed it
		return false
	}
	for _, ofPages := range []string{"Content-Security-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy", "Referrer-Policy"} {
		h.Del(ofPages) // here is none, nor does a browser keep one that these would change
	}
	rq.w.WriteHeader(http.StatusNotModified)
	return true
}

// tag is of all that a page says, but for its nonce and the time that it was made at.
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

// unchanged answers a browser that has a page of just this, without making it: fifty who watch cost no more than their requests
// do. The template may use nothing else of a request: what somebody may do is in the data, and so are spans of time as they are shown.
func (rq *request) unchanged(page string, data any) bool {
	made, err := json.Marshal([]any{rq.s.made, page, rq.Lang, rq.Theme(), rq.Actor.ID, rq.Here(), data})
	return err == nil && rq.has(tagOf(made))
}

// compresses reports whether a page goes out compressed: where the browser takes that, and says that the request is one of these
// pages' own or of the person. How long a compressed page is tells whether it repeats what its address has; so another site,
// which can have somebody's browser ask for an address of its choice, gets none to measure. Nor is what reveal answers with.
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

// compressors are kept: one has a megabyte of its own.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func compressed(data []byte) []byte {
	var out bytes.Buffer
	z := compressors.Get().(*gzip.Writer)
	defer compressors.Put(z)
	z.Reset(&out)
	_, _ = z.Write(data) // a Buffer takes all
	_ = z.Close()
	return out.Bytes()
}
