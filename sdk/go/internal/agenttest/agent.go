// Package agenttest is an agent for tests: it reads the ledger from outside, as the real one does, and cancels what a test names.
package agenttest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what must come: no test takes that long unless it fails.
const patience = 30 * time.Second

// Agent is an agent for one application.
type Agent struct {
	t         testing.TB
	Directory string // where the application must keep its ledger
	listener  *net.UnixListener
	conn      net.Conn
	lines     *bufio.Scanner
	ledger    string
	id        int
}

// New listens in a directory of its own.
func New(t testing.TB) *Agent {
	t.Helper()
	directory, err := os.MkdirTemp("", "plimsoll") // its path must be short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(directory, "agent.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{t: t, Directory: directory, listener: listener}
	t.Cleanup(func() {
		listener.Close()
		if a.conn != nil {
			a.conn.Close()
		}
		os.RemoveAll(directory)
	})
	return a
}

// Welcome waits for the application and welcomes it.
func (a *Agent) Welcome() {
	a.t.Helper()
	a.listener.SetDeadline(time.Now().Add(patience))
	conn, err := a.listener.Accept()
	if err != nil {
		a.t.Fatal(err)
	}
	a.conn, a.lines = conn, bufio.NewScanner(conn)
	a.ledger = filepath.Join(a.Directory, a.hear("hello 1 "))
	a.Say("welcome 1 enforce")
}

// Say says a line.
func (a *Agent) Say(line string) {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.conn, line); err != nil {
		a.t.Fatal(err)
	}
}

// Hear waits for a line, which must be this one.
func (a *Agent) Hear(line string) {
	a.t.Helper()
	if rest := a.hear(line); rest != "" {
		a.t.Fatalf("heard %q, want %q", line+rest, line)
	}
}

func (a *Agent) hear(beginning string) string {
	a.t.Helper()
	a.conn.SetReadDeadline(time.Now().Add(patience))
	if !a.lines.Scan() {
		a.t.Fatalf("no line, but %v; want %q", a.lines.Err(), beginning)
	}
	rest, ok := strings.CutPrefix(a.lines.Text(), beginning)
	if !ok {
		a.t.Fatalf("heard %q, want %q", a.lines.Text(), beginning)
	}
	return rest
}

// Cancel waits for a task whose label begins so (a zero byte ends it) and that holds so many units altogether; then it orders it to be
// cancelled, and gives the ID of the order.
func (a *Agent) Cancel(label string, holding uint64, reason string) (id int) {
	a.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if task, turn, ok := a.find(label, holding); ok {
			a.id++
			a.Say(fmt.Sprintf("cancel %d %d %d 0 %s", a.id, task, turn, reason))
			return a.id
		}
	}
	a.t.Fatalf("no task %q ever held %d", label, holding)
	return 0
}

// find looks for a living task that may be cancelled, with this label, which holds so many units.
func (a *Agent) find(label string, holding uint64) (task int, turn uint64, ok bool) {
	a.t.Helper()
	file, err := os.ReadFile(a.ledger)
	if err != nil {
		a.t.Fatal(err)
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(file[at:]) }
	u32 := func(at int) int { return int(binary.LittleEndian.Uint32(file[at:])) }
	tasksAt := 4096 + 64*u32(0x0c) + 2048*u32(0x10)
	accountsAt := tasksAt + 128*u32(0x14)
	for task = range u32(0xa0) {
		at := tasksAt + 128*task
		if turn = u64(at); turn%2 == 0 || u32(at+48)&1 == 0 || !bytes.HasPrefix(file[at+64:at+128], []byte(label)) {
			continue
		}
		held := uint64(0)
		for i := range u32(0xa4) {
			if at := accountsAt + 64*i; u32(at) == task+1 {
				held += u64(at+8) - u64(at+16)
			}
		}
		if held >= holding {
			return task, turn, true
		}
	}
	return 0, 0, false
}
