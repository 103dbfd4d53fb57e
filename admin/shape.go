package admin

import "github.com/compensator-go/compensator/internal/likeness"

// told is an error's text as somebody sees it: scrubbed, and to who may not see it in full its shape.
func (d *Admin) told(text string, inFull bool) string { return shape(d.log.Scrub(text), inFull) }

// shape is a text that is scrubbed, or its shape.
func shape(text string, inFull bool) string {
	if !inFull {
		return likeness.Shape(text)
	}
	return text
}
