// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Messages from a stream
//
// F96: An intake is killed, stopped, or loses Redis or the database.
// Result: Each message has one entry and one business row. It is acknowledged after the commit. Nothing is set aside
// for an outage.
//
// F97: A message comes again, or its consumer dies.
// Result: It is recorded once. A dead consumer's messages are taken over, a living one's are not.
//
// F98: A message fails, cannot be read, or breaks its connection each time.
// Result: The log tries it again, or it is set aside raw. It holds up nobody.
// Action: Requeue it.
//
// F99: A message kills its process.
// Result: At the sixth delivery it is set aside. Deliveries during an outage do not count.
// Action: Correct and requeue.
//
// F100: The group vanishes, ids come again, or two streams have the same ids.
// Result: The group is made again. Groups differ; servers differ by `Stream.Server` only. With `RefuseOtherContent` a
// reused id is set aside.
// Action: Set `Stream.Server`.
//
// F101: A pending message is deleted, trimmed, too large, or its codec panics.
// Result: An entry tells of the deletion. Trimming spares what a group has not acknowledged. A message that cannot be
// set aside is held. Half of `MaxContent` always fits.
// Action: Raise `MaxContent`.

package intake
