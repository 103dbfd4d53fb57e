package admin_test

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest"
)

// rights is an example of an application's rules.
func rights(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
	switch right {
	case admin.SeeOverview, admin.SeeEntries:
		return true
	case admin.Requeue:
		return a.ID == "mei" && on.Type == "refund" && on.Amount.Known() && on.Amount.Minor < 100_000
	}
	return false
}

func Example() {
	ctx := context.Background()
	c := compensator.Must(compensator.New(ctx, compensator.Config{ // a real service sets DB and Redis
		Store: compensatortest.NewMemoryStore(), Queue: compensatortest.NewMemoryQueue().Client(), Operations: &compensator.Operations{},
	}))
	defer c.Close()
	d := compensator.Must(admin.New(c, admin.Options{Access: admin.AccessFunc(rights)}))
	groups, _, err := d.Groups(ctx, admin.Actor{ID: "mei"})
	fmt.Println(len(groups), "groups of failures,", err)
	_, err = d.Change(ctx, admin.Actor{ID: "mei"}, admin.Change{Action: admin.Requeue, Entries: []admin.Seen{{Version: 3}}})
	fmt.Println(err)
	// Output:
	// 0 groups of failures, <nil>
	// compensator: reason: is empty
}
