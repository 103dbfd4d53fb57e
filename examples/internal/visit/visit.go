// Package visit runs a sale's service in the process of the test and sends requests to it.
package visit

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/instance"
)

// Visit is a running service and its database.
type Visit struct {
	T       *testing.T
	Address string
	Stop    func() error // stops the service and returns the error of its run
	DB      *sql.DB      // set by the test
}

// Start starts the service and returns when it listens. The service ends with the test.
func Start(t *testing.T, run func(context.Context, io.Writer) error) *Visit {
	v := &Visit{T: t}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	lines, ended := make(lineWriter, 1), make(chan error, 1)
	go func() { ended <- run(ctx, lines) }()
	select {
	case line := <-lines:
		v.Address = strings.TrimSpace(strings.TrimPrefix(line, instance.Greeting))
	case err := <-ended:
		require.NoError(t, err, "the service ended")
	}
	v.Stop = sync.OnceValue(func() error { stop(); return <-ended })
	t.Cleanup(func() { require.NoError(t, v.Stop()) })
	return v
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

// Exec changes the database without the service.
func (v *Visit) Exec(query string, args ...any) {
	v.T.Helper()
	_, err := v.DB.Exec(query, args...)
	require.NoError(v.T, err)
}

// Count returns the number that a query selects.
func (v *Visit) Count(query string, args ...any) (n int) {
	v.T.Helper()
	require.NoError(v.T, v.DB.QueryRow(query, args...).Scan(&n))
	return n
}

// Ask sends a request and returns the answer.
func (v *Visit) Ask(method, path, body string) crowd.Answered {
	v.T.Helper()
	request, err := http.NewRequestWithContext(v.T.Context(), method, "http://"+v.Address+path, strings.NewReader(body))
	require.NoError(v.T, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(v.T, err)
	defer response.Body.Close()
	var answer crowd.Answered
	require.NoError(v.T, json.NewDecoder(response.Body).Decode(&answer))
	answer.Status = response.StatusCode
	return answer
}

// Buy requests a phone.
func (v *Visit) Buy(buyer string) crowd.Answered {
	v.T.Helper()
	return v.Ask(http.MethodPost, "/seckill", fmt.Sprintf(`{"buyer":%q,"goods":"phone"}`, buyer))
}

// State asks for the state of a purchase.
func (v *Visit) State(buyer string) crowd.Answered {
	v.T.Helper()
	return v.Ask(http.MethodGet, "/seckill/phone/"+buyer, "")
}

// Await asks until the purchase has the given state.
func (v *Visit) Await(buyer, state string) crowd.Answered {
	v.T.Helper()
	var answer crowd.Answered
	require.Eventually(v.T, func() bool { answer = v.State(buyer); return answer.State == state }, time.Minute, 20*time.Millisecond, "%s is %s", buyer, state)
	return answer
}

// Refused requires that the answer has this status and code, and nothing else.
func (v *Visit) Refused(answer crowd.Answered, status int, code string) {
	v.T.Helper()
	require.Equal(v.T, crowd.Answered{Status: status, Code: code}, answer)
}
