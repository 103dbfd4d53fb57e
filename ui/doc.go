// Package ui serves web pages for operators, built on package admin.
//
//	d, err := admin.New(c, admin.Options{Access: access})
//	h, err := ui.New(ui.Options{Identify: session, Base: "/ops/log/"}, d)
//	mux.Handle("/ops/log/", h)
//
// # Who gets in
//
// Options.Identify names the actor of a request, from a session that your application has authenticated. If Identify
// names no actor, the answer is 401, even for a style sheet. The Admin's Access decides what the actor may see and do.
// The Admin checks each action in any case.
//
// # What a request may do
//
// GET changes nothing. A change is a POST of a form with a reason. A POST from another origin is refused. To run an
// entry again, the person must confirm once more in two cases: its work is finished, or its effect may have happened.
//
// A request has at most 256 KiB, an address 16 KiB, and a request names at most 500 entries. Per process, each person
// may read 20 times a second and act 5 times a second.
//
// Every page works without scripts, in English and Chinese, on a phone, and by keyboard. Pages load nothing from other
// sites, and their Content-Security-Policy forbids such loads. Texts from outside are escaped.
//
// A page is compressed only if the browser says that no other site has caused the request. That is the case if the
// request comes from one of these pages, or if the person has typed the address. Revealed content is never compressed.
//
// Any process of the service may answer any request.
package ui
