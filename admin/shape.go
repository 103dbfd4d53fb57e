package admin

import "github.com/compensator-go/compensator/internal/likeness"

// scrubText removes secrets from an error's text. If isFull is false, it also removes ids, numbers and quoted
// words.
func (d *Admin) scrubText(text string, isFull bool) string {
	return shortenText(d.log.Scrub(text), isFull)
}

// shortenText returns a scrubbed text unchanged if isFull is set. Otherwise it removes ids, numbers and quoted words.
func shortenText(text string, isFull bool) string {
	if !isFull {
		return likeness.Shape(text)
	}
	return text
}
