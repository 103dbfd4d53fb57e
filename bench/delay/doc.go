// Package delay compares the usual mechanisms for running work at a deadline. It measures how early and how late each
// fires. It also kills and restarts the process, and counts what is lost and what fires twice.
//
// A service process records 10,000 deadlines as fast as the mechanism accepts them, and fires them when they come due.
// Half way through, the benchmark kills it with SIGKILL and starts it again at once. The service reports everything
// that it records and fires through a pipe, so the benchmark knows what must not be forgotten. The servers belong to
// the benchmark alone and are not killed.
//
//	go test -timeout 1h -run '^TestDelay$' -v .                            every mechanism, about 10 minutes
//	go test -run '^TestDelay$' -v . -deadlines 300 -span 5s -only Redis    a short run of some mechanisms
//
// RabbitMQ and River run only where their servers are installed (Debian: rabbitmq-server, postgresql).
package delay
