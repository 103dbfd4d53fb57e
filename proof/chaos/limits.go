package chaos

import (
	"context"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/grants"
	"github.com/compensator-go/compensator/processlog"
	"github.com/compensator-go/compensator/proof/chaos/history"
)

// checkLimits asserts G41: limits hold over all processes.
func (st *stage) checkLimits() {
	st.checkPermits()
	st.checkAdvances()
}

func (st *stage) checkGrants(businessType string, limit compensator.Limit) grants.Found {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rate := processlog.LimitValues{Interval: limit.Rate.Per / time.Duration(limit.Rate.Starts), Burst: limit.Burst}
	found, err := grants.Check(ctx, st.db, businessType, rate)
	if err != nil {
		st.tb.Errorf("G41: %v", err)
	}
	return found
}

func (st *stage) checkPermits() {
	found := st.checkGrants(typeBook, bookLimit)
	var permits grants.Permits
	err := st.query(`SELECT id, idempotent_id, COALESCE(old_version, 0), new_version, COALESCE(old_lease_until, 0), new_lease_until, now_us DIV 1000
		FROM audit_trail WHERE business_type='`+typeBook+`' AND op<>'d' ORDER BY seq`, func(scan func(...any) error) error {
		var c grants.Change
		err := scan(&c.ID, &c.Key, &c.Old, &c.New, &c.OldLease, &c.LeaseUntil, &c.ChangedAtMS)
		c.Key = partnerOf(c.Key, bookPartners)
		permits.Note(c)
		return err
	})
	if err != nil {
		st.tb.Errorf("reading the leases of %s: %v", typeBook, err)
	}
	st.tb.Logf("%d starts of %s were granted, %d grants used up a burst, and at most %d entries of a partner held permits at once", found.Total(), typeBook, found.Full, permits.Most())
	if permits.Most() > bookLimit.Concurrent {
		st.tb.Errorf("G41: %d entries of a partner held permits at once, and the limit is %d", permits.Most(), bookLimit.Concurrent)
	}
	if found.Full == 0 || permits.Most() < bookLimit.Concurrent {
		st.tb.Errorf("the limit of %s was never reached, so its check proves nothing", typeBook)
	}
}

type grantOf struct{ token, partner string }

// checkAdvances checks the starts that claims take in advance of the entries that use them. A claim can return such a
// start unused. The limit's key is a partner. checkAdvances asserts for each partner: the number of handlers that ran
// is at most the number of starts that were granted and not returned.
//
// checkGrants alone would miss two errors: two entries use one start, or an entry uses a start that the claim returned.
func (st *stage) checkAdvances() {
	found := st.checkGrants(typeRush, rushLimit)
	runs, err := st.readRuns()
	granted := make(map[grantOf]bool)
	if err == nil {
		err = st.query("SELECT limit_key, claim_token FROM grants WHERE limit_name='"+typeRush+"' AND starts>0", func(scan func(...any) error) error {
			var partner string
			var token []byte
			err := scan(&partner, &token)
			granted[grantOf{string(token), partner}] = true
			return err
		})
	}
	ran, advance, total := make(map[string]int), 0, 0
	if err == nil {
		err = st.query(`SELECT id, idempotent_id, new_version, new_token FROM audit_trail
			WHERE business_type='`+typeRush+`' AND op='u' AND new_lease_until>0 AND NOT new_token<=>old_token`, func(scan func(...any) error) error {
			var run outcomeOf
			var key string
			var token []byte
			if err := scan(&run.id, &key, &run.version, &token); err != nil || !runs[run] {
				return err
			}
			partner := partnerOf(key, rushPartners)
			total, ran[partner] = total+1, ran[partner]+1
			if !granted[grantOf{string(token), partner}] {
				advance++
			}
			return nil
		})
	}
	if err != nil {
		st.tb.Errorf("reading the grants, claims and runs of %s: %v", typeRush, err)
	}
	for partner, n := range ran {
		if n > found.Starts[partner] {
			st.tb.Errorf("G41: %d handlers of %s ran for partner %s, and only %d starts were granted and not returned", n, typeRush, partner, found.Starts[partner])
		}
	}
	st.tb.Logf("%d starts of %s were granted, %d handlers ran, at least %d of them with a start that an earlier claim had taken in advance, and %d grants used up a burst",
		found.Total(), typeRush, total, advance, found.Full)
	if advance == 0 {
		st.tb.Errorf("no handler of %s ran with a start that was taken in advance, so the check of such starts proves nothing", typeRush)
	}
}

func (st *stage) readRuns() (runs map[outcomeOf]bool, err error) {
	files, err := history.Files(st.cfg.Dir)
	runs = make(map[outcomeOf]bool)
	for _, name := range files {
		if err == nil {
			err = history.ReadFile(name, func(_ history.Line, r history.Record) error {
				if a, isRun := r.(*history.Attempt); isRun {
					runs[outcomeOf{a.ID, a.Version}] = true
				}
				return nil
			})
		}
	}
	return runs, err
}
