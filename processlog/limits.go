package processlog

import (
	"strings"
	"time"
	"unicode/utf8"
)

// What the table takes: characters; of headers, bytes.
const (
	MaxIdempotentID = 191
	MaxName         = 64 // business type, batch id, business ids, user id and name
	MaxHeaders      = 2048
	MaxText         = 1000 // last error; a person's reason
	MaxCount        = 1 << 30
	MaxDelay        = 100 * 365 * 24 * time.Hour
)

// MaxRows is how many rows one statement reads or writes at most.
const MaxRows = 500

// LockedRetry is how soon an entry whose row somebody holds locked is looked at again.
const LockedRetry = 50 * time.Millisecond

// Millis rounds a remaining time up to what is stored, so that nothing is early.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// Remaining is Millis of what may be past already: that is now.
func Remaining(d time.Duration) int64 { return max(0, Millis(d)) }

// DueAfter is Millis for a due moment computed as now + d by the database: its now is cut to milliseconds,
// which would make a delay up to one short.
func DueAfter(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return Millis(d) + 1
}

// DueIn is DueAfter for the queue: asked any sooner, the database would say "not yet".
func DueIn(d time.Duration) time.Duration { return time.Duration(DueAfter(d)) * time.Millisecond }

// FitsIdempotentID reports whether the table takes text as an idempotent id and tells it from every other: who makes ids of others' names
// hashes what does not fit.
func FitsIdempotentID(text string) bool {
	return utf8.ValidString(text) && utf8.RuneCountInString(text) <= MaxIdempotentID && !strings.ContainsRune(text, 0) && !strings.HasSuffix(text, " ")
}

// FitError makes a handler's text what the column of the last error takes: at most MaxText valid characters.
func FitError(text string) string { return fit(text, MaxText) }

// FitCaseError is FitError for a case's column: at most MaxCaseError.
func FitCaseError(text string) string { return fit(text, MaxCaseError) }

// FitActor is FitError for the name of a person: at most MaxIdempotentID.
func FitActor(text string) string { return fit(text, MaxIdempotentID) }

func fit(text string, most int) string {
	text = text[:min(len(text), most*utf8.UTFMax)]
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) > most {
		text = string([]rune(text)[:most])
	}
	return text
}
