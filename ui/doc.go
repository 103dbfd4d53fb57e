// Package ui is the operator's pages over package admin: what is stuck, what it is worth, why, and the means to put it right.
//
//	d, err := admin.New(c, admin.Options{Access: access})
//	h, err := ui.New(d, ui.Options{Identify: session, Base: "/ops/log/"})
//	mux.Handle("/ops/log/", h)
//
// # Who gets in
//
// Options.Identify says who a request is from, by a session that the application has proved; who is nobody gets 401, and
// nothing else is served, no style sheet either. What somebody may see and do says the Admin's Access. The pages show no
// button that leads nowhere, but it is the Admin that refuses.
//
// # What a request may do
//
// GET changes nothing. What changes something is a POST of a form, with a reason, refused when it comes from another
// origin; what of a change was done, and what had changed meanwhile, a page says for each entry. Whatever runs again although its
// effect may have happened, or has, asks once more. A request has at most 1 MiB and names at most 500 entries; each person
// may read 20 times a second and act 5 times, in each process.
//
// Every page works without script, in English and Chinese, on a phone, by keyboard. Nothing is fetched from elsewhere, and the
// Content-Security-Policy forbids it. Texts from outside are escaped, and control characters in them shown as their numbers.
//
// A page is compressed only where the browser says that the request is the pages' own, or the person's: the length of a compressed
// page would tell another site, whose request repeats what it guesses, whether the page has it, too. What is revealed never is.
//
// A Handler keeps nothing that matters: any process of the service may answer any request.
package ui
