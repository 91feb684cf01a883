package embedded

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

const (
	// firstPort and lastPort are between the ports that services are registered
	// for in numbers, and those that the kernels give to outgoing connections
	// (Linux: from 32768): one of these would be taken now and then.
	firstPort, lastPort = 20000, 32767
	// portTries bounds the search; on a machine with a thousand listeners one try
	// in ten fails.
	portTries = 100
)

// FreePort is the TCP port on 127.0.0.1 that was wanted if nothing listens
// there, else another that may be kept for later starts.
func FreePort(wanted int) (int, error) {
	if wanted != 0 && isFree(wanted) {
		return wanted, nil
	}
	for range portTries {
		if port := firstPort + rand.N(lastPort-firstPort+1); isFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("no free TCP port on " + loopback + " between " + strconv.Itoa(firstPort) + " and " + strconv.Itoa(lastPort))
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}
