package desk_test

import (
	"context"
	"fmt"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/desk"
)

// rights is an application's: mei may put refunds below ¥1,000 right.
func rights(_ context.Context, a desk.Actor, right desk.Right, on desk.Subject) bool {
	switch right {
	case desk.SeeOverview, desk.SeeEntries:
		return true
	case desk.Requeue:
		return a.ID == "mei" && on.Type == "refund" && on.Amount.Known() && on.Amount.Minor < 100_000
	}
	return false
}

func Example() {
	ctx := context.Background()
	c := compensator.Must(compensator.New(ctx, compensator.Config{ // DB and Redis, in a service
		Store: compensatortest.NewMemoryStore(), Queue: compensatortest.NewMemoryQueue().Client(), Operations: &compensator.Operations{},
	}))
	defer c.Close()
	d := compensator.Must(desk.New(c, desk.Options{Access: desk.AccessFunc(rights)}))
	groups, _, err := d.Groups(ctx, desk.Actor{ID: "mei"})
	fmt.Println(len(groups), "groups of failures,", err)
	_, err = d.Change(ctx, desk.Actor{ID: "mei"}, desk.Change{Action: desk.Requeue, Entries: []desk.Seen{{Version: 3}}})
	fmt.Println(err)
	// Output:
	// 0 groups of failures, <nil>
	// compensator: reason: is empty
}
