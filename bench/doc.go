// Package bench measures compensator beside its floors, the same statements and Redis calls with no library
// around them, and beside its peers, other libraries at the same work: River on PostgreSQL, asynq, watermill-sql,
// and the poller that people write manually. Ours and the other take turns, pair by pair, on servers of the
// benchmark's own with full durability, and what decides is the ratio within a pair. A peer has the same payload,
// business row, producers and handler; each of its settings says why. Where a program is missing, the table says
// "not here".
//
//	go test -timeout 2h -run '^TestBench$' -v .                              everything, 5 pairs
//	go test -run '^TestBench$' -v . -quick                                   3 short pairs, no peers, in under a minute
//	go test -run '^TestBench$' -v . -only 'drain a due backlog River'        one work, or one other
//	go test -run '^TestBench$' -v . -size 0.01 -pairs 1                      does it run?
//
// TestAdmin asks what the operator's pages take on a log of millions, and what their side costs the log (make bench-admin).
package bench
