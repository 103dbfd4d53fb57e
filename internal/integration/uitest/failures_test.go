// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Pages and command line
//
// F130: Another site posts a form, or guesses a result.
// Result: Only a form of these pages changes anything. An outcome is shown only to who acted. Compressed sizes tell
// nothing.
//
// F131: There is no script, no mouse, or a small screen.
// Result: Everything works, by the rules of WCAG 2.2 AA.
//
// F132: A text is hostile: script, markup, control characters, formulas.
// Result: It stays text on pages, in exports and on a terminal. Contents need a reveal with a reason, and show named
// fields only.
//
// F133: Clients flood or are slow, pages move, or many look at once.
// Result: Requests are bounded, reads shared, links right, and no connection is held.
//
// F134: A command would change too much, has few rights, or is interrupted.
// Result: The number must be typed. More than 500 entries are refused. Printed grants are enough, and exit codes tell
// the reason.
//
// F135: Entries are requeued from a terminal, or the command is installed by the proxy.
// Result: Entries are enqueued, or the command says that they wait. The install needs nothing else.
//
// F136: Strangers reach the command's pages, or its policy changes.
// Result: Only token, host and loopback let in. Without `--write` pages only show. The current policy counts.

package uitest
