// Package crashmatrix kills processes at every point of package failpoint, with a real database and a real Redis. It
// starts new processes on the same tables and then verifies the result. Its tests need the build tag failpoints:
//
//	make crash
//	go test -tags failpoints -run /claim-committed ./proof/crashmatrix -kills=100 -seed=7
//
// Each case has its own database, its own key prefix, and a series of victims. A victim is a process that records
// entries of all kinds and runs them. It starts and stops Run, and changes entries as people do. It is killed when it
// reaches the point of its case for the nth time. The number n is random for each victim. The next victim starts at
// once, so it finds the leases, locks and queue entries that the killed victim left.
//
// After the last victim, a healthy process runs all remaining entries. Then the tests compare the log with these
// tables:
//
//   - The service's own rows, written in the transactions that recorded entries: one entry for each row, and no other.
//   - The effects of transactional handlers: one for each success, and no other.
//   - The runs of handlers: each run has its own claim, and entries with an ordering key run in their order.
//   - The history of each entry, written by triggers. Every write must start from the result of the previous write, and must be a change that the library may make. Its counts must be right.
//   - The messages of a stream, in cases with a stream: one entry and one row for each message.
package crashmatrix
