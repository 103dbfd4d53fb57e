// Package delay measures, one after the other, the usual ways to have something done at its deadline: how early,
// how late, and what is lost and done twice when the process that does it is killed and started again.
//
// A service, a process of its own, records 10,000 deadlines as fast as the mechanism takes them, and fires them
// as they come due. Half way it is killed with SIGKILL and started again at once. What it recorded and fired it
// has told the benchmark through a pipe, so the benchmark knows what the service may have forgotten. The servers
// are the benchmark's own and are not killed.
//
//	go test -timeout 1h -run '^TestDelay$' -v .                            every mechanism, about 10 minutes
//	go test -run '^TestDelay$' -v . -deadlines 300 -span 5s -only Redis    a look at some
//
// RabbitMQ and River are measured where their servers are installed (Debian: rabbitmq-server, postgresql).
package delay
