package testservers

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports we listen on lie below every system's range for outgoing connections. Inside it, a client that
// reconnects could be given the port of the very server we killed, which then could not start again.
const (
	firstPort = 10_000
	lastPort  = 32_000
)

// freePort returns a port of 127.0.0.1 nobody listens on now. It is not reserved: whoever binds it must be
// ready to find it taken, and try another.
func freePort() (int, error) {
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		listener, err := net.Listen("tcp", localAddr(port))
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("no free port between %d and %d", firstPort, lastPort)
}

func localAddr(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
