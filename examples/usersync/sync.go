package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/relay/rabbitmq"
)

// The whole logic of syncer is upload, consume and sendAgain. wiring.go creates its parts.
type syncer struct {
	servers
	settings
	db       *sql.DB
	log      *compensator.Compensator
	entries  *compensator.Type[message]
	messages *rabbitmq.Publisher
	consumer *rabbitmq.Consumer

	publishFirst compensator.BatchFunc
	publishAgain compensator.HandlerFunc
}

// message is the content of an entry and of the messages in the queue. It only names the user. A consumer reads the
// user's name and e-mail address from the database, because a person may have repaired the address.
type message struct {
	Batch string `json:"batch"`
	User  string `json:"user"`
}

// key is also the id of each message about the user.
func (m message) key() compensator.IdempotencyKey {
	return compensator.IdempotencyKey("sync/" + m.Batch + "/" + m.User)
}

// upload stores users and, in the same transaction, an entry for each user. The entry runs only if no consumer
// completes it before it is due.
func (s *syncer) upload(ctx context.Context, u *upload) (batch, error) {
	ctx = withTrace(ctx, u.Trace)
	err := s.record(ctx, u)
	if isDuplicate(err) {
		return sameBatch(ctx, s.db, u)
	}
	if err != nil {
		return batch{}, err
	}
	s.send(ctx, u)
	return findBatch(ctx, s.db, u.Batch)
}

func (s *syncer) record(ctx context.Context, u *upload) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // Rollback does nothing after Commit.
	if err := insertBatch(ctx, tx, u); err != nil {
		return err
	}
	entries := make([]compensator.NewEntry, len(u.Users))
	for i, one := range u.Users {
		m := message{Batch: u.Batch, User: one.ID}
		entries[i] = s.entries.Entry(m, compensator.Options{
			IdempotencyKey: m.key(), Delay: s.delay, BatchID: u.Batch, BusinessID: one.ID, UserName: u.Operator})
	}
	if _, err := s.log.Record(ctx, tx, entries...); err != nil {
		return err
	}
	return tx.Commit()
}

// consume never asks for a redelivery, because an entry that is not completed is sent again.
func (s *syncer) consume(ctx context.Context, d *rabbitmq.Delivery) error {
	var m message
	if err := json.Unmarshal(d.Body, &m); err != nil {
		return compensator.Permanent(err) // The message is set aside for a person.
	}
	sending, _ := d.Headers[sendingHeader].(int64)
	err := s.sync(ctx, m, int(sending))
	if err == nil || errors.Is(err, compensator.ErrAlreadySucceeded) || errors.Is(err, errForgotten) {
		return nil
	}
	slog.Debug("not synced", "batch", m.Batch, "user", m.User, "sending", sending, "err", err)
	return noteFailure(ctx, s.db, m, err)
}

// sync does the work and completes the entry in one transaction. It completes the entry first, which locks the entry's
// row. If two consumers have the same user, one waits and then finds the work done.
func (s *syncer) sync(ctx context.Context, m message, sending int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit, errTooSlow)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := s.entries.CompleteTx(ctx, tx, m.key()); err != nil {
		return err
	}
	u, err := findUser(ctx, tx, m)
	if err != nil {
		return err
	}
	if err := s.meet(ctx, u, sending); err != nil {
		return err
	}
	if err := enter(ctx, tx, m, traceOf(ctx)); err != nil {
		return err
	}
	return tx.Commit()
}

// sendAgain always returns an error, because a sent message does not complete the entry. The last attempt sends
// nothing: the entry is dead, and a person gets it with the reason. A late consumer can still complete the entry.
func (s *syncer) sendAgain(ctx context.Context, e *compensator.Entry, m message) error {
	refused, reason, err := findFailure(ctx, s.db, m)
	switch {
	case err != nil:
		return err
	case refused:
		return compensator.Permanent(errors.New(reason))
	case e.Attempt() > s.most:
		return fmt.Errorf("sent %d times and not synced: %s", s.most+1, reason)
	}
	if err := noteSending(ctx, s.db, m, e.Attempt()); err != nil {
		return err
	}
	if err := s.publishAgain(ctx, e); err != nil {
		return err
	}
	return compensator.RetryAfter(s.again, fmt.Errorf("sent again, not synced yet: %s", reason))
}

// repair is a person's request for a user whom the directory refuses.
type repair struct {
	Batch    string `json:"batch"`
	User     string `json:"user"`
	Email    string `json:"email"`
	Operator string `json:"operator"`
}

func (s *syncer) repair(ctx context.Context, r repair) error {
	if !isText(r.Operator) {
		return refuse("operator", "%q: want 1 to %d characters", r.Operator, mostText)
	}
	if err := (user{ID: r.User, Name: "?", Email: r.Email}).validate(0); err != nil {
		return err
	}
	m := message{Batch: r.Batch, User: r.User}
	if _, err := findUser(ctx, s.db, m); err != nil {
		return err
	}
	seen, err := s.log.Resolve(ctx, m.key())
	switch {
	case err != nil:
		return err
	case seen.State == compensator.Succeeded:
		return errSynced // A requeue would sync the user a second time.
	}
	if err := changeEmail(ctx, s.db, m, r.Email); err != nil {
		return err
	}
	requeued, err := admin.Of(s.log).RequeueAll(ctx, []compensator.Entry{*seen}, admin.RequeueOptions{
		AuditInfo: admin.AuditInfo{Actor: r.Operator, Reason: "address set to " + r.Email}})
	if err != nil {
		return err
	}
	return requeued[0] // ErrChanged, for example if a late consumer has synced the user in the meantime
}

var errSynced = errors.New("the user is synced already")

// longestSend limits how long a broker that does not answer can delay the answer to an upload.
const longestSend = 2 * time.Second

// send publishes the first message about each user of an upload, and only logs an error. If the first message does not
// arrive, the user's entry becomes due, and its handler sends the message again.
func (s *syncer) send(ctx context.Context, u *upload) {
	ctx, cancel := context.WithTimeout(ctx, longestSend)
	defer cancel()
	var first []*compensator.Entry
	for _, one := range u.Users {
		if fateOf(one, s.seed).vanishes(0) {
			continue
		}
		first = append(first, s.firstMessage(message{Batch: u.Batch, User: one.ID}, u.Trace))
	}
	for _, err := range s.publishFirst(ctx, first) {
		if err != nil {
			slog.Warn("a first message was not sent; its entry will send it", "batch", u.Batch, "err", err)
			return
		}
	}
}
