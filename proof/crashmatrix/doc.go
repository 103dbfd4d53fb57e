// Package crashmatrix kills processes at every point of package failpoint, on a real database and a real Redis,
// restarts them on the same tables, and then looks at what is left. Its tests need the build tag failpoints:
//
//	make crash
//	go test -tags failpoints -run /claim-committed ./proof/crashmatrix -kills=100 -seed=7
//
// A case is a world of its own: a database, a key prefix, and lives. A life is a process that records entries
// of all kinds, runs them, stops and starts its Run, and does what people do, until it reaches its point for
// the nth time and is gone; n is drawn for each life. Nothing is waited for between two lives, so that each
// finds the leases, locks and queue entries of the one before. After the last, a healthy process works off
// what is left, and the tables are held against what was recorded beside them:
//
//   - the service's own rows, written in the transactions that recorded entries: an entry for each, and no other;
//   - the effects of transactional handlers, one for each success and none besides;
//   - the runs of handlers, each under a claim of its own, and of what takes turns each in its turn;
//   - the history of each entry, written by triggers: every write is a step of the contract, follows the one
//     before, and counts what happened;
//   - the messages of a stream, where lives take those into the log: an entry and a row for each.
package crashmatrix
