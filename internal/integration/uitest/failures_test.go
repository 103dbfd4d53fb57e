// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Pages and command line
//
// F130: Another site makes a browser send a form, or measures the size of an answer to guess what a page shows. Another
// person opens the address of an action's outcome.
// Result: Only forms of these pages change anything. Answers to requests from other sites are not compressed, because a
// compressed size could reveal text. Only the person who acted sees the outcome.
//
// F131: The browser has no script, no mouse, or a small screen.
// Result: Everything works, and keeps the rules of WCAG 2.2 AA.
//
// F132: A text contains script, markup, control characters or formulas.
// Result: It stays text on pages, in exports and in a terminal.
//
// F133: Clients send many requests or are slow, lists change while people read them, or many people look at once.
// Result: Requests are limited, people share reads, links lead to the same rows, and no slow client holds a
// connection.
//
// F134: A command would change too many entries, lacks rights, or is interrupted.
// Result: The person must type the number of entries, at most 500. The exit code has the reason.
// Action: Grant what `check --grants` prints.
//
// F135: Somebody requeues entries from a terminal, or installs the command through the module proxy.
// Result: The entries are enqueued, or the command says that they wait. The install needs only the module proxy.
//
// F136: Strangers reach the command's pages, or its policy changes.
// Result: The pages open only on loopback and under their own host name. Only the browser that sends the token from the
// terminal may open them. Each request follows the current policy.

package uitest
