package chaos

type outcomeOf struct{ id, version uint64 }

// checkAttempts asserts G42: failed attempts are stored with their outcomes.
//
// There is one exception. A store keeps at most 50 attempts of an entry, and a new attempt replaces an old one. The
// version of the replaced attempt is lower by at least 99 (processlog.AttemptSlot). So a missing attempt is right if an
// attempt at least 99 versions later is stored.
func (st *stage) checkAttempts() {
	kept, latest := make(map[outcomeOf]bool), make(map[uint64]uint64)
	err := st.query("SELECT entry_id, row_version FROM common_process_log_attempt", func(scan func(...any) error) error {
		var of outcomeOf
		err := scan(&of.id, &of.version)
		kept[of], latest[of.id] = true, max(latest[of.id], of.version)
		return err
	})
	missing, stored := 0, make(map[outcomeOf]bool)
	if err == nil {
		err = st.query(`SELECT a.id, a.old_version, a.old_epoch=a.new_epoch AND (a.new_process_count>a.old_process_count OR a.new_compensate_count>a.old_compensate_count)
			FROM audit_trail a JOIN common_process_log l ON l.id=a.id WHERE a.op='u'`, func(scan func(...any) error) error {
			var of outcomeOf
			var counted bool
			err := scan(&of.id, &of.version, &counted)
			if stored[of] = true; counted && !kept[of] && latest[of.id] < of.version+99 {
				missing++
				st.tb.Logf("G42: entry %d failed in version %d, and the attempt is not kept", of.id, of.version)
			}
			return err
		})
	}
	if err != nil {
		st.tb.Errorf("reading the failed attempts: %v", err)
	}
	for of := range kept {
		if !stored[of] {
			missing++
			st.tb.Logf("G42: entry %d has a failed attempt in version %d, in which it was not changed, or the entry is gone", of.id, of.version)
		}
	}
	st.tb.Logf("%d failed attempts are kept", len(kept))
	if missing > 0 {
		st.tb.Errorf("G42: %d failed attempts are missing, or have no outcome", missing)
	}
}
