package processlog

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsInvisible reports whether people cannot see a character, or whether it changes the direction of text. Spaces, tabs and
// line feeds are not invisible.
func IsInvisible(r rune) bool {
	if r < utf8.RuneSelf {
		return (r < ' ' || r == 0x7f) && r != '\n' && r != '\t'
	}
	return r == '\u2800' || r == '\u2028' || r == '\u2029' || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// IsBlank reports whether a text has no character that people can see.
func IsBlank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !IsInvisible(r) && !unicode.IsSpace(r) })
}
