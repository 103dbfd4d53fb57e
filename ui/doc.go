// Package ui serves web pages for operators, built on package admin. The pages show what is stuck, its amount and the
// reason, and let people repair it.
//
//	d, err := admin.New(c, admin.Options{Access: access})
//	h, err := ui.New(d, ui.Options{Identify: session, Base: "/ops/log/"})
//	mux.Handle("/ops/log/", h)
//
// # Who gets in
//
// Options.Identify names the actor of a request, from a session that your application has authenticated. Every other
// request gets 401, also for a style sheet. The Admin's Access decides what the actor may see and do. The pages hide
// buttons that the Admin would refuse. The check itself is the Admin's.
//
// # What a request may do
//
// GET changes nothing. A change is a POST of a form with a reason. A POST from another origin is refused. The result
// page says for each entry whether it was changed. Running an entry again needs one more confirmation if its work is
// finished or its effect may have happened.
//
// A request has at most 1 MiB and names at most 500 entries. Per process, each person may read 20 times a second and
// act 5 times a second.
//
// Every page works without scripts, in English and Chinese, on a phone, and by keyboard. Nothing is loaded from other
// sites, and the Content-Security-Policy forbids it. Texts from outside are escaped. Their control characters are shown
// as numbers.
//
// A page is compressed only if the browser says that the request comes from these pages or from the person. Otherwise
// another site could send guesses in a request and learn from the compressed length whether the page contains them.
// Revealed content is never compressed.
//
// A Handler keeps no state that matters. Any process of the service may answer any request.
package ui
