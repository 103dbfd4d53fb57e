package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDemoLetsInWhoHasTheTokenOnceAndStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "127.0.0.1:0", writer); _ = writer.Close() }()
	var link string
	lines := bufio.NewScanner(reader)
	for lines.Scan() && link == "" {
		if line := strings.TrimSpace(lines.Text()); strings.HasPrefix(line, "http://") {
			link = line
		}
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	require.NotEmpty(t, link)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) { // Resolve *.localhost as browsers do.
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
		}}}
	ask := func(address string) (int, string) {
		answer, err := client.Get(address)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	home, err := url.Parse(link)
	require.NoError(t, err)
	status, _ := ask("http://" + home.Host + "/ops/")
	require.Equal(t, 401, status)
	status, _ = ask("http://" + home.Host + "/enter?token=guess")
	require.Equal(t, 403, status)
	status, text := ask(link)
	require.Equal(t, 200, status)
	require.Contains(t, text, `url=/ops/"`)
	_, text = ask("http://" + home.Host + "/ops/")
	require.Contains(t, text, "Overview")
	status, _ = ask(link)
	require.Equal(t, 403, status, "once")
	for deadline := time.Now().Add(time.Minute); !strings.Contains(text, "refund"); time.Sleep(300 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), text)
		_, text = ask("http://" + home.Host + "/ops/cases")
	}
	_, text = ask("http://" + home.Host + "/ops/stats?over=24h")
	require.Contains(t, text, "v2.4.0", "the charts mark the deploys of the past")
	_, text = ask("http://" + home.Host + "/ops/instances")
	require.Contains(t, text, "api-2")
	_, text = ask("http://" + home.Host + "/ops/periodic")
	require.Contains(t, text, "stock_report")
	stop()
	require.NoError(t, <-ended)
}

func TestDemoListensOnLoopbackAlone(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), "0.0.0.0:0", io.Discard), "loopback")
}
