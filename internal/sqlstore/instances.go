package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/compensator-go/compensator/processlog"
)

const (
	// The stored start and end stay, so that a statement after Close does not make the process live again. The word
	// library is reserved in MySQL from 9.2.
	instanceWrite = "INSERT INTO {instance} (id, name, `library`, build, started_at, seen_at, ended_at, running, queue, types)" +
		" VALUES ({id}, {name}, {library}, {build}, {now}-({age}), {now}, {ended}, {running}, {queue}, {types}){again}," +
		" ended_at=CASE WHEN {instance}.ended_at>0 THEN {instance}.ended_at ELSE {offered end} END"
	instancesRead   = "SELECT id, {text name, `library`, build, queue, types}, {number started_at, seen_at, ended_at, running}, {now} FROM {instance}{by id} ORDER BY name, id"
	instancesForget = "{DELETE FROM instance} WHERE seen_at<{now}-({age})"
)

// WriteInstance implements Operations.
func (s *Store) WriteInstance(ctx context.Context, i processlog.Instance, age time.Duration, ended bool) error {
	types, err := json.Marshal(i.Types)
	if err != nil {
		return err
	}
	end, running := "0", "0"
	if ended {
		end = s.sql("{now}")
	}
	if i.Running {
		running = "1"
	}
	_, err = s.writePool().ExecContext(ctx, s.sql(instanceWrite, "id", s.d.binary(i.ID[:]), "name", s.textLiteral(processlog.FitActor(i.Name)),
		"library", s.textLiteral(processlog.FitActor(i.Library)), "build", s.textLiteral(processlog.FitActor(i.Build)), "age", signed(age.Milliseconds()), "ended", end,
		"running", running, "queue", s.textLiteral(string(i.Queue)), "types", s.d.text(string(types)),
		"again", s.d.again("id", "name", "`library`", "build", "seen_at", "running", "queue", "types"), "offered end", s.d.offer("ended_at")))
	if err != nil {
		return s.withoutInstances(fmt.Errorf("compensator: write the instance: %w", s.dropReadOnly(err)))
	}
	return nil
}

func (s *Store) withoutInstances(err error) error {
	return s.withoutTable(err, "_instance", "Operations.Instances needs")
}

// Instances implements Operations.
func (s *Store) Instances(ctx context.Context) ([]processlog.Instance, error) {
	instances, err := s.readInstances(ctx)
	if err != nil {
		return nil, s.withoutInstances(fmt.Errorf("compensator: read the instances: %w", err))
	}
	return instances, nil
}

func (s *Store) readInstances(ctx context.Context) (instances []processlog.Instance, err error) {
	rows, err := s.read(ctx, s.sql(instancesRead))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i processlog.Instance
		var id, types []byte
		var started, seen, ended, now int64
		if err := rows.Scan(&id, &i.Name, &i.Library, &i.Build, (*string)(&i.Queue), &types, &started, &seen, &ended, &i.Running, &now); err != nil {
			return nil, err
		}
		copy(i.ID[:], id)
		_ = json.Unmarshal(types, &i.Types) // The library writes valid JSON. A person may have broken it.
		i.StartedAt, i.SeenAt, i.Unseen = unixMilli(started), unixMilli(seen), max(0, -remaining(seen, now))
		if ended > 0 {
			i.EndedAt = unixMilli(ended)
		}
		instances = append(instances, i)
	}
	return instances, rows.Err()
}

// ForgetInstances implements Operations.
func (s *Store) ForgetInstances(ctx context.Context, age time.Duration) error {
	if _, err := s.writePool().ExecContext(ctx, s.sql(instancesForget, "age", signed(age.Milliseconds()))); err != nil {
		return s.withoutInstances(fmt.Errorf("compensator: delete old instances: %w", s.dropReadOnly(err)))
	}
	return nil
}
