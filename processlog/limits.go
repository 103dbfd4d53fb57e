package processlog

import (
	"strings"
	"time"
	"unicode/utf8"
)

// These are the largest values that an entry can hold. For a text, the value is the maximum length in characters, or in
// bytes if the comment says so.
const (
	MaxIdempotencyKey = 191                        // idempotency key, and the name of a person who acts
	MaxName           = 64                         // business type, batch id, business ids, user id and user name
	MaxHeaders        = 2048                       // headers as JSON, in bytes
	MaxText           = 1000                       // last error of an entry; reason that a person gives
	MaxCount          = 1 << 30                    // number of attempts
	MaxDelay          = 100 * 365 * 24 * time.Hour // time until an entry is due
)

// MaxRows is the maximum number of rows that one statement reads or writes.
const MaxRows = 500

// LockedRetry is the pause before an entry is read again if another transaction has locked its row.
const LockedRetry = 50 * time.Millisecond

// Millis rounds up to whole milliseconds, the unit of the stored times, so that no entry becomes due too early.
func Millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}

// Remaining rounds up to whole milliseconds, as Millis does. It returns 0 for a negative time.
func Remaining(d time.Duration) int64 { return max(0, Millis(d)) }

// DueAfter converts the delay of an entry to whole milliseconds. It rounds up and adds one, because the database truncates
// its current time. It returns 0 if d is not positive.
func DueAfter(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return Millis(d) + 1
}

// DueIn rounds the delay of an entry in the queue, as DueAfter does for the database.
func DueIn(d time.Duration) time.Duration { return time.Duration(DueAfter(d)) * time.Millisecond }

// FitsIdempotencyKey reports whether the table can store text as an idempotency key, and distinguish it from every other
// key. It returns true for the empty text, which Record refuses.
func FitsIdempotencyKey(text string) bool {
	return utf8.ValidString(text) && utf8.RuneCountInString(text) <= MaxIdempotencyKey && !strings.ContainsRune(text, 0) && !strings.HasSuffix(text, " ")
}

// FitError cuts the error text of a handler to the size of its column: at most MaxText valid characters.
func FitError(text string) string { return truncateText(text, MaxText) }

// FitCaseError cuts an error text for a case: at most MaxCaseError characters.
func FitCaseError(text string) string { return truncateText(text, MaxCaseError) }

// FitActor cuts the name of a person: at most MaxIdempotencyKey characters.
func FitActor(text string) string { return truncateText(text, MaxIdempotencyKey) }

func truncateText(text string, maxRunes int) string {
	text = text[:min(len(text), maxRunes*utf8.UTFMax)]
	text = strings.ToValidUTF8(text, "\uFFFD")
	if utf8.RuneCountInString(text) > maxRunes {
		text = string([]rune(text)[:maxRunes])
	}
	return text
}
