package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

type browser struct {
	*testing.T
	link string // link that the program printed
	http *http.Client
	stop func(how os.Signal) answer
}

func (b *bed) serving(args ...string) *browser {
	cmd := b.program(append([]string{"ui", "--listen", "127.0.0.1:0"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	link, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		require.NoError(b, err, errs.String())
	}
	jar, err := cookiejar.New(nil)
	require.NoError(b, err)
	client := &http.Client{Jar: jar, Timeout: harness.Timeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: toLoopback}}
	return &browser{b.T, strings.TrimSpace(link), client, func(how os.Signal) answer {
		require.NoError(b, cmd.Process.Signal(how))
		_ = cmd.Wait()
		return answer{stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
	}}
}

// toLoopback dials 127.0.0.1 for every host. Browsers resolve *.localhost to loopback, but some of Go's resolvers do
// not.
func toLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
}

func (b *browser) ask(path string, form url.Values) (int, string) {
	at, err := url.Parse(b.link)
	require.NoError(b, err)
	address := "http://" + at.Host + path
	var got *http.Response
	if form == nil {
		got, err = b.http.Get(address)
	} else {
		got, err = b.http.PostForm(address, form)
	}
	require.NoError(b, err)
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	require.NoError(b, err)
	return got.StatusCode, string(text)
}

func (b *browser) enter() (int, string) {
	at, err := url.Parse(b.link)
	require.NoError(b, err)
	status, text := b.ask(at.RequestURI(), nil)
	if status != http.StatusOK {
		return status, text
	}
	require.Contains(b, text, `content="0;url=/"`)
	return b.ask("/", nil)
}

// Failure: F136
func TestPagesAreServedToOneBrowserAndOnlyShow(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t).dead(2)
			e := b.entry("d0")
			requeue := url.Values{"do": {"requeue"}, "seen": {fmt.Sprintf("%s:%d", e.ID, e.Version)}, "reason": {"PSP is back"}}

			shows := b.serving()
			for _, guess := range []string{"/", "/cases", "/assets/app.css"} {
				status, text := shows.ask(guess, nil)
				assert.Equal(t, http.StatusUnauthorized, status, guess)
				assert.NotContains(t, text, "refund")
			}
			status, _ := shows.ask("/enter?token=guess", nil)
			assert.Equal(t, http.StatusForbidden, status)
			preview, err := shows.http.Head(shows.link)
			require.NoError(t, err)
			assert.Equal(t, http.StatusMethodNotAllowed, preview.StatusCode, "it does not use the token up")
			require.NoError(t, preview.Body.Close())
			status, text := shows.enter()
			assert.Equal(t, http.StatusOK, status)
			assert.Contains(t, text, failure)
			status, _ = shows.enter()
			assert.Equal(t, http.StatusForbidden, status, "once")
			status, _ = shows.ask("/do", requeue)
			assert.Equal(t, http.StatusForbidden, status)
			assert.Equal(t, compensator.Dead, b.entry("d0").State)
			assert.Zero(t, b.count("common_process_log_operation"), "an Admin that only shows writes no refusal either")
			assert.Equal(t, codeDone, shows.stop(os.Interrupt).code)

			does := b.serving("--write")
			does.enter()
			status, text = does.ask("/do", requeue)
			assert.Equal(t, http.StatusOK, status, text)
			assert.Equal(t, compensator.Pending, b.entry("d0").State)
			assert.Equal(t, 1, b.count("common_process_log_audit WHERE actor='"+actor().ID+"'"))
			ended := does.stop(syscall.SIGTERM)
			assert.Equal(t, codeDone, ended.code, ended.stderr)
		})
	}
}

// Failure: F136
func TestPagesGoByThePolicyAsItIsNow(t *testing.T) {
	t.Parallel()
	b := inMariaDB(t).dead(1)
	e := b.entry("d0")
	does := b.serving("--write")
	status, _ := does.enter()
	require.Equal(t, http.StatusOK, status)
	answers := func(wanted int) {
		for deadline := time.Now().Add(harness.Timeout); status != wanted && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			status, _ = does.ask("/", nil)
		}
		require.Equal(t, wanted, status)
	}
	b.setPolicy(policyFor(`{"rights": ["see entries"]}`))
	answers(http.StatusForbidden)
	status, _ = does.ask("/do", url.Values{"do": {"requeue"}, "seen": {fmt.Sprintf("%s:%d", e.ID, e.Version)}, "reason": {"PSP is back"}})
	assert.Equal(t, http.StatusOK, status, "which says that it was not allowed")
	assert.Equal(t, compensator.Dead, b.entry("d0").State)
	b.setPolicy(policyFor(`{"rights": ["*"]}`))
	answers(http.StatusOK)
	b.setPolicy(`{"roles": {}}`)
	answers(http.StatusForbidden)
	does.stop(os.Interrupt)
}

// Failure: F136
func TestPagesAreServedOnLoopbackAlone(t *testing.T) {
	t.Parallel()
	b := inSQLite(t)
	for _, elsewhere := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		assert.Contains(t, b.refused(codeUsage, "ui", "--listen", elsewhere), "not on loopback", elsewhere)
	}
	first := b.serving()
	at, err := url.Parse(first.link)
	require.NoError(t, err)
	assert.Regexp(t, `^[a-z2-7]{26}\.localhost$`, at.Hostname(), "a host of its own, that nobody guesses")
	b.refused(codeUsage, "ui", "--listen", "127.0.0.1:"+at.Port())
	assert.Contains(t, b.refused(codeUsage, "ui", "--listen", "127.0.0.2:0"), "*.localhost")
	got, err := http.Get("http://127.0.0.1:" + at.Port() + at.RequestURI())
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	assert.Equal(t, http.StatusMisdirectedRequest, got.StatusCode, "by no other name, with the token neither")
	first.stop(os.Interrupt)
	b.exec("DROP TABLE common_process_log_case")
	assert.Contains(t, b.refused(codeDatabase, "ui", "--listen", "127.0.0.1:0"), "compensator migrate")
}
