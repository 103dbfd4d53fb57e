package admin

import "github.com/compensator-go/compensator/internal/likeness"

// scrubbed scrubs an error's text. If inFull is false, it returns only the shape of the text.
func (d *Admin) scrubbed(text string, inFull bool) string { return shape(d.log.Scrub(text), inFull) }

// shape returns a scrubbed text unchanged if inFull is set. Otherwise it removes ids, numbers and quoted words.
func shape(text string, inFull bool) string {
	if !inFull {
		return likeness.Shape(text)
	}
	return text
}
