// Package bench measures compensator beside its floors: the same statements and Redis calls with no library
// around them. Ours and the floor take turns, pair by pair, on servers of the benchmark's own with full
// durability, and what decides is the ratio within a pair.
//
//	go test -timeout 1h -run '^TestBench$' -v .           everything, 5 pairs
//	go test -run '^TestBench$' -v . -quick                3 short pairs, in under a minute
package bench
