package httpcall

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/observe"
)

// Failure: F79
func TestJSONIsPostedAndItsAnswerRead(t *testing.T) {
	t.Parallel()
	type charge struct{ Cents int }
	response := make(chan string, 1)
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, []string{"POST", "application/json", "application/json", "0-0"}, []string{r.Method, r.Header.Get("Content-Type"), r.Header.Get("Accept"), r.Header.Get(KeyHeader)})
		var got charge
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		assert.Equal(t, charge{100}, got)
		text := <-response
		if text == "422" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_, _ = io.WriteString(w, text)
	}))
	defer bank.Close()
	post := func(text string, into any) error {
		response <- text
		return PostJSON(t.Context(), bank.Client(), bank.URL+"/charges", "0-0", charge{100}, into)
	}
	var got struct{ ID string }
	require.NoError(t, post(`{"ID":"ch-1"}`, &got))
	require.Equal(t, "ch-1", got.ID)
	require.NoError(t, post("no JSON", nil))
	require.NoError(t, post(`"`+strings.Repeat("a", 2*maxAnswer)+`"`, nil))

	for text, into := range map[string]any{"no JSON": &got, "": &got, `"` + strings.Repeat("a", 2*maxAnswer) + `"`: new(string)} {
		err := post(text, into)
		require.ErrorContains(t, err, "read the answer, 200 OK: ")
		require.Equal(t, observe.Failure, compensator.VerdictOf(err))
	}
	require.Equal(t, observe.Permanent, compensator.VerdictOf(post("422", &got)))

	err := PostJSON(t.Context(), nil, bank.URL, "0-0", func() {}, nil)
	require.ErrorContains(t, err, "encode a request: ")
	require.Equal(t, observe.Failure, compensator.VerdictOf(err))
}

func TestAddressThatCannotBeReadCountsAndIsNotShown(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://pay.example/hook?token=s3cret\n":  "make a request: net/url: ",
		"http://user:s3cret@a b/":                  "make a request: the address is none",
		"http://user:s3cret/":                      "make a request: the address is none",
		"http://us er:s3cret@a/":                   "make a request: net/url: ",
		"https://pay.example/%zz?token=s3cret":     "make a request: the address is none",
		"s3cret:s3cret@pay.example/charges":        "POST: the request has no host in its URL",
		"://s3cret":                                "make a request: missing ",
		"10.0.0.1:8080/hook?token=s3cret":          "make a request: first path segment ",
		"":                                         "POST: the request has no scheme in its URL",
		"pay.example/charges?token=s3cret":         "POST: the request has no scheme in its URL",
		"//user:s3cret@pay.example/charges":        "POST: the request has no scheme in its URL",
		"localhost:8080/x?token=s3cret":            "POST: the request has no host in its URL",
		"https:///charges?token=s3cret":            "POST: the request has no host in its URL",
		"http://user:s3cret@/charges?token=s3cret": "POST: the request has no host in its URL",
		"http:pay.example/charges?token=s3cret":    "POST: the request has no host in its URL",
	} {
		err := PostJSON(t.Context(), nil, address, "0-0", 1, nil)
		assert.ErrorContains(t, err, want, "%q", address)
		assert.Equal(t, observe.Failure, compensator.VerdictOf(err), "%q", address)
		assert.NotContains(t, fmt.Sprint(err), "s3cret")
	}
}
