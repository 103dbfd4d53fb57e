package admin

import "github.com/compensator-go/compensator/internal/likeness"

func (d *Admin) scrubText(text string, isFull bool) string {
	return shortenText(d.log.Scrub(text), isFull)
}

func shortenText(text string, isFull bool) string {
	if !isFull {
		return likeness.Shape(text)
	}
	return text
}
