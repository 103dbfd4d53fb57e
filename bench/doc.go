// Package bench compares compensator with floors and with peers. A floor runs the same statements and Redis calls
// without a library. The peers are other libraries and a hand-written poller that do the same work.
//
// Each comparison runs in pairs, and the figure to read is the ratio within a pair. The servers run with full
// durability. A comment beside each setting of a peer gives the reason for it. If a program is missing, the table says
// "not here".
//
//	go test -timeout 12h -run '^TestBench$' -v .                              everything, 5 pairs
//	go test -run '^TestBench$' -v . -quick                                   3 short pairs, no peers, in under a minute
//	go test -run '^TestBench$' -v . -only 'drain a due backlog River'        only the matching contests
//	go test -run '^TestBench$' -v . -size 0.01 -pairs 1                      a trial run with little work
package bench
