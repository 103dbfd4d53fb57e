package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-isatty"

	"github.com/compensator-go/compensator/processlog"
)

// printable escapes invisible characters, for example as \x1b or \u202e.
func printable(text string) string {
	if strings.IndexFunc(text, isHidden) < 0 {
		return text
	}
	var b strings.Builder
	for i, width := 0, 0; i < len(text); i += width {
		var r rune
		r, width = utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case isHidden(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isHidden(r rune) bool {
	return r == utf8.RuneError || !unicode.IsGraphic(r) || processlog.IsInvisible(r)
}

func escapeNonASCII(text []byte) []byte {
	if bytes.IndexFunc(text, isHidden) < 0 {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case !isHidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			highSurrogate, lowSurrogate := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, highSurrogate, lowSurrogate)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

func displayWidth(text string) (columns int) {
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Mn, r):
		case isWide(r):
			columns += 2
		default:
			columns++
		}
	}
	return columns
}

func isWide(r rune) bool {
	return r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff ||
		r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd)
}

func hasColour(out *os.File, env func(string) string) bool {
	return isTerminal(out) && env("NO_COLOR") == "" && env("TERM") != "dumb"
}

func isTerminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }

// Output without colours shows the same words.
var colours = map[string]string{"dead": "31", "outcome unknown": "31", "retrying": "33", "compensating": "33", "succeeded": "32", "done": "32", "refused": "31"}

func addColour(text, word string) string {
	if colours[word] == "" {
		return text
	}
	return "\x1b[" + colours[word] + "m" + text + "\x1b[0m"
}
