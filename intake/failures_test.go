// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Messages from a stream
//
// F96: An intake is killed, stopped, or loses Redis or the database.
// Result: Each message has one entry and one business row, and is acknowledged after the commit. No message is set
// aside because of an outage.
//
// F97: A message comes again, or its consumer dies.
// Result: The message is recorded once. Another consumer takes over the messages of a dead consumer, but not those of
// a living one.
//
// F98: A message fails, cannot be read, or breaks its connection each time.
// Result: The log tries the message again, or the message is set aside with its raw content. It delays no other
// message.
// Action: Requeue its entry.
//
// F99: A message kills its process.
// Result: At its sixth delivery the message is set aside. Deliveries during an outage do not count.
// Action: Correct the cause, and requeue the entry.
//
// F100: The consumer group vanishes, stream ids come again, or two streams have the same ids.
// Result: The group is created again. Each group of a stream has its own entries. The log distinguishes two servers
// only by `Stream.Server`. With `RefuseOtherContent` a message with a used id and other content is set aside.
// Action: Set `Stream.Server`.
//
// F101: A pending message is deleted, trimmed, too large, or its codec panics.
// Result: For a deleted message, an entry reports the deletion. Trimming keeps messages that a group has not
// acknowledged. A message that cannot be set aside is held. A message of half of `MaxContent` always fits.
// Action: Raise `MaxContent`.

package intake
