// Package delay compares the usual mechanisms for running work at a deadline. It measures how early and how late each
// mechanism fires. It also kills and restarts the process, and counts the deadlines that are lost and those that fire
// twice.
//
// A service process records 10,000 deadlines as fast as the mechanism accepts them, and fires them when they come due.
// Half way through, the benchmark kills the process with SIGKILL and starts it again at once. The service reports each
// deadline that it records or fires through a pipe, so the benchmark knows which deadlines must fire. Only the
// benchmark uses the servers, and it does not kill them.
//
//	go test -timeout 1h -run '^TestDelay$' -v .                            every mechanism, about 10 minutes
//	go test -run '^TestDelay$' -v . -deadlines 300 -span 5s -only Redis    a short run of some mechanisms
//
// RabbitMQ and River run only where their servers are installed (Debian: rabbitmq-server, postgresql).
package delay
