package chaos

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// checkInstances asserts G44 while the apps run: the list of processes shows which processes live.
func (st *stage) checkInstances() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, err := compensator.OpenStore(ctx, st.db, compensator.DefaultTable)
	if err != nil {
		st.tb.Errorf("opening the log: %v", err)
		return
	}
	defer store.Close()
	all, err := store.(processlog.Operations).Instances(ctx)
	if err != nil {
		st.tb.Errorf("reading the processes: %v", err)
		return
	}
	newest, states := make(map[string]processlog.Instance), make(map[processlog.InstanceState]int)
	for _, i := range all {
		states[i.State()]++
		if last, found := newest[i.Name]; !found || i.StartedAt.After(last.StartedAt) {
			newest[i.Name] = i
		}
		if i.State() == processlog.InstanceEnded {
			st.tb.Errorf("G44: process %s of %s is listed as ended, and was never closed", i.ID, i.Name)
		}
		if isOld := i.Unseen >= 3*processlog.InstanceInterval; isOld != (i.State() == processlog.InstanceGone) {
			st.tb.Errorf("G44: process %s of %s was seen %v ago, and is listed as %s", i.ID, i.Name, i.Unseen, i.State())
		}
	}
	for _, a := range st.apps {
		if i := newest[a.name]; i.State() != processlog.InstanceLive || i.ID == (processlog.InstanceID{}) {
			st.tb.Errorf("G44: %s runs, and is listed as %s, seen %v ago", a.name, i.State(), i.Unseen)
		}
	}
	leases := 0
	err = st.query("SELECT DISTINCT LEFT(new_token, 4) FROM audit_trail WHERE op<>'d' AND new_lease_until>COALESCE(old_lease_until, 0)", func(scan func(...any) error) error {
		var mark []byte
		var token processlog.Token
		err := scan(&mark)
		copy(token[:], mark)
		leases++
		for _, i := range all {
			if token.MarkedBy(i.ID) {
				return err
			}
		}
		st.tb.Errorf("G44: a lease has the mark %x, and no listed process has it", mark)
		return err
	})
	if err != nil {
		st.tb.Errorf("reading the marks of leases: %v", err)
	}
	st.tb.Logf("processes: %v; %d of them took leases", states, leases)
}
