// Package bench compares compensator with floors and with peers. A floor runs the same statements and Redis calls
// without a library. The peers do the same work: the libraries River on PostgreSQL, asynq and watermill-sql, and a
// hand-written poller.
//
// Each comparison runs in pairs: one run of compensator and one run of the other side. The figure to read is the ratio
// within a pair. Only the benchmark uses the servers, and they run with full durability. A peer gets the same payload,
// business row, producers and handler. A comment beside each setting of a peer gives the reason for it. If a program is
// missing, the table says "not here".
//
//	go test -timeout 12h -run '^TestBench$' -v .                              everything, 5 pairs
//	go test -run '^TestBench$' -v . -quick                                   3 short pairs, no peers, in under a minute
//	go test -run '^TestBench$' -v . -only 'drain a due backlog River'        only the matching contests
//	go test -run '^TestBench$' -v . -size 0.01 -pairs 1                      a trial run with little work
//
// TestAdmin measures how long the admin pages take on a log with millions of entries, and what they cost the log (make
// bench-admin).
package bench
