package chaos

import (
	"context"
	"time"

	"github.com/compensator-go/compensator/internal/grants"
	"github.com/compensator-go/compensator/processlog"
)

// checkLimits asserts G41: limits hold over all processes. It checks what the triggers have recorded of typeBook:
//
//   - By the database's clock, no window has more starts of a partner than bookLimit allows.
//   - At most as many entries of a partner have a permit at the same time as bookLimit allows.
func (st *stage) checkLimits() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rate := processlog.LimitValues{Interval: bookLimit.Rate.Per / time.Duration(bookLimit.Rate.Starts), Burst: bookLimit.Burst}
	total, reached, err := grants.Check(ctx, st.db, typeBook, rate)
	if err != nil {
		st.tb.Errorf("G41: %v", err)
	}
	var permits grants.Permits
	err = st.query(`SELECT id, idempotent_id, COALESCE(old_version, 0), new_version, COALESCE(old_lease_until, 0), new_lease_until, now_us DIV 1000
		FROM audit_trail WHERE business_type='`+typeBook+`' AND op<>'d' ORDER BY seq`, func(scan func(...any) error) error {
		var c grants.Change
		err := scan(&c.ID, &c.Key, &c.Old, &c.New, &c.OldLease, &c.LeaseUntil, &c.ChangedAtMS)
		c.Key = partnerOf(c.Key)
		permits.Note(c)
		return err
	})
	if err != nil {
		st.tb.Errorf("reading the leases of %s: %v", typeBook, err)
	}
	st.tb.Logf("%d starts of %s were granted, %d grants used up a burst, and at most %d entries of a partner held permits at once", total, typeBook, reached, permits.Most())
	if permits.Most() > bookLimit.Concurrent {
		st.tb.Errorf("G41: %d entries of a partner held permits at once, and the limit is %d", permits.Most(), bookLimit.Concurrent)
	}
	if reached == 0 || permits.Most() < bookLimit.Concurrent {
		st.tb.Errorf("the limit of %s was never reached, so its check proves nothing", typeBook)
	}
}
