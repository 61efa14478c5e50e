// Whom to obey.
package control

import (
	"fmt"
	"net"
	"os"
	"syscall"
)

// trusted says why the other end of a connection is none to take orders from: it runs neither as our own user nor as root.
func trusted(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	if failed := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("whose it is cannot be told: %w", err)
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("an agent of user %d: only one of our own user or of root may cancel here", peer.Uid)
	}
	return nil
}
