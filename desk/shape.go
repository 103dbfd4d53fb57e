package desk

import "github.com/compensator-go/compensator/internal/likeness"

// shape is an error's text for who may not see it in full.
func shape(text string) string { return likeness.Shape(text) }
