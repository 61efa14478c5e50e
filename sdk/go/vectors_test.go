package plimsoll

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plimsoll.dev/go/internal/ledger"
	"plimsoll.dev/go/internal/vectors"
)

var kindsByWord = map[string]Kind{"LOCK": Lock, "MEMORY": Memory, "QUEUE": Queue, "CPU": CPU, "IO": IO}

// player plays a script through an application that has nobody to give signs of life and no agent.
type player struct {
	t     *testing.T
	app   *App
	file  *ledger.File
	now   uint64
	tasks map[string]*Task
}

// TestVectorScripts plays every script of the test vectors, and compares bytes.
func TestVectorScripts(t *testing.T) {
	for _, name := range vectors.Names(t, ".script") {
		t.Run(name, func(t *testing.T) {
			p := &player{t: t, tasks: map[string]*Task{}}
			for _, line := range strings.Split(strings.TrimSpace(string(vectors.Read(t, name+".script"))), "\n") {
				if !strings.HasPrefix(line, "#") {
					p.play(line)
				}
			}
			got, err := os.ReadFile(p.file.Path)
			if err != nil {
				t.Fatal(err)
			}
			want := vectors.Read(t, name+".ledger")
			if len(got) != len(want) {
				t.Fatalf("%d bytes, want %d", len(got), len(want))
			}
			for at := 0; at < len(want); at += 8 {
				if !bytes.Equal(got[at:at+8], want[at:at+8]) {
					t.Errorf("at %#x: %d, want %d", at, binary.LittleEndian.Uint64(got[at:]), binary.LittleEndian.Uint64(want[at:]))
				}
			}
		})
	}
}

func (p *player) number(word string) uint64 {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) begin(words []string) {
	size := func(i int) int { return int(p.number(words[i])) }
	p.app = newApp()
	p.app.clock = func() uint64 { return p.now }
	p.app.counts = ledger.Counts{Resources: size(1), Lanes: size(2), Tasks: size(3), Accounts: size(4)}
	about := ledger.About{App: words[0], PID: p.number(words[5]), PIDStarted: p.number(words[6]), CreatedNS: p.number(words[7])}
	file, err := ledger.Create(p.t.TempDir(), p.app.counts, about, false, p.app.clock)
	if err != nil {
		p.t.Fatal(err)
	}
	p.file = file
	p.app.tried.Store(true)
	p.app.runs = make([]atomic.Pointer[run], p.app.counts.Tasks)
	p.app.file.Store(file)
}

func (p *player) play(line string) {
	step, rest, _ := strings.Cut(line, " ")
	words := strings.Split(rest, " ")
	n := func(i int) uint64 { return p.number(words[i]) }
	use := func(from, to int) *Use {
		name := strings.Join(words[from:to], " ")
		return p.tasks[words[0]].Use(p.app.NewResource(Lock, name, 0)) // it is there already
	}
	last := len(words)
	switch step {
	case "ledger":
		p.begin(words)
	case "now":
		p.now = n(0)
	case "clock":
		p.file.Tick(n(0))
	case "exact": // as the agent does it
		f, err := os.OpenFile(p.file.Path, os.O_WRONLY, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, n(0)), 0xc8); err != nil {
			p.t.Fatal(err)
		}
	case "beat":
		p.file.SetBeat(n(0))
	case "resource":
		p.app.NewResource(kindsByWord[words[0]], strings.Join(words[2:], " "), int(n(1)))
	case "task":
		_, p.tasks[words[0]] = p.app.Start(context.Background(), strings.Join(words[5:], " "), func(c *choices) {
			flags := uint32(n(2))
			c.key, c.tid, c.deadlineNS = n(1), uint32(n(3)), n(4)
			c.uncancellable = flags&ledger.Cancellable == 0
			c.background = flags&ledger.Background != 0
			c.rerunning = flags&ledger.Rerun != 0
			if flags&ledger.Rerunnable != 0 {
				c.again = func(context.Context) {}
			}
		})
	case "progress":
		p.tasks[words[0]].run.progress(n(1), n(2))
	case "wait":
		use(1, last).Wait()
	case "unwait":
		use(1, last).Unwait()
	case "get":
		use(1, last-1).Get(int(n(last - 1)))
	case "free":
		use(1, last-1).Free(int(n(last - 1)))
	case "slow":
		use(1, last-2).Slow(int(n(last-2)), time.Duration(n(last-1)))
	case "end":
		r := p.tasks[words[0]].run
		r.lane = int(n(1))
		if last > 2 && words[2] == "cancelled" {
			conn, _ := deafAgent(p.t)
			if word, text := r.take(&order{conn, 1}, &Cancelled{}); word != "" {
				p.t.Fatal(word, text)
			}
		}
		r.root.End()
	default:
		p.t.Fatalf("what is %q?", line)
	}
}
