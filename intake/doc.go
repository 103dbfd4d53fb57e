// Package intake takes messages from a Redis Stream, or any other source that delivers at least once, into the log:
// every message becomes exactly one entry, and none is in the way of others.
//
// # A batch, one transaction
//
// [Stream.Open] makes the [Intake] of a stream's consumer group, [Open] that of any [Source]; its Run takes batches. For
// each message Config.Entry says what entry it becomes; all entries of a batch are recorded in one transaction, in which
// Config.Work writes the business rows of those messages that are new. Then the messages are acknowledged. An entry's
// idempotency key is made of source, group and message id, a stream's source of its key and Stream.Server: a message that is
// delivered again finds its entry, is not worked on again, and is acknowledged. When the answer to COMMIT is lost, what became
// of the transaction is found out first.
//
// # Messages that fail
//
// A batch whose Work fails is halved until the culprit stands alone, unless the error names it: see [Fault]. The culprit
// becomes an entry of Config.Type, which the log tries again by its schedule, calling the same functions, until they succeed or
// the attempts are used up; then it waits for a person. A message that cannot be decoded, whose Work answers with
// compensator.Permanent, or that was delivered more than Config.MaxDeliveries times because it ends its processes, is set aside:
// an entry of the same type that is dead as soon as a Compensator's Run sees it, with the message as it came and the reason
// as LastError. Requeued by a person, it is worked on. Either way the message is acknowledged, and the others go on.
//
// A database that is away, read-only or in doubt is nobody's fault: the batch waits, and nothing is read meanwhile. The intake asks
// the transaction, and not Work's error: an error that wraps ErrCommitUnknown or ErrClosed of another log is its message's fault.
// There is one exception. An error of Work by which a server says that it serves nobody, such as "too many connections" or "disk
// full", is nobody's fault on any database. The batch waits and is tried again until that condition has passed. If you want such a
// message set aside all the same, return compensator.Unavailable.
//
// # Redis Streams
//
// The group is made if it is absent, at the beginning of the stream, also when it vanishes under a running Intake. Messages
// that this consumer has left are taken first, then new ones; now and then those of consumers that have been silent for
// Stream.Idle. What was delivered twice in vain is taken one at a time, so that a message that kills its process stands
// alone. Consumers that are gone and have nothing pending are removed. With Stream.Trim, what every group has acknowledged
// is deleted. Redis 7 or newer, or Valkey.
//
// # What is not promised
//
// What Redis loses before the intake has read it is lost with it: with appendfsync everysec the last second of a crashed
// server, in a failover what the replica had not seen. With appendfsync always a single server loses nothing it has
// acknowledged; a producer that trims its stream, by MAXLEN or MINID, deletes messages that nobody has read; against a failover the producer follows each XADD with WAIT 1 and a timeout, and takes less than 1 as "not
// added", to be made right. A stream that began anew (FLUSHALL) on a server whose clock went back, or with ids of the
// producer's own, may give an id twice: the second message is taken for the first.
//
// That streams of one name on two servers, or under two database numbers of one, are told apart where they go into one log by groups
// of one name: their messages have like ids, and of two that have the same the second is acknowledged and lost. Give one of them a
// Stream.Server.
//
// The values of a field whose name a stream's entry repeats, but for the last: Message.Fields has no room for them.
//
// Order. That an effect of Work outside its transaction happens once. That a message larger than about three
// quarters of compensator's Config.MaxContent can be set aside: it is told, and left unacknowledged. A smaller one can, whatever is in
// it: fields of which JSON makes too much are stored as base64.
package intake
