package plimsoll

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plimsoll.dev/go/internal/control"
)

// patience is how long a test waits for what must come: no test takes that long unless it fails.
const patience = 20 * time.Second

// fakeAgent listens where an agent does, and says what a test tells it to.
type fakeAgent struct {
	t        *testing.T
	listener net.Listener
	conn     net.Conn
	lines    *bufio.Scanner
}

// directory is a directory for ledgers, whose path is short enough for a socket.
func directory(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("", "plimsoll")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(path) })
	return path
}

func listen(t *testing.T, directory string) *fakeAgent {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(directory, control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	g := &fakeAgent{t: t, listener: listener}
	t.Cleanup(g.die)
	return g
}

// hear waits for a line, which must begin so, and gives what follows.
func (g *fakeAgent) hear(beginning string) string {
	g.t.Helper()
	g.conn.SetReadDeadline(time.Now().Add(patience))
	if !g.lines.Scan() {
		g.t.Fatalf("no line, but %v; want %q", g.lines.Err(), beginning)
	}
	rest, ok := strings.CutPrefix(g.lines.Text(), beginning)
	if !ok {
		g.t.Fatalf("heard %q, want %q", g.lines.Text(), beginning)
	}
	return rest
}

func (g *fakeAgent) say(format string, args ...any) {
	g.t.Helper()
	if _, err := fmt.Fprintf(g.conn, format+"\n", args...); err != nil {
		g.t.Fatal(err)
	}
}

// accept waits for an application.
func (g *fakeAgent) accept() (ledger string) {
	g.t.Helper()
	g.listener.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	conn, err := g.listener.Accept()
	if err != nil {
		g.t.Fatal(err)
	}
	g.conn, g.lines = conn, bufio.NewScanner(conn)
	return g.hear("hello 1 ")
}

// welcome waits for an application and welcomes it.
func (g *fakeAgent) welcome() (ledger string) {
	g.t.Helper()
	ledger = g.accept()
	g.say("welcome 1 enforce")
	return ledger
}

// cancel orders that a task be cancelled.
func (g *fakeAgent) cancel(id uint64, t *Task, r *Resource, reason string) {
	g.t.Helper()
	g.say("cancel %d %d %d %d %s", id, t.run.index, t.run.turn, r.index.Load(), reason)
}

// hangUp ends the connection.
func (g *fakeAgent) hangUp() { g.conn.Close() }

// die ends all.
func (g *fakeAgent) die() {
	g.listener.Close()
	if g.conn != nil {
		g.conn.Close()
	}
}

// deafAgent is a connection with an agent that reads nothing.
func deafAgent(t *testing.T) (*control.Conn, *fakeAgent) {
	t.Helper()
	at := directory(t)
	g := listen(t, at)
	conn, err := control.Dial(filepath.Join(at, control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn, g
}

// within waits for something that must come.
func within[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("%s: nothing after %v", what, patience)
	}
	return got
}
