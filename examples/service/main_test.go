package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const asItself = "COMPENSATOR_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func service(t *testing.T) (program *exec.Cmd, said *bufio.Scanner, orders, operators string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	program = exec.Command(self)
	program.Dir, program.Env = t.TempDir(), append(os.Environ(), asItself+"=1", "ADDR=127.0.0.1:0", "OPERATORS_ADDR=127.0.0.1:0", "MYSQL_DSN=", "REDIS_ADDR=", "OPERATOR_PASSWORD=")
	output, err := program.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, program.Start())
	t.Cleanup(func() { _, _ = program.Process.Kill(), program.Wait() }) // Both return an error if the program has already ended.
	said = bufio.NewScanner(output)
	open := regexp.MustCompile(`what=(\w+) addr=(\S+)`)
	for orders == "" || operators == "" {
		require.True(t, said.Scan(), "the service ended before it listened")
		switch found := open.FindStringSubmatch(said.Text()); {
		case found == nil:
		case found[1] == "orders":
			orders = "http://" + found[2]
		default:
			operators = "http://" + found[2]
		}
	}
	return program, said, orders, operators
}

func ask(t *testing.T, method, url, password string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	if password != "" {
		r.SetBasicAuth("ann", password)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestServiceIsAskedAndStopsInGoodOrder(t *testing.T) {
	program, said, orders, operators := service(t)
	for range 2 {
		assert.Equal(t, 204, ask(t, "PUT", orders+"/orders/42", "").StatusCode)
	}
	refused := ask(t, "PUT", orders+"/orders/"+strings.Repeat("x", 200), "")
	assert.Equal(t, 400, refused.StatusCode)
	reason, err := io.ReadAll(refused.Body)
	require.NoError(t, err)
	assert.Contains(t, string(reason), "order id: 206 characters")

	nobody := ask(t, "GET", operators+"/log/", "")
	assert.Equal(t, 401, nobody.StatusCode)
	assert.Contains(t, nobody.Header.Get("WWW-Authenticate"), "Basic")
	assert.Equal(t, 401, ask(t, "GET", operators+"/log/", "guessed").StatusCode)
	page, err := io.ReadAll(ask(t, "GET", operators+"/log/entries", "try").Body)
	require.NoError(t, err)
	assert.Contains(t, string(page), "close_order")
	deadline := time.Now().Add(time.Minute)
	for ask(t, "GET", operators+"/readyz", "").StatusCode != 200 {
		require.Less(t, time.Now(), deadline, "the service did not become ready")
		time.Sleep(20 * time.Millisecond)
	}

	require.NoError(t, program.Process.Signal(syscall.SIGTERM))
	last := ""
	for said.Scan() {
		last = said.Text()
	}
	assert.Contains(t, last, "stopped in good order")
	require.NoError(t, program.Wait())
}
