// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Messages from a stream
//
// F96: An intake is killed, stopped, or loses Redis or the database.
// Result: Each message has one entry and one business row. An outage sets no message aside.
//
// F97: A message comes again, or its consumer dies.
// Result: The message is recorded once. Only messages of a dead consumer are taken over.
//
// F98: A message fails, cannot be read, or breaks its connection each time.
// Result: The log tries a failing message again. An unreadable message is set aside with its raw content.
// Action: Requeue its entry.
//
// F99: A message kills its process.
// Result: At its sixth delivery the message is set aside. Deliveries during an outage do not count.
// Action: Correct the cause, and requeue the entry.
//
// F100: The consumer group vanishes, stream ids come again, or two streams have the same ids.
// Result: The group is created again. With `RefuseOtherContent` a message with a used id and other content is set
// aside.
// Action: Set `Stream.Server`. Nothing else distinguishes two servers.
//
// F101: A pending message is deleted, trimmed, too large, or its codec panics.
// Result: An entry reports the deletion. Trimming keeps unacknowledged messages. A message above three quarters of
// `MaxContent` may stay unacknowledged, and the intake logs it.
// Action: Raise `MaxContent`.

package intake
