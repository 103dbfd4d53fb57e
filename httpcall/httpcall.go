// Package httpcall calls others over HTTP for an entry, and makes of what they answer what its handler returns. It is a room of
// its own so that nobody else links net/http.
package httpcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/usererr"
)

// KeyHeader carries the key, bare, as payment services read it; the IETF's draft of the header would have it in quotes.
const KeyHeader = "Idempotency-Key"

// Do sends a request and returns the answer, where it is a 2xx; close its Body. Any other error is what a handler
// returns, as it stands: see Outcome, and where there was no answer
//
//   - that nobody is there, or the connection broke, is Unavailable. The call may have got through all the same;
//   - that the request's context is over, or the client's own Timeout, is a plain error, and counts: it may be this entry
//     that takes so long;
//   - that the request's URL has no scheme, one that nobody knows, no host, or no port that could be one, is a plain error, too: nobody
//     is asked. A scheme that the client's own transport knows may do without a host;
//   - so is a redirect that the client does not follow, or cannot;
//   - and so is one, of a 301, 302 or 303, that would make a GET without content of a POST or its like: it is not followed, unless the
//     client's CheckRedirect gives the next request its method back. What the GET is answered is no answer to the call.
//
// Give the request the handler's context, and the type a MaxWait: what is Unavailable waits for ever otherwise.
//
// key goes with it as Idempotency-Key, unless it is empty: by Entry.Key a call that is made again is known there, and one after
// a person's requeue is a new one. Put a name of the log before it where the service knows several, a staging copy's, say, and one of
// the call behind it where a handler makes several: "shop-" + e.Key() + "-fee". A batch is another one each time it is tried, so
// what it calls has no key: the keys of its items belong into what is sent. No error says more of the URL than its host. A nil client
// is http.DefaultClient, which follows redirects. Do may be called concurrently.
func Do(client *http.Client, request *http.Request, key string) (*http.Response, error) {
	if err := addressed(request); err != nil {
		if request.Body != nil {
			err = errors.Join(err, request.Body.Close()) // as the client would
		}
		return nil, err
	}
	if key != "" {
		if request.Header == nil {
			request.Header = make(http.Header) // net/http does without as well
		}
		request.Header.Set(KeyHeader, key)
	}
	follower := following{cmp.Or(client, http.DefaultClient), ""}
	answer, err := follower.do(request)
	if err != nil {
		return nil, unanswered(request, answer, err)
	}
	if err := Outcome(answer); err != nil {
		if follower.refused != "" {
			err = fmt.Errorf("%w: a redirect to %s that would become a GET", err, follower.refused)
		}
		return nil, errors.Join(err, answer.Body.Close())
	}
	return answer, nil
}

// following is a client for one request, whose method it keeps.
type following struct {
	client  *http.Client
	refused string // the host of the redirect that would have changed it
}

func (f *following) do(request *http.Request) (*http.Response, error) {
	keeping := *f.client
	keeping.CheckRedirect = f.check
	return keeping.Do(request)
}

// check asks the client first: it may give the next request its method back.
func (f *following) check(next *http.Request, via []*http.Request) error {
	if f.client.CheckRedirect != nil {
		if err := f.client.CheckRedirect(next, via); err != nil {
			return err
		}
	} else if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	if cmp.Or(next.Method, http.MethodGet) != cmp.Or(via[0].Method, http.MethodGet) { // "" is one
		f.refused = next.URL.Host
		return http.ErrUseLastResponse
	}
	return nil
}

const maxRedirects = 10 // net/http's own, where a client says nothing

// addressed refuses a request that does not say whom to ask. A transport's error of it looks like that of a service which is away.
func addressed(request *http.Request) error {
	u, lacks := request.URL, ""
	switch {
	case u == nil:
		lacks = "URL"
	case u.Scheme == "":
		lacks = "scheme in its URL"
	case u.Host == "" && (u.Scheme == "http" || u.Scheme == "https" || u.Opaque != ""): // Opaque: of localhost:8080/x
		lacks = "host in its URL"
	default:
		return nil
	}
	return fmt.Errorf("%s: the request has no %s", request.Method, lacks)
}

// unanswered is what a call without an answer means, or with one that the client made an error of.
func unanswered(request *http.Request, redirect *http.Response, err error) error {
	var about *url.Error
	if usererr.As(err, &about) {
		err = about.Err // it names the URL, and what is in its query
	}
	var noAddress *net.AddrError // of a port that is none, say
	counts := redirect != nil || // as net/http has it where it was told not to follow
		usererr.As(err, &noAddress)
	// What net/http says in words only.
	switch said := usererr.Text(err); {
	case strings.HasPrefix(said, "unsupported protocol scheme"), strings.HasPrefix(said, "http: no Host in request URL"):
		counts = true
	case strings.HasPrefix(said, "failed to parse Location header"):
		err, counts = errors.New("redirected to what is no address"), true // it has the whole of it, and what is in its query
	}
	err = fmt.Errorf("%s %s: %w", request.Method, request.URL.Host, err)
	var dialled *net.OpError
	switch {
	case counts, request.Context().Err() != nil:
		return err
	case usererr.Is(err, context.DeadlineExceeded) && !(usererr.As(err, &dialled) && dialled.Op == "dial"):
		return err // the client's Timeout
	}
	return compensator.Unavailable(err)
}

// Outcome is what an answer means for the entry that asked, for whoever calls by other means than Do:
//
//	2xx                          nil
//	401, 407, 429, 502, 503, 504 Unavailable: of the service, or of who calls it; this entry is not at fault. With a Retry-After, of
//	                             seconds or a date, it waits for that, an hour at most
//	422                          Permanent: the service has read this content, and will never take it
//	any other                    a plain error, which counts: it may be this entry that they fail on
//
// It is an *Error within. What a service says otherwise, by its contract, the handler tells from that, and returns Permanent of it, say,
// or nil. Of a body that is no 2xx's it reads 4 KiB at most, of a 101's nothing; it closes none, and does without any.
func Outcome(answer *http.Response) error {
	if answer.StatusCode/100 == 2 {
		return nil
	}
	err := &Error{StatusCode: answer.StatusCode, Header: answer.Header, text: answer.Status}
	if asked := answer.Request; asked != nil && asked.URL != nil {
		err.text = asked.Method + " " + asked.URL.Host + ": " + err.text
	}
	if answer.Body != nil && answer.StatusCode/100 != 1 { // a 101's is the connection, and ends when the service has it
		err.Body, _ = io.ReadAll(io.LimitReader(answer.Body, maxBody)) // what there is of it
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
	longestWait = time.Hour // a service that is up again sooner than it said is not left for longer
)

// Error is an answer that is no 2xx. Its text is the method, the host and the status: a body may hold what nobody is to see.
type Error struct {
	StatusCode int
	Header     http.Header
	Body       []byte // its first 4 KiB

	text string
}

func (e *Error) Error() string { return e.text }

// retryAfter reads a header's seconds, however many, or its date by this process's clock (RFC 9110, 10.2.3). 0 or less: there is nothing to wait for.
func retryAfter(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the highest
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return time.Until(at)
}
