package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/ui"
)

// The pages of two logs are below /ops/orders/ and /ops/stock/.
func ExampleNew() {
	rights := admin.AccessFunc(func(_ context.Context, a admin.Actor, _ admin.Right, _ admin.Subject) bool { return a.ID == "mei" })
	open := func(name string) *admin.Admin {
		c := compensator.Must(compensator.New(context.Background(), compensator.Config{
			Name: name, Operations: &compensator.Operations{},
			Store: compensatortest.NewMemoryStore(), // in production: DB
		}))
		return compensator.Must(admin.New(c, admin.Options{Access: rights}))
	}
	session := func(*http.Request) (admin.Actor, bool) { return admin.Actor{ID: "mei"}, true } // in production: the session of your application
	pages, err := ui.New(ui.Options{Identify: session, Base: "/ops/"}, open("orders"), open("stock"))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/ops/", pages)

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/ops/", nil))
	fmt.Println(answer.Code, answer.Header().Get("Location"))
	// Output: 303 /ops/orders/
}
