package testservers

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// These ports are below every system's range for outgoing connections. Inside that range, a client that reconnects
// could be given the port of a killed server.
const (
	firstPort = 10_000
	lastPort  = 32_000
)

// The port is not reserved, so a caller must try another port if binding fails.
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
