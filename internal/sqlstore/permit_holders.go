package sqlstore

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

type holder struct {
	id      processlog.ID
	version uint64
}

// parseHolders reads the form "id:version id:version". A holder that was skipped could lose its permit to another entry,
// so an invalid text is an error.
func parseHolders(text []byte) (holders []holder, err error) {
	for part := range bytes.FieldsSeq(text) {
		id, version, found := bytes.Cut(part, []byte(":"))
		var h holder
		row, err := strconv.ParseUint(string(id), 10, 64)
		if err == nil && found {
			h.version, err = strconv.ParseUint(string(version), 10, 64)
		}
		if err != nil || !found {
			return nil, fmt.Errorf("the holder %q is not an id and a version", part)
		}
		h.id = processlog.RowID(row)
		holders = append(holders, h)
	}
	return holders, nil
}

func formatHolders(holders []holder) string {
	parts := make([]string, len(holders))
	for i, h := range holders {
		parts[i] = h.id.String() + ":" + decimal(h.version)
	}
	return strings.Join(parts, " ")
}

const holdersNow = "SELECT id, version, CASE WHEN lease_until>{now} THEN 1 ELSE 0 END FROM {log}{by id} WHERE id IN ({ids}){every row}"

type permit int

const (
	permitHeld   permit = iota
	permitEnded         // the entry has moved on, or does not exist any more
	permitLapsed        // the lease has ended, and nobody has written the entry since
)

// dropEnded removes holders whose permits have ended. It checks only the holders of keys that have fewer free permits
// than the claim wants. First dropEnded fences the holders whose leases have ended, so that these holders cannot renew
// their leases.
func (p *permits) dropEnded(ctx context.Context, tx processlog.Tx, rows []processlog.Row) error {
	if p.limit.Concurrent == 0 {
		return nil
	}
	var asked []holder
	for _, k := range p.keys {
		if p.free(k) < k.wanted {
			asked = append(asked, k.holders...)
		}
	}
	state, err := p.s.permitStates(ctx, tx, asked)
	if err != nil {
		return err
	}
	var lapsed []processlog.ID
	for _, h := range asked {
		if state[h] == permitLapsed {
			lapsed = append(lapsed, h.id)
		}
	}
	if len(lapsed) > 0 {
		if err := p.fence(ctx, tx, lapsed, rows); err != nil {
			return err
		}
		if state, err = p.s.permitStates(ctx, tx, asked); err != nil {
			return err
		}
	}
	for _, k := range p.keys {
		k.holders = slices.DeleteFunc(k.holders, func(h holder) bool { return state[h] == permitEnded })
	}
	return nil
}

func holderIDs(holders []holder) []processlog.ID {
	ids := make([]processlog.ID, len(holders))
	for i, h := range holders {
		ids[i] = h.id
	}
	slices.SortFunc(ids, processlog.ID.Compare)
	return slices.Compact(ids)
}

func (s *Store) permitStates(ctx context.Context, tx processlog.Tx, asked []holder) (map[holder]permit, error) {
	state := make(map[holder]permit, len(asked))
	for chunk := range slices.Chunk(asked, processlog.MaxRows) {
		for _, h := range chunk {
			state[h] = permitEnded
		}
		rows, err := tx.QueryContext(ctx, s.sql(holdersNow, "ids", idList(holderIDs(chunk))))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id, version uint64
			var leased bool
			if err := rows.Scan(&id, &version, &leased); err != nil {
				return nil, err
			}
			if h := (holder{processlog.RowID(id), version}); state[h] == permitEnded {
				if state[h] = permitLapsed; leased {
					state[h] = permitHeld
				}
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return state, nil
}

const fenceRows = "UPDATE {log}{by id} SET version=version+1, updated_at={stamp} WHERE id IN ({ids}) AND lease_until<={now}{and steady}"

// fence raises the versions of those entries in the parameter ids whose leases have ended. If the parameter rows
// contains such an entry, fence raises the version there as well.
func (p *permits) fence(ctx context.Context, tx processlog.Tx, ids []processlog.ID, rows []processlog.Row) error {
	slices.SortFunc(ids, processlog.ID.Compare)
	free, err := p.s.lockFree(ctx, tx, slices.Compact(ids))
	if err != nil || len(free) == 0 {
		return err
	}
	changed, err := execCount(ctx, tx, p.s.sql(fenceRows, "ids", idList(free)))
	if p.s.refusesRow(err) {
		// The database refuses the UPDATE of these entries, for example by a trigger. So the holders keep their
		// permits.
		return nil
	}
	if err != nil || changed == 0 {
		return err
	}
	for i := range rows {
		// The UPDATE has raised the version of each of these rows that is in the slice free. The claim had locked the
		// rows before. So no other process could renew a lease in the meantime, and the UPDATE has skipped no row.
		if slices.Contains(free, rows[i].ID) {
			rows[i].Version++
		}
	}
	return nil
}

const permitsNow = "SELECT id, version, {text business_type} FROM {log}{by id} WHERE id IN ({ids}) AND lease_until>{now} ORDER BY id{every row}"

func (s *Store) holding(ctx context.Context, holders []holder) (now []processlog.PermitHolder, err error) {
	for chunk := range slices.Chunk(holders, processlog.MaxRows) {
		rows, err := s.read(ctx, s.sql(permitsNow, "ids", idList(holderIDs(chunk))))
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id, version uint64
			var businessType string
			if err := rows.Scan(&id, &version, &businessType); err != nil {
				return nil, err
			}
			if h := (holder{processlog.RowID(id), version}); slices.Contains(chunk, h) {
				now = append(now, processlog.PermitHolder{ID: h.id, BusinessType: businessType})
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return now, nil
}
