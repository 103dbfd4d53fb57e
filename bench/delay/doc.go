// Package delay compares the usual mechanisms for running work at a deadline. It measures how early and how late each
// mechanism fires, and which deadlines are lost or fire twice if the process is killed half way and starts again.
//
//	go test -timeout 1h -run '^TestDelay$' -v .                            every mechanism, about 10 minutes
//	go test -run '^TestDelay$' -v . -deadlines 300 -span 5s -only Redis    a short run of some mechanisms
//
// RabbitMQ and River run only where their servers are installed (Debian: rabbitmq-server, postgresql).
package delay
