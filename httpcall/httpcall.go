// Package httpcall makes HTTP calls for an entry and converts the answer into the error that a handler returns. It is a
// separate package so that programs without it do not link net/http.
package httpcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
	"github.com/compensator-go/compensator/internal/verdict"
)

// KeyHeader is the header with the idempotency key. The value has no quotes, as payment services expect it. The IETF
// draft of this header requires quotes.
const KeyHeader = "Idempotency-Key"

// Do sends a request and returns the answer if its status is 2xx. Close the answer's Body. A handler can return the
// error of Do unchanged. For an answer with another status see Outcome. Without a usable answer, the error is one of
// these:
//
//   - Unavailable if the server does not listen or the connection broke.
//   - A plain error if the context of the request or the Timeout of the client has ended. A plain error spends an
//     attempt, because this entry may be the cause of the slow answer.
//   - A plain error if the URL has no scheme, an unknown scheme, no host, or an invalid port. Nothing was sent. A
//     scheme that the client's own transport knows may come without a host.
//   - A plain error if the client does not follow a redirect, or cannot follow it.
//   - A plain error if a 301, 302 or 303 would turn a POST, or a similar method, into a GET without content. Do does
//     not follow such a redirect, because the answer to the GET is no answer to the call. To follow it, let the
//     client's CheckRedirect set the method to POST again.
//
// If the service may have received the call, the error has a method OutcomeUnknown that returns true. If the entry then
// becomes dead, its case says that the outcome is unknown. If the client had no connection, nothing was sent, and the
// error does not have this method.
//
// Give the request the handler's context, and give the type a MaxWait. Without MaxWait, a call is retried forever while
// the service is unavailable.
//
// Do sends key as Idempotency-Key if key is not empty. Pass Entry.CallKey. With this key the service recognises a
// repeated call, and treats a call after a person's requeue as a new call. If several logs call the service, put the
// name of the log in front of the key. If a handler makes several calls, add the
// name of the call at the end: "shop-" + e.CallKey() + "-fee". Each attempt of a batch may contain other entries, so a
// call of a batch has no key. Send the keys of its items in the content instead.
//
// No error contains more of the URL than its host. If client is nil, Do uses http.DefaultClient, which follows
// redirects. Do is safe for concurrent use.
func Do(client *http.Client, request *http.Request, key string) (*http.Response, error) {
	if err := addressed(request); err != nil {
		if request.Body != nil {
			err = errors.Join(err, request.Body.Close()) // Close the body, as http.Client.Do does after an error.
		}
		return nil, err
	}
	if key != "" {
		if request.Header == nil {
			request.Header = make(http.Header) // net/http accepts a request whose Header is nil.
		}
		request.Header.Set(KeyHeader, key)
	}
	follower := following{client: cmp.Or(client, http.DefaultClient)}
	response, err := follower.do(request)
	if err != nil {
		return nil, follower.unanswered(request, response, err)
	}
	if err := Outcome(response); err != nil {
		if follower.refusedTarget != "" {
			err = fmt.Errorf("%w: a redirect to %s that would become a GET", err, follower.refusedTarget)
		}
		return nil, errors.Join(err, response.Body.Close())
	}
	return response, nil
}

// following is the state of one call that follows redirects. The call stops at a redirect that would change the method
// of the request.
type following struct {
	client        *http.Client
	refusedTarget string // host of the redirect that would have changed the method

	// net/http may call the hooks of a trace from several goroutines.
	traced    atomic.Bool // the transport reports its connections
	connected atomic.Bool // the transport has had a connection since the last answer
}

func (f *following) do(request *http.Request) (*http.Response, error) {
	client := *f.client
	client.CheckRedirect = f.check
	return client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GetConn: func(string) { f.traced.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { f.connected.Store(true) },
	})))
}

// mayHaveArrived looks at all connections, because a transport may repeat a request after the first one has arrived.
func (f *following) mayHaveArrived(err error) bool {
	if f.traced.Load() {
		return f.connected.Load()
	}
	var dialled *net.OpError
	var unresolved *net.DNSError
	return !(usererr.As(err, &dialled) && dialled.Op == "dial") && !usererr.As(err, &unresolved)
}

// check calls CheckRedirect of the client first, because CheckRedirect may change a GET back to a POST.
func (f *following) check(next *http.Request, via []*http.Request) error {
	// net/http calls this function when the answer to the previous request is a redirect. So the service has answered
	// the previous request, and its connection no longer counts.
	f.connected.Store(false)
	if f.client.CheckRedirect != nil {
		if err := f.client.CheckRedirect(next, via); err != nil {
			return err
		}
	} else if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	if cmp.Or(next.Method, http.MethodGet) != cmp.Or(via[0].Method, http.MethodGet) { // An empty method means GET.
		f.refusedTarget = next.URL.Host
		return http.ErrUseLastResponse
	}
	return nil
}

const maxRedirects = 10 // limit that net/http uses for a client without CheckRedirect

// addressed returns an error if a request has no URL, no scheme or no host. Without this check, Do could take the error
// of the client's transport for an unavailable service, and the call would be repeated in vain.
func addressed(request *http.Request) error {
	u, lacks := request.URL, ""
	switch {
	case u == nil:
		lacks = "URL"
	case u.Scheme == "":
		lacks = "scheme in its URL"
	case u.Host == "" && (u.Scheme == "http" || u.Scheme == "https" || u.Opaque != ""): // url.Parse sets Opaque for localhost:8080/x.
		lacks = "host in its URL"
	default:
		return nil
	}
	return fmt.Errorf("%s: the request has no %s", request.Method, lacks)
}

func (f *following) unanswered(request *http.Request, redirect *http.Response, err error) error {
	var urlErr *url.Error
	if usererr.As(err, &urlErr) {
		err = urlErr.Err // Unwrap the error, because a url.Error contains the URL with its query.
	}
	var noAddress *net.AddrError // For example, net returns an AddrError for an invalid port.
	// counts is true if the error is a plain error, which spends an attempt. That holds in two cases:
	//
	//   - The service has not received the call, because the address is invalid.
	//   - The service has answered the call with a redirect. If CheckRedirect has refused this redirect, net/http
	//     returns the redirect beside the error.
	counts := redirect != nil || usererr.As(err, &noAddress)
	// net/http has no error values for these cases.
	switch text := usererr.Text(err); {
	case strings.HasPrefix(text, "unsupported protocol scheme"), strings.HasPrefix(text, "http: no Host in request URL"):
		counts = true
	case strings.HasPrefix(text, "failed to parse Location header"):
		err, counts = errors.New("redirected to what is no address"), true // Replace the error, because its text contains the whole address with the query.
	}
	err = fmt.Errorf("%s %s: %w", request.Method, request.URL.Host, err)
	if !counts && f.mayHaveArrived(err) {
		err = verdict.OutcomeUnknown(err)
	}
	var dialled *net.OpError
	switch {
	case counts, request.Context().Err() != nil:
		return err
	case usererr.Is(err, context.DeadlineExceeded) && !(usererr.As(err, &dialled) && dialled.Op == "dial"):
		return err // The Timeout of the client is over.
	}
	return compensator.Unavailable(err)
}

// Outcome converts an answer into the error that a handler returns. Use it for calls that are not made with Do.
//
//	2xx                          nil
//	401, 407, 429, 502, 503, 504 Unavailable. The service or the access to it is at fault, not this entry. A Retry-After
//	                             in seconds or as a date sets the wait, up to an hour
//	422                          Permanent. The service has read this content and will never accept it
//	any other                    a plain error, which spends an attempt. This entry may be the cause
//
// The error wraps an *Error. If a service gives a status another meaning, the handler can read the *Error and return,
// for example, Permanent or nil. If the status is not 2xx, Outcome reads up to 4 KiB of the body. It does not read
// the body of a 101. It does not close the body. The body may be nil.
func Outcome(answer *http.Response) error {
	if answer.StatusCode/100 == 2 {
		return nil
	}
	err := &Error{StatusCode: answer.StatusCode, Header: answer.Header, text: answer.Status}
	if requestedWait := answer.Request; requestedWait != nil && requestedWait.URL != nil {
		err.text = requestedWait.Method + " " + requestedWait.URL.Host + ": " + err.text
	}
	if answer.Body != nil && answer.StatusCode/100 != 1 { // Do not read the body of a 101. It is the connection, which ends only when the service closes it.
		err.Body, _ = io.ReadAll(io.LimitReader(answer.Body, maxBody)) // Ignore the error and use the part that could be read.
	}
	switch answer.StatusCode {
	case http.StatusUnprocessableEntity:
		return compensator.Permanent(err)
	case http.StatusUnauthorized, http.StatusProxyAuthRequired, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if wait := retryAfter(answer.Header.Get("Retry-After")); wait > 0 {
			return compensator.RetryAfter(min(wait, longestWait), compensator.Unavailable(err))
		}
		return compensator.Unavailable(err)
	}
	return err
}

const (
	maxBody     = 4 << 10
	longestWait = time.Hour // longest wait that Retry-After can set, because the service may be up again sooner than it has said
)

// Error is an answer that is not a 2xx. Its text has the method, the host and the status. It leaves out the body, which
// may hold secrets.
type Error struct {
	StatusCode int         // status of the answer
	Header     http.Header // headers of the answer
	Body       []byte      // first 4 KiB of the body

	text string
}

func (e *Error) Error() string { return e.text }

// OutcomeUnknown reports whether the service may have done the work. It returns true for 502 and 504, with which a
// gateway says that it has no answer of the service.
func (e *Error) OutcomeUnknown() bool {
	return e.StatusCode == http.StatusBadGateway || e.StatusCode == http.StatusGatewayTimeout
}

// retryAfter reads seconds or a date (RFC 9110, 10.2.3), which it compares with this process's clock. A result ≤ 0
// means no wait.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // A number that is out of range is replaced by the largest number.
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return time.Until(at)
}
