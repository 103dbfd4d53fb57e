// Package intake records messages of a Redis Stream in the log. It can also read any other source with at-least-once
// delivery. Every message becomes exactly one entry. A message that fails does not block other messages.
//
// # One transaction for each batch
//
// The method [Stream.Open] returns the [Intake] of a stream's consumer group. The function [Open] returns the Intake of
// any [Source]. Intake.Run takes messages in batches. For each message Config.Entry returns the entry to record. One
// transaction records all entries of a batch. In the same transaction Config.Work writes the business rows of the new
// messages. After the commit the Intake acknowledges the messages.
//
// The idempotency key of an entry consists of the source, the group and the message id. The source of a stream is the
// stream's key and Stream.Server. A redelivered message already has its entry, so the Intake only acknowledges it and
// does not call Work. When the answer to COMMIT is lost, the Intake first finds out whether the transaction committed.
//
// # Messages that fail
//
// When Work fails, the Intake halves the batch until the failing message stands alone. If Work returns an error made by
// [Fault], the error names the message, and the Intake does not halve the batch. The failing message becomes an entry
// of Config.Type. The log calls the same functions again by the schedule of that type. When the attempts are used up,
// the message waits for a person.
//
// The Intake sets a message aside at once in these cases:
//
//   - Config.Entry cannot decode the message.
//   - Work returns compensator.Permanent for the message.
//   - The message was delivered more than Config.MaxDeliveries times. It may be the cause of crashes.
//
// A message that is set aside becomes an entry of Config.Type too. Compensator.Run makes this entry dead without
// calling the functions. If a person requeues this entry, the functions run. The entry holds the unchanged message, and
// LastError holds the reason. In all cases the Intake acknowledges the message and continues with the other messages.
//
// If the database is unavailable, read-only or in an unknown state, no message is to blame. The batch waits, and the
// Intake reads no further messages until the database works again. The Intake tests its own transaction to find out
// whether the database works. The error of Work does not count.
//
// Work may return an error with which a server says that it serves no requests, for example "too many connections" or
// "disk full". Then the Intake blames no message, and tries the batch again until the condition has passed. Other
// messages wait for that. If they must not wait, let Work wrap the error with compensator.Unavailable. The Intake then
// records the failing message as an entry of Config.Type, as after any other error.
//
// # Redis Streams
//
// The Intake creates the group at the beginning of the stream if the group does not exist. It also creates the group
// again if the group disappears when Run is active. The Intake first takes the messages that this consumer left
// unacknowledged, and then new messages. From time to time it takes over messages of consumers that have been silent
// for Stream.Idle. If a message was delivered twice without success, the Intake takes this message alone. So a message
// that crashes its process affects no other message.
//
// The Intake removes silent consumers that have nothing pending. With Stream.Trim it deletes messages that every group
// has acknowledged. The Intake needs Redis 7 or newer, or Valkey.
//
// # A consumer of your own
//
// A consumer of a broker without a relay can record its failed messages with a [Recorder].
//
// # What is not promised
//
// Messages that Redis loses before the Intake has read them are lost. With appendfsync everysec a crashed server loses
// up to the last second. A failover loses the messages that the replica had not received. With appendfsync always a
// single server loses nothing that it has acknowledged. To survive a failover, the producer must send WAIT 1 with a
// timeout after each XADD. If WAIT returns less than 1, the producer must treat the message as not added.
//
// A producer that trims its stream with MAXLEN or MINID may delete messages that were never read.
//
// Two streams of the same name on two servers, or under two database numbers, use the same message ids. Suppose that
// groups of the same name record both streams in one log. If two messages have the same id, the Intake acknowledges the
// second message without recording it. Set Stream.Server for one of the streams to prevent this loss.
//
// Two messages of one stream may have the same id in two cases. Either the producer sets the ids, or the stream was
// created again after FLUSHALL and the server's clock went back. The second message then counts as a duplicate of the
// first.
//
// If a message of a stream repeats a field name, only the last value is kept.
//
// The order of messages is not kept. An effect of Work outside its transaction may happen more than once.
//
// A message larger than about three quarters of Config.MaxContent of package compensator may be too large for an entry.
// The Intake logs a message that is too large, and leaves it unacknowledged. Smaller messages always fit an entry.
package intake
