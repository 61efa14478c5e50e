package control

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// An agent of another user is not obeyed. Only root can pretend to be one.
func TestAgentOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to listen as another user")
	}
	const other = 12345
	directory := t.TempDir()
	for path := directory; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(directory, SocketName)
	listening := make(chan error)
	release := make(chan struct{})
	defer close(release)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, and with it its user
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), other, ^uintptr(0)); errno != 0 {
			listening <- errno
			return
		}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err == nil {
			defer syscall.Close(fd)
			if err = syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err == nil {
				err = syscall.Listen(fd, 1)
			}
		}
		listening <- err
		<-release
	}()
	if err := <-listening; err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(path); err == nil || !strings.Contains(err.Error(), "an agent of user 12345: only one of our own user or of root may cancel here") {
		t.Errorf("%v", err)
	}
}
