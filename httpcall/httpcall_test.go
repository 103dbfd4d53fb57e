package httpcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitTimeout = time.Minute

func call(t *testing.T, ctx context.Context, url string, timeout time.Duration) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/pay?token=secret", strings.NewReader("100"))
	require.NoError(t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := Do(&http.Client{Transport: transport, Timeout: timeout}, request, "0-0")
	if err != nil {
		require.Nil(t, response)
		require.NotContains(t, err.Error(), "secret")
		require.Contains(t, err.Error(), "POST "+request.URL.Host+": ")
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body), nil
}

// Failure: F79
func TestAnswerBecomesAnOutcome(t *testing.T) {
	t.Parallel()
	date := time.Now().Add(20 * time.Minute).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		status  int
		after   string // header Retry-After
		want    observe.Verdict
		waiting time.Duration // expected wait; 0: none
	}{
		{200, "", observe.Success, 0}, {201, "", observe.Success, 0}, {204, "30", observe.Success, 0},
		{304, "", observe.Failure, 0},
		{400, "", observe.Failure, 0}, {403, "", observe.Failure, 0}, {404, "", observe.Failure, 0}, {405, "", observe.Failure, 0},
		{408, "", observe.Failure, 0}, {409, "", observe.Failure, 0}, {410, "", observe.Failure, 0}, {425, "", observe.Failure, 0},
		{500, "", observe.Failure, 0}, {500, "30", observe.Failure, 0},
		{422, "", observe.Permanent, 0}, {422, "30", observe.Permanent, 0},
		{401, "", observe.Unavailable, 0}, {407, "", observe.Unavailable, 0}, {429, "", observe.Unavailable, 0},
		{502, "", observe.Unavailable, 0}, {503, "", observe.Unavailable, 0}, {504, "", observe.Unavailable, 0},
		{429, "30", observe.Unavailable, 30 * time.Second}, {503, date, observe.Unavailable, 20 * time.Minute},
		{503, "86400", observe.Unavailable, time.Hour}, {503, "2147483648", observe.Unavailable, time.Hour},
		{503, strings.Repeat("9", 40), observe.Unavailable, time.Hour}, {503, "-" + strings.Repeat("9", 40), observe.Unavailable, 0},
		{503, "-1", observe.Unavailable, 0}, {503, "soon", observe.Unavailable, 0},
		{503, "Sun, 06 Nov 1994 08:49:37 GMT", observe.Unavailable, 0}, {503, "0", observe.Unavailable, 0},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.after), func(t *testing.T) {
			t.Parallel()
			bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(c.status)
				if c.status != 204 && c.status != 304 {
					_, _ = io.WriteString(w, strings.Repeat("b", 5000))
				}
			}))
			defer bank.Close()
			body, err := call(t, t.Context(), bank.URL, 0)
			require.Equal(t, c.want, compensator.VerdictOf(err), "%v", err)
			if err == nil {
				require.True(t, c.status == 204 || len(body) == 5000)
				return
			}
			var response *Error
			require.ErrorAs(t, err, &response)
			require.Equal(t, c.status, response.StatusCode)
			require.Equal(t, c.after, response.Header.Get("Retry-After"))
			if c.status != 304 {
				require.Equal(t, strings.Repeat("b", maxBody), string(response.Body))
			}
			require.NotContains(t, err.Error(), "bbb")
			require.Contains(t, err.Error(), http.StatusText(c.status))
			require.Equal(t, c.waiting, waits(t, err).Round(time.Minute/2), "%v", err)
		})
	}
}

// waits returns for how long err makes the entry wait. It subtracts 5 s from the measured wait: one second is the
// type's own retry delay, and four seconds allow for a slow machine. So a wait that err has not asked for counts as 0.
func waits(t *testing.T, err error) time.Duration {
	t.Helper()
	c, e := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, e)
	defer func() { require.NoError(t, c.Close()) }()
	pay, e := compensator.Handle(t.Context(), c, "pay", func(context.Context, *compensator.Entry, int) error { return err }, &compensator.HandlerConfig[int]{Retry: compensator.Fixed(time.Second)})
	require.NoError(t, e)
	before := time.Now()
	return max(0, compensatortest.Call(t, c, pay, 100, compensator.Options{}).NextAt.Sub(before)-5*time.Second)
}

// Failure: F79
func TestKeyGoesWithTheCall(t *testing.T) {
	t.Parallel()
	var keys [][]string
	bank := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { keys = append(keys, r.Header.Values(KeyHeader)) }))
	defer bank.Close()
	e := &compensator.Entry{Epoch: 2}
	for _, key := range []string{e.CallKey(), "shop-" + e.CallKey() + "-fee", ""} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, bank.URL, nil)
		require.NoError(t, err)
		response, err := Do(bank.Client(), request, key)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	require.Equal(t, [][]string{{"0-2"}, {"shop-0-2-fee"}, nil}, keys)
}

func TestRequestWithoutHeadersIsSent(t *testing.T) {
	t.Parallel()
	var key string
	bank := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { key = r.Header.Get(KeyHeader) }))
	defer bank.Close()
	to, err := url.Parse(bank.URL)
	require.NoError(t, err)
	response, err := Do(bank.Client(), &http.Request{Method: http.MethodGet, URL: to}, "0-0")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, "0-0", key)
}

// Failure: F79
func TestWhoIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() { // This server closes every connection at once.
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	for _, at := range []net.Listener{listener, gone} {
		_, err = call(t, t.Context(), "http://"+at.Addr().String(), waitTimeout)
		require.Equal(t, observe.Unavailable, compensator.VerdictOf(err), "%v", err)
	}
}

// Failure: F79
func TestTimeThatIsOverIsAFailure(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 9), make(chan struct{})
	bank := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-release }))
	defer bank.Close()
	defer close(release)
	_, err := call(t, t.Context(), bank.URL, 50*time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the client's")
	require.Equal(t, observe.Failure, compensator.VerdictOf(err))

	ctx, stop := context.WithCancelCause(t.Context())
	go func() { <-entered; stop(compensator.ErrStopping) }()
	_, err = call(t, ctx, bank.URL, waitTimeout)
	require.ErrorIs(t, err, compensator.ErrStopping, "so that a stop is known for one")
	require.Equal(t, observe.Failure, compensator.VerdictOf(err))
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestRequestOfNobodyCounts(t *testing.T) {
	t.Parallel()
	for _, to := range []*url.URL{nil, {}, {Path: "/pay"}, {Host: "pay.example"}, {Scheme: "http", Path: "/pay"}, {Scheme: "https", Opaque: "pay"}, {Scheme: "localhost", Opaque: "8080/x"}} {
		body := &closing{Reader: strings.NewReader("100")}
		_, err := Do(nil, &http.Request{Method: http.MethodPost, URL: to, Body: body}, "0-0")
		require.ErrorContains(t, err, "POST: the request has no ")
		require.Equal(t, observe.Failure, compensator.VerdictOf(err), "%v", to)
		require.True(t, body.closed, "as http.Client has it")
		_, err = Do(nil, &http.Request{Method: http.MethodPost, URL: to}, "")
		require.ErrorContains(t, err, "POST: the request has no ")
	}
}

func TestSchemeThatNobodyKnowsCounts(t *testing.T) {
	t.Parallel()
	err := PostJSON(t.Context(), nil, "htp://pay.example/pay?token=secret", "0-0", 1, nil)
	require.EqualError(t, err, `POST pay.example: unsupported protocol scheme "htp"`)
	require.Equal(t, observe.Failure, compensator.VerdictOf(err))
}

// Failure: F79
func TestRedirectThatIsNotFollowedCounts(t *testing.T) {
	t.Parallel()
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	defer bank.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, _ []*http.Request) error {
		if next.URL.Host == "elsewhere" {
			return errors.New("not there")
		}
		return nil
	}}
	for _, to := range []string{"http://[::1/pay?token=secret", "http://elsewhere/pay?token=secret", "htp://other?token=secret", "http:///pay?token=secret", "http://pay.example:99999/pay?token=secret"} {
		err := PostJSON(t.Context(), client, bank.URL+"/pay?to="+url.QueryEscape(to), "0-0", 1, nil)
		require.ErrorContains(t, err, "POST 127.0.0.1:")
		require.NotContains(t, err.Error(), "secret")
		require.Equal(t, observe.Failure, compensator.VerdictOf(err), "%v", err)
	}
}

// The answer to the GET would say nothing about the call.
// Failure: F79
func TestRedirectThatWouldMakeAGetOfACallIsNotFollowed(t *testing.T) {
	t.Parallel()
	var seen []string
	mux := http.NewServeMux()
	mux.HandleFunc("/pay", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.Header.Get("Answer"))
		assert.NoError(t, err)
		http.Redirect(w, r, "/v2/pay?token=secret", code)
	})
	mux.HandleFunc("/v2/pay", func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		seen = append(seen, r.Method+" "+string(body))
	})
	bank := httptest.NewServer(mux)
	defer bank.Close()
	host := strings.TrimPrefix(bank.URL, "http://")
	asked := 0
	asking := *bank.Client()
	asking.CheckRedirect = func(*http.Request, []*http.Request) error { asked++; return nil }
	for _, client := range []*http.Client{bank.Client(), &asking} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", ""} {
				seen = nil
				request, err := http.NewRequestWithContext(t.Context(), method, bank.URL+"/pay", strings.NewReader("100"))
				require.NoError(t, err)
				request.Header.Set("Answer", strconv.Itoa(code))
				request.Method = method // A request that was built without http.NewRequest may have an empty method.
				response, err := Do(client, request, "0-0")
				follows := code > 303 || method == "GET" || method == "HEAD" || method == ""
				require.Equal(t, follows, err == nil, "%d %s: %v", code, method, err)
				if follows {
					require.NoError(t, response.Body.Close())
					require.Len(t, seen, 1)
					require.Equal(t, cmp.Or(method, "GET"), strings.Fields(seen[0])[0])
					continue
				}
				require.Empty(t, seen)
				require.EqualError(t, err, fmt.Sprintf("%s %s: %d %s: a redirect to %s that would become a GET", method, host, code, http.StatusText(code), host))
				require.Equal(t, observe.Failure, compensator.VerdictOf(err))
				var is *Error
				require.ErrorAs(t, err, &is)
			}
		}
	}
	require.Equal(t, 5*7, asked)
}

// Failure: F79
func TestRedirectsAreFollowedAsTheClientHasIt(t *testing.T) {
	t.Parallel()
	times := 0
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		times++
		http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
	}))
	defer bank.Close()
	require.ErrorContains(t, PostJSON(t.Context(), bank.Client(), bank.URL, "0-0", 1, nil), "stopped after 10 redirects")
	require.Equal(t, 10, times)
	client := *bank.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	require.EqualError(t, PostJSON(t.Context(), &client, bank.URL, "0-0", 1, nil), "POST "+strings.TrimPrefix(bank.URL, "http://")+": 307 Temporary Redirect")
}

type own func(*http.Request) (*http.Response, error)

func (o own) RoundTrip(request *http.Request) (*http.Response, error) { return o(request) }

func TestClientMayKnowOtherSchemes(t *testing.T) {
	t.Parallel()
	var asked []string
	there := true
	client := &http.Client{Transport: own(func(request *http.Request) (*http.Response, error) {
		if !there {
			return nil, io.ErrUnexpectedEOF
		}
		asked = append(asked, request.URL.String())
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})}
	schemes := []string{"unix:///run/bank.sock", "bank://charges/1"}
	for _, address := range schemes {
		require.NoError(t, PostJSON(t.Context(), client, address, "0-0", 1, nil))
	}
	require.Equal(t, schemes, asked)
	there = false
	for _, address := range schemes {
		require.Equal(t, observe.Unavailable, compensator.VerdictOf(PostJSON(t.Context(), client, address, "0-0", 1, nil)))
	}
}

// The body of a 101 is the connection itself and ends only when the service closes it.
// Failure: F79
func TestAnswerThatSwitchesProtocolsIsNoAnswer(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: pay\r\n\r\n")
		assert.NoError(t, err)
		_, _ = io.Copy(io.Discard, buffered) // Read until the caller closes the connection.
	}))
	defer bank.Close()
	ended := make(chan error, 1)
	go func() { ended <- PostJSON(t.Context(), bank.Client(), bank.URL, "0-0", 100, nil) }()
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "101 Switching Protocols")
		require.Equal(t, observe.Failure, compensator.VerdictOf(err))
	case <-time.After(waitTimeout):
		require.Fail(t, "its body is read")
	}
	select {
	case <-gone:
	case <-time.After(waitTimeout):
		require.Fail(t, "its connection is kept")
	}
}

// Failure: F79
func TestAnswerWithoutABodyIsRead(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]observe.Verdict{200: observe.Success, 422: observe.Permanent, 500: observe.Failure, 503: observe.Unavailable} {
		require.Equal(t, want, compensator.VerdictOf(Outcome(&http.Response{StatusCode: status})))
	}
}

func TestAnswerOfAnotherClientIsRead(t *testing.T) {
	t.Parallel()
	err := Outcome(&http.Response{StatusCode: 409, Status: "409 Conflict", Body: io.NopCloser(strings.NewReader("in progress"))})
	var response *Error
	require.ErrorAs(t, err, &response)
	assert.Equal(t, "409 Conflict", err.Error())
	assert.Equal(t, "in progress", string(response.Body))
}
