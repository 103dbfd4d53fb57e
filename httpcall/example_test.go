package httpcall_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/httpcall"
)

// A handler returns the error of PostJSON unchanged. A status of 422 ends the attempts, because the service has read
// the content and will never accept it.
func ExamplePostJSON() {
	payments := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(httpcall.KeyHeader) == "43-0" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		fmt.Fprint(w, `{"paid": true}`)
	}))
	defer payments.Close()

	pay := func(ctx context.Context, key string, cents int) error { // in a handler, key is Entry.CallKey
		var response struct{ Paid bool }
		err := httpcall.PostJSON(ctx, payments.Client(), payments.URL, key, map[string]int{"cents": cents}, &response)
		fmt.Println(compensator.VerdictOf(err), response.Paid)
		return err
	}
	_ = pay(context.Background(), "42-0", 12900)
	err := pay(context.Background(), "43-0", -1)

	var refused *httpcall.Error
	fmt.Println(errors.As(err, &refused), refused.StatusCode)
	// Output:
	// success true
	// permanent false
	// true 422
}
