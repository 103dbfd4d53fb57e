// Package intake records messages of a Redis Stream, or of any other source with at-least-once delivery, in the log.
// Every message becomes exactly one entry. A message that fails does not block other messages.
//
// # One transaction for each batch
//
// The method [Stream.Open] returns the [Intake] of a stream's consumer group. The function [Open] returns the Intake of
// any [Source]. Its Run takes messages in batches. For each message Config.Entry returns the entry that the message
// becomes. One transaction records all entries of a batch. In the same transaction Config.Work writes the business rows
// of the new messages. After the commit the messages are acknowledged.
//
// The idempotency key of an entry consists of the source, the group and the message id. The source of a stream is its
// key and Stream.Server. A redelivered message already has its entry, so it is only acknowledged, without Work. When
// the answer to COMMIT is lost, the Intake first finds out whether the transaction committed.
//
// # Messages that fail
//
// When Work fails, the batch is halved until the failing message stands alone. An error made by [Fault] names the
// message, so halving is not needed. The failing message becomes an entry of Config.Type. The log calls the same
// functions again by the schedule of that type. When the attempts are used up, the message waits for a person.
//
// A message is set aside at once in these cases:
//
//   - Config.Entry cannot decode it.
//   - Work returns compensator.Permanent for it.
//   - It was delivered more than Config.MaxDeliveries times, because it may kill its processes.
//
// It becomes an entry of the same type that is dead as soon as a Compensator's Run sees it. The entry holds the message
// as it came, and the reason as LastError. After a requeue by a person the functions run. In all cases the message is
// acknowledged, and the other messages continue.
//
// A database that is unavailable, read-only or in an unknown state is no fault of a message. The batch waits, and the
// Intake reads nothing meanwhile. The Intake checks its own transaction to decide this, not the error of Work. So an
// error of Work that wraps ErrCommitUnknown or ErrClosed of another log counts as a failure of its message.
//
// There is one exception. Work may return an error by which a server of any database says that it serves no requests,
// such as "too many connections" or "disk full". Such an error is no fault of a message either. The batch waits and is
// tried again until the condition has passed. To set such a message aside, return compensator.Unavailable.
//
// # Redis Streams
//
// The Intake creates the group at the beginning of the stream if the group does not exist, also if it disappears while
// Run is active. The Intake takes the messages that this consumer left unacknowledged first, and then new messages.
// From time to time it takes messages of consumers that have been silent for Stream.Idle. Messages that were delivered
// twice without success are taken one at a time, so that a message that kills its process stands alone.
//
// The Intake removes silent consumers that have nothing pending. With Stream.Trim it deletes messages that every group
// has acknowledged. It needs Redis 7 or newer, or Valkey.
//
// # What is not promised
//
// Messages that Redis loses before the Intake has read them are lost. With appendfsync everysec a crashed server loses
// up to the last second. A failover loses what the replica had not received. With appendfsync always a single server
// loses nothing that it has acknowledged. To survive a failover, the producer follows each XADD with WAIT 1 and a
// timeout. If WAIT returns less than 1, the producer must treat the message as not added.
//
// A producer that trims its stream with MAXLEN or MINID may delete messages that were never read.
//
// A stream may use an id twice if it starts again (FLUSHALL) on a server whose clock went back, or if the producer sets
// the ids. Then the second message counts as a duplicate of the first.
//
// Two streams of the same name on two servers, or under two database numbers, use the same message ids. If groups of
// the same name record both streams in one log, the second of two equal messages is acknowledged and lost. Set
// Stream.Server for one of them.
//
// If an entry of a stream repeats a field name, only the last value is kept. Message.Fields has no space for the
// others.
//
// The order of messages is not kept. An effect of Work outside its transaction may happen more than once. A message
// larger than about three quarters of Config.MaxContent of package compensator may not fit an entry. Such a message is
// logged and left unacknowledged. Smaller messages always fit, because fields that grow too much in JSON are stored as
// base64.
package intake
