//go:build linux && (amd64 || arm64 || loong64 || mips64le || ppc64le || riscv64)

// The file of a ledger: made under another name, mapped, and renamed when it is complete.
package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// File is a ledger and the file that it lies in.
type File struct {
	*Ledger
	Path string
}

// Create makes the ledger of an application in a directory, readable by the group if group says so. clock is the exact time in ns, never 0.
// The mapping is never taken away: a task may outlive its ledger, and then writes where nobody reads.
func Create(directory string, c Counts, about About, group bool, clock func() uint64) (*File, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := checkApp(about.App); err != nil {
		return nil, err
	}
	path := filepath.Join(directory, fmt.Sprintf("%s.%d.ledger", about.App, about.PID))
	unfinished := path + ".new" // does not end as a ledger's name does, so that nobody reads it
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	l, err := build(f, c, about, clock)
	if err == nil && group {
		err = f.Chmod(0o640)
	}
	if err == nil {
		err = os.Rename(unfinished, path)
	}
	f.Close() // the mapping stays
	if err != nil {
		os.Remove(unfinished)
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &File{Ledger: l, Path: path}, nil
}

// build maps an empty file and lays a ledger over it.
func build(f *os.File, c Counts, about About, clock func() uint64) (*Ledger, error) {
	if err := f.Truncate(int64(c.length())); err != nil {
		return nil, err
	}
	if err := reserve(f, c.length()); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, c.length(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping it: %w", err)
	}
	l := lay(memory, c, about, clock)
	copy(l.head.magic[:], Magic)
	return l, nil
}

// reserve sees to it that there is memory for the whole file. A store to a page for which the file system has none left kills the process
// (SIGBUS), and /dev/shm is small in many a container.
func reserve(f *os.File, length int) error {
	for {
		switch err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(length)); err {
		case syscall.EINTR:
		case nil, syscall.EOPNOTSUPP, syscall.ENOSYS: // the latter two where a file system promises nothing
			return nil
		default:
			return fmt.Errorf("no room for %d bytes: %w", length, err)
		}
	}
}

// Remove removes the file.
func (f *File) Remove() error { return os.Remove(f.Path) }

// Directory finds the directory of ledgers, makes it if it is missing, and refuses one in which others could put things in our place.
func Directory() (string, error) {
	directory := os.Getenv("PLIMSOLL_DIR")
	if directory == "" {
		directory = fmt.Sprintf("/dev/shm/plimsoll-%d", os.Getuid())
	}
	if err := os.Mkdir(directory, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return directory, CheckDirectory(directory)
}

// CheckDirectory says why a directory is none to keep ledgers in.
func CheckDirectory(directory string) error {
	info, err := os.Lstat(directory)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok:
		return fmt.Errorf("%s is no directory", directory)
	case stat.Uid != 0 && int(stat.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to user %d: it must be ours or root's", directory, stat.Uid)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("%s can be written by everybody: take that away (chmod o-w)", directory)
	}
	return nil
}

// Self is what a ledger says of this process.
func Self(app string, clock func() uint64) (About, error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return About{}, err
	}
	// The second field is the program's name in brackets, which may contain anything, blanks and brackets too.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const startTime = 22 - 3 // the first field here is the third
	if len(fields) <= startTime {
		return About{}, fmt.Errorf("/proc/self/stat has %d fields after the name", len(fields))
	}
	started, err := strconv.ParseUint(fields[startTime], 10, 64)
	if err != nil {
		return About{}, fmt.Errorf("/proc/self/stat: field 22: %w", err)
	}
	return About{App: app, PID: uint64(os.Getpid()), PIDStarted: started, CreatedNS: clock()}, nil
}

// Clock is CLOCK_MONOTONIC in ns. Go reads that clock, too, but from an origin of its own; the distance is measured once.
func Clock() func() uint64 {
	const clockMonotonic = 1
	var now syscall.Timespec
	origin := time.Now()
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return nil
	}
	base := uint64(now.Nano())
	return func() uint64 { return base + uint64(time.Since(origin)) }
}

// ThreadID is the kernel's number of the thread that runs the caller.
func ThreadID() uint32 { return uint32(syscall.Gettid()) }
