package howto

import (
	"database/sql"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

type transport func(r *http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

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
