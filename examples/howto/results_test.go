package howto

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

// TestRequestGetsTheResultOrALink has requests for a refund that is slow, one that was refused, and one that nobody
// recorded.
func TestRequestGetsTheResultOrALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), PollInterval: 24 * time.Hour, ReconcileInterval: 24 * time.Hour})
		require.NoError(t, err)
		defer c.Close()
		answered := make(chan struct{})
		refunds, err := compensator.HandleResult(t.Context(), c, "refund", func(_ context.Context, _ *compensator.Entry, r Refund) (Answer, error) {
			if r.OrderID == "refused" {
				return Answer{}, compensator.Permanent(errors.New("no such order"))
			}
			<-answered
			return Answer{"R-" + r.OrderID}, nil
		}, nil)
		require.NoError(t, err)
		compensatortest.Run(t, c)
		api := RefundAPI(c, refunds)
		ask := func(method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			return w
		}

		slow := ask(http.MethodPost, "/refunds/42")
		require.Equal(t, http.StatusAccepted, slow.Code)
		require.Equal(t, "/refunds/42", slow.Header().Get("Location"))
		close(answered)
		for _, method := range []string{http.MethodGet, http.MethodPost} { // a repeated request finds the same entry
			done := ask(method, "/refunds/42")
			require.Equal(t, http.StatusOK, done.Code)
			require.JSONEq(t, `{"Reference":"R-42"}`, done.Body.String())
		}

		require.Equal(t, http.StatusAccepted, ask(http.MethodPost, "/refunds/refused").Code, "a person may still requeue it")
		_, err = c.Cancel(t.Context(), compensator.IdempotencyKey("refund-refused"))
		require.NoError(t, err)
		require.Equal(t, http.StatusConflict, ask(http.MethodGet, "/refunds/refused").Code)
		require.Equal(t, http.StatusNotFound, ask(http.MethodGet, "/refunds/43").Code)
	})
}

type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// shop opens a log and a table of orders on SQLite, and a partner that answers every call.
func shop(t *testing.T) (c *compensator.Compensator, db *sql.DB, calls *atomic.Int64) {
	t.Helper()
	db, err := compensator.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, compensator.Migrate(t.Context(), db))
	_, err = db.Exec("CREATE TABLE orders (id TEXT, state TEXT, reference TEXT)")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO orders VALUES ('42', 'paid', '')")
	require.NoError(t, err)
	c, err = compensator.New(t.Context(), compensator.Config{DB: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	calls = new(atomic.Int64)
	before := partner
	t.Cleanup(func() { partner = before })
	partner = &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		calls.Add(1)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"Reference":"R-42"}`)), Request: r}, nil
	})}
	return c, db, calls
}

func order(t *testing.T, db *sql.DB) (state, reference string) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT state, reference FROM orders").Scan(&state, &reference))
	return state, reference
}

func TestPartnersAnswerIsWrittenIntoTheOrder(t *testing.T) {
	c, db, calls := shop(t)
	refunds, err := RefundThenWrite(c)
	require.NoError(t, err)
	entry := compensatortest.Call(t, c, refunds.Type, Refund{OrderID: "42"}, compensator.Options{})
	require.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
	answer, err := refunds.Result(t.Context(), entry.ID)
	require.NoError(t, err)
	require.Equal(t, Answer{"R-42"}, answer)
	state, reference := order(t, db)
	require.Equal(t, "refunded R-42", state+" "+reference)
	require.EqualValues(t, 1, calls.Load())
}

func TestHandlerCompletesItsEntryInYourTransaction(t *testing.T) {
	c, db, calls := shop(t)
	tell, err := compensator.Declare[Refund](t.Context(), c, "tell", nil)
	require.NoError(t, err)
	refunds, err := RefundInYourTransaction(c, tell)
	require.NoError(t, err)
	entry := compensatortest.Call(t, c, refunds, Refund{OrderID: "42"}, compensator.Options{})
	require.Equal(t, compensator.Succeeded, entry.State, entry.LastError)
	require.Equal(t, compensator.EndedByComplete, entry.EndedBy)
	compensatortest.RequireRecorded(t, c, "tell", 1)
	state, reference := order(t, db)
	require.Equal(t, "refunded R-42", state+" "+reference)
	require.EqualValues(t, 1, calls.Load())
}
