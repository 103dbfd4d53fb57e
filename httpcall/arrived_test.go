package httpcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func saysUnknown(err error) bool {
	var u interface{ OutcomeUnknown() bool }
	return errors.As(err, &u) && u.OutcomeUnknown()
}

func bankOf(t *testing.T, handler http.HandlerFunc) (string, *http.Client) {
	bank := httptest.NewServer(handler)
	t.Cleanup(bank.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return bank.URL, &http.Client{Transport: transport}
}

func hangUp(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(err)
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		panic(err)
	}
}

// Failure: F79, F119
func TestErrorSaysThatTheCallMayHaveArrived(t *testing.T) {
	t.Parallel()
	silent := func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		<-r.Context().Done() // the client has given up
	}
	post := func(t *testing.T, ctx context.Context, timeout time.Duration, handler http.HandlerFunc) error {
		address, client := bankOf(t, handler)
		client.Timeout = timeout
		return PostJSON(ctx, client, address, "0-0", 1, new(int))
	}
	for name, call := range map[string]func(t *testing.T) error{
		"the client waits no longer": func(t *testing.T) error { return post(t, t.Context(), 100*time.Millisecond, silent) },
		"the context of the request ends": func(t *testing.T) error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			return post(t, ctx, 0, silent)
		},
		"the connection breaks": func(t *testing.T) error { return post(t, t.Context(), 0, hangUp) },
		"a gateway has no answer": func(t *testing.T) error {
			return post(t, t.Context(), 0, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) })
		},
		"a gateway has no usable answer": func(t *testing.T) error {
			return post(t, t.Context(), 0, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "30")
				w.WriteHeader(http.StatusBadGateway)
			})
		},
		"the content of the answer cannot be read": func(t *testing.T) error {
			return post(t, t.Context(), 0, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "no JSON") })
		},
		"a service to which a redirect leads breaks the connection": func(t *testing.T) error {
			address, _ := bankOf(t, hangUp)
			return post(t, t.Context(), 0, http.RedirectHandler(address, http.StatusTemporaryRedirect).ServeHTTP)
		},
		"a transport without hooks breaks the connection": func(t *testing.T) error {
			client := &http.Client{Transport: own(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })}
			return PostJSON(t.Context(), client, "http://pay.example", "0-0", 1, nil)
		},
		// The transport sends the second call twice. The first request arrives. The server then stops listening and
		// breaks the connection, so the repeated request finds no server. The client gets the error of the repeated
		// request, although the first request has arrived.
		"the transport repeats the request in vain": func(t *testing.T) error {
			var bank *httptest.Server
			calls := 0
			bank = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if calls++; calls == 1 {
					_, _ = io.Copy(io.Discard, r.Body)
					return
				}
				assert.NoError(t, bank.Listener.Close())
				hangUp(w, r)
			}))
			t.Cleanup(bank.Close)
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: transport}
			require.NoError(t, PostJSON(t.Context(), client, bank.URL, "0-0", 1, nil))
			err := PostJSON(t.Context(), client, bank.URL, "0-1", 1, nil)
			var dialled *net.OpError
			require.ErrorAs(t, err, &dialled)
			require.Equal(t, "dial", dialled.Op)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := call(t)
			require.Error(t, err)
			require.True(t, saysUnknown(err), "%v", err)
		})
	}
}

// Failure: F79, F119
func TestErrorOfACallThatDidNotArriveSaysNothing(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	nobody := "http://" + gone.Addr().String()
	fails := func(err error) *http.Client {
		return &http.Client{Transport: own(func(*http.Request) (*http.Response, error) { return nil, err })}
	}
	noAddress := &net.DNSError{Err: "no such host", Name: "pay.example", IsNotFound: true}
	post := func(t *testing.T, client *http.Client, address string) error {
		return PostJSON(t.Context(), client, address, "0-0", 1, nil)
	}
	cases := map[string]func(t *testing.T) error{
		"nobody listens": func(t *testing.T) error { return post(t, nil, nobody) },
		"no address of the host": func(t *testing.T) error {
			transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, noAddress }}
			return post(t, &http.Client{Transport: transport}, "http://pay.example")
		},
		"no address, by a transport without hooks": func(t *testing.T) error { return post(t, fails(noAddress), "http://pay.example") },
		"nobody listens, by a transport without hooks": func(t *testing.T) error {
			return post(t, fails(&net.OpError{Op: "dial", Err: io.EOF}), "http://pay.example")
		},
		"the client waits no longer for a connection": func(t *testing.T) error {
			transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { <-t.Context().Done(); return nil, io.EOF }}
			return post(t, &http.Client{Transport: transport, Timeout: 50 * time.Millisecond}, "http://pay.example")
		},
		"the certificate is not trusted": func(t *testing.T) error {
			bank := httptest.NewUnstartedServer(http.NotFoundHandler())
			bank.Config.ErrorLog = log.New(io.Discard, "", 0)
			bank.StartTLS()
			t.Cleanup(bank.Close)
			return post(t, &http.Client{Transport: &http.Transport{}}, bank.URL)
		},
		"a scheme that nobody knows": func(t *testing.T) error { return post(t, nil, "htp://pay.example") },
		"a redirect to nobody": func(t *testing.T) error {
			address, client := bankOf(t, http.RedirectHandler(nobody, http.StatusTemporaryRedirect).ServeHTTP)
			return post(t, client, address)
		},
		"a redirect to no address": func(t *testing.T) error {
			address, client := bankOf(t, http.RedirectHandler("http://[::1/pay", http.StatusTemporaryRedirect).ServeHTTP)
			return post(t, client, address)
		},
	}
	for _, status := range []int{301, 400, 409, 422, 429, 500, 503} {
		cases["the service answers "+http.StatusText(status)] = func(t *testing.T) error {
			address, client := bankOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/")
				w.WriteHeader(status)
			})
			return post(t, client, address)
		}
	}
	for name, call := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := call(t)
			require.Error(t, err)
			require.False(t, saysUnknown(err), "%v", err)
		})
	}
}
