package chaos

import (
	"context"
	"database/sql"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func (st *stage) dump() {
	for what, dump := range map[string]func(*batchWriter) error{
		"audit": st.dumpAudit, "rows": st.dumpRows, "effects": st.dumpEffects, "results": st.dumpResults, "queue": st.dumpQueue, "replays": st.dumpReplays, "deadlocks": st.dumpDeadlocks,
	} {
		w := &batchWriter{stage: st}
		if err := dump(w); err != nil {
			st.tb.Errorf("writing the dump of %s: %v", what, err)
		}
		w.flush()
	}
}

// Writing the records one by one would take longer than the run.
type batchWriter struct {
	*stage
	records []history.Record
}

func (w *batchWriter) add(r history.Record) {
	if w.records = append(w.records, r); len(w.records) == 1000 {
		w.flush()
	}
}

func (w *batchWriter) flush() {
	w.write(w.records...)
	w.records = w.records[:0]
}

func (st *stage) query(query string, read func(scan func(...any) error) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	rows, err := st.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

type image struct {
	state, version, epoch, process, compensate, delivery, next, lease sql.NullInt64
	token                                                             []byte
	by                                                                sql.NullString
}

func (i *image) scanTargets() []any {
	return []any{&i.state, &i.version, &i.epoch, &i.token, &i.process, &i.compensate, &i.delivery, &i.next, &i.lease, &i.by}
}

func (i *image) history() *history.Image {
	if !i.state.Valid {
		return nil
	}
	return &history.Image{
		State: int8(i.state.Int64), Version: uint64(i.version.Int64), Epoch: uint32(i.epoch.Int64), Token: hex.EncodeToString(i.token),
		ProcessCount: int(i.process.Int64), CompensateCount: int(i.compensate.Int64), DeliveryCount: int(i.delivery.Int64),
		NextAt: i.next.Int64, LeaseUntil: i.lease.Int64, EndedBy: i.by.String,
	}
}

func (st *stage) dumpAudit(w *batchWriter) error {
	ops := map[string]string{"i": history.OpInsert, "u": history.OpUpdate, "d": history.OpDelete}
	columns := "old_" + strings.Join(auditColumns, ", old_") + ", new_" + strings.Join(auditColumns, ", new_")
	return st.query("SELECT seq, op, id, idempotent_id, business_type, now_us, connection, "+columns+" FROM audit_trail ORDER BY seq", func(scan func(...any) error) error {
		a, op, before, after := &history.Audit{}, "", image{}, image{}
		into := append([]any{&a.Seq, &op, &a.ID, &a.Key, &a.Type, &a.DBNow, &a.Conn}, append(before.scanTargets(), after.scanTargets()...)...)
		if err := scan(into...); err != nil {
			return err
		}
		a.Op, a.Old, a.New = ops[op], before.history(), after.history()
		w.add(a)
		return nil
	})
}

const dbNow = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))"

func (st *stage) dumpRows(w *batchWriter) error {
	return st.query("SELECT id, idempotent_id, business_type, "+dbNow+", "+strings.Join(auditColumns, ", ")+" FROM common_process_log ORDER BY id", func(scan func(...any) error) error {
		r, now := &history.Row{}, image{}
		if err := scan(append([]any{&r.ID, &r.Key, &r.Type, &r.DBNow}, now.scanTargets()...)...); err != nil {
			return err
		}
		r.Image = *now.history()
		w.add(r)
		return nil
	})
}

func (st *stage) dumpEffects(w *batchWriter) error {
	return st.query("SELECT entry_id, entry_key, epoch, version, compensation FROM effects ORDER BY id", func(scan func(...any) error) error {
		r := &history.EffectRow{}
		if err := scan(&r.ID, &r.Key, &r.Epoch, &r.Version, &r.Compensation); err != nil {
			return err
		}
		w.add(r)
		return nil
	})
}

var dueKey = regexp.MustCompile(`^\{` + prefix + `:v1:\d+\}:(.*):\d+:due$`)

func (st *stage) dueKeys(ctx context.Context) (map[string]string, error) {
	client := st.mainRedis()
	defer client.Close()
	names, err := client.Keys(ctx, "{"+prefix+":*:due").Result()
	keys := make(map[string]string)
	for _, name := range names {
		if parts := dueKey.FindStringSubmatch(name); parts != nil {
			keys[name] = parts[1]
		}
	}
	return keys, err
}

// Members with a score above lastDue are not entries. They record whether the queue is complete.
const lastDue = "4e15"

// queued leaves out members of typeOrphan, which have no row.
func (st *stage) queued() (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys, err := st.dueKeys(ctx)
	if err != nil {
		return 0, err
	}
	client := st.mainRedis()
	defer client.Close()
	for key, businessType := range keys {
		if businessType == typeOrphan {
			continue
		}
		members, err := client.ZCount(ctx, key, "-inf", lastDue).Result()
		if err != nil {
			return 0, err
		}
		n += members
	}
	return n, nil
}

func (st *stage) dumpQueue(w *batchWriter) error {
	ctx := context.Background()
	keys, err := st.dueKeys(ctx)
	if err != nil {
		return err
	}
	client := st.mainRedis()
	defer client.Close()
	for key, businessType := range keys {
		now, err := client.Time(ctx).Result()
		if err != nil {
			return err
		}
		members, err := client.ZRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{Min: "-inf", Max: lastDue}).Result()
		if err != nil {
			return err
		}
		for _, m := range members {
			id, err := strconv.ParseUint(m.Member.(string), 10, 64)
			if err != nil {
				return err
			}
			w.add(&history.Member{Type: businessType, ID: id, Score: m.Score, Now: now.UnixMicro()})
		}
	}
	return nil
}

func (st *stage) dumpDeadlocks(w *batchWriter) error {
	for _, d := range deadlocks(st.sql.ErrorLog()) {
		w.add(d)
	}
	return nil
}
