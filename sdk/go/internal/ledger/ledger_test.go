package ledger

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"
	"unsafe"
)

var small = Counts{Resources: 2, Lanes: 2, Tasks: 4, Accounts: 4}

// onHeap is a ledger in Go's own memory, where the race detector watches it.
func onHeap(c Counts) *Ledger {
	words := make([]uint64, c.length()/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), c.length())
	var now atomic.Uint64
	return lay(memory, c, About{App: "test"}, func() uint64 { return 1000 + now.Add(1) })
}

func TestLayout(t *testing.T) {
	var h header
	for name, at := range map[string][2]uintptr{
		"version":            {unsafe.Offsetof(h.version), 0x008},
		"accounts":           {unsafe.Offsetof(h.accounts), 0x018},
		"pid":                {unsafe.Offsetof(h.pid), 0x020},
		"pid_started":        {unsafe.Offsetof(h.pidStarted), 0x028},
		"created_ns":         {unsafe.Offsetof(h.createdNS), 0x030},
		"app":                {unsafe.Offsetof(h.app), 0x040},
		"app_beat_ns":        {unsafe.Offsetof(h.appBeatNS), 0x080},
		"resources_refused":  {unsafe.Offsetof(h.resourcesRefused), 0x098},
		"tasks_used":         {unsafe.Offsetof(h.tasksUsed), 0x0a0},
		"accounts_used":      {unsafe.Offsetof(h.accountsUsed), 0x0a4},
		"agent_beat_ns":      {unsafe.Offsetof(h.agentBeatNS), 0x0c0},
		"flags":              {unsafe.Offsetof(h.flags), 0x0c8},
		"agent_pid":          {unsafe.Offsetof(h.agentPID), 0x0d0},
		"clock_ns":           {unsafe.Offsetof(h.clockNS), 0x100},
		"header":             {unsafe.Sizeof(h), headerLen},
		"resource":           {unsafe.Sizeof(resource{}), resourceLen},
		"lane":               {unsafe.Sizeof(lane{}), laneLen},
		"lane's bins":        {unsafe.Offsetof(lane{}.bins), 64},
		"task":               {unsafe.Sizeof(Task{}), taskLen},
		"task's label":       {unsafe.Offsetof(Task{}.label), 64},
		"task's tid":         {unsafe.Offsetof(Task{}.tid), 52},
		"account":            {unsafe.Sizeof(Account{}), accountLen},
		"account's last one": {unsafe.Offsetof(Account{}.holdingSinceNS), 56},
	} {
		if at[0] != at[1] {
			t.Errorf("%s: %#x, want %#x", name, at[0], at[1])
		}
	}
}

func TestCountsOutOfRange(t *testing.T) {
	for _, c := range []Counts{{0, 1, 1, 1}, {257, 1, 1, 1}, {1, 65, 1, 1}, {1, 1, 131073, 1}, {1, 1, 1, 1048577}, {1, -1, 1, 1}} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "it can have 1 to") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := DefaultCounts.Check(); err != nil {
		t.Error(err)
	}
}

func TestBins(t *testing.T) {
	for latency, want := range map[uint64]int{
		0: 0, 1023: 0, 1024: 1, 15 << 10: 15, 16 << 10: 16, 17 << 10: 16, 18 << 10: 17, 5000000: 81, 1 << 63: 247, 1<<64 - 1: 247,
	} {
		if got := bin(latency); got != want {
			t.Errorf("%d ns: bin %d, want %d", latency, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		text   string
		length int
		want   string
	}{
		{"short", 8, "short"}, {"just so.", 8, "just so."}, {"1234567é", 8, "1234567"}, {"123456é", 8, "123456é"},
		{"1234567€", 8, "1234567"}, {"a\x00b", 8, "a"}, {"\xff\xfea", 8, "?a"}, {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80", 8, "?"}, {"", 8, ""},
	} {
		got := cut(c.text, c.length)
		if got != c.want || len(got) > c.length || !utf8.ValidString(got) {
			t.Errorf("cut(%q, %d) = %q, want %q", c.text, c.length, got, c.want)
		}
	}
}

func TestAppNames(t *testing.T) {
	for program, want := range map[string]string{"shop": "shop", "my shop.exe": "my-shop-exe", "": "app", strings.Repeat("x", 40): strings.Repeat("x", 32)} {
		if got := AppFrom(program); got != want || checkApp(got) != nil {
			t.Errorf("%q gives %q, want %q", program, got, want)
		}
	}
	for _, name := range []string{"", "a.b", "../a", strings.Repeat("x", 33), "é"} {
		if err := checkApp(name); err == nil || !strings.Contains(err.Error(), "write 1 to 32") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestBeatTakesOverFromADeadAgent(t *testing.T) {
	now := uint64(5e9)
	l := onHeap(small)
	l.clock = func() uint64 { return now }
	l.head.agentBeatNS, l.head.flags = 45e8, FlagExact
	l.Beat()
	if l.head.appBeatNS != now || l.head.clockNS != 0 || l.head.flags != FlagExact {
		t.Errorf("the agent lives: %+v", l.head)
	}
	now = 6e9
	l.Beat()
	if l.head.clockNS != now || l.head.flags != 0 {
		t.Errorf("the agent is dead, and the clock at %d, flags %d", l.head.clockNS, l.head.flags)
	}
}

// Whatever an application says, an account's sums follow: held is what was got and not given back, never less than nothing.
func TestAccountsAddUp(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	l := onHeap(small)
	var h Handle
	l.Take(&h, 0, 1, 0)
	a := h.account.Load()
	var held, gets, slows uint64
	waiting := false
	for step := range 100_000 {
		n := random.Uint64N(4)
		l.head.clockNS = 1 + random.Uint64N(1000)
		l.head.flags = random.Uint64N(2)
		switch random.IntN(5) {
		case 0:
			h.Get(n)
			held, gets, waiting = held+n, gets+n, false
		case 1:
			h.Free(n)
			held -= min(n, held)
		case 2:
			h.Wait()
			if !waiting {
				slows++
			}
			waiting = true
		case 3:
			h.EndWait()
			waiting = false
		case 4:
			h.Slow(n, 5)
			slows += n
		}
		if a.gets != gets || a.gets-a.frees != held || a.slows != slows || (a.holdingSinceNS != 0) != (held != 0) || (a.waitingSinceNS != 0) != waiting {
			t.Fatalf("step %d: %+v; held %d, gets %d, slows %d, waiting %v", step, *a, held, gets, slows, waiting)
		}
	}
}

// Records taken and given back by many goroutines at once are never had by two, and fresh ones are taken only when no used one is free.
func TestRecordsAreTakenOnce(t *testing.T) {
	const goroutines, rounds = 8, 5000
	c := Counts{Resources: 2, Lanes: 2, Tasks: goroutines, Accounts: 2 * goroutines}
	l := onHeap(c)
	owners := make([]int, c.Tasks) // written without a lock: the race detector sees two who have the same
	var all sync.WaitGroup
	for g := range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			for range rounds {
				task, turn, ok := l.TakeTask()
				if !ok {
					t.Error("there is one for each")
					return
				}
				owners[task] = g
				l.Begin(task, turn, Start{Label: fmt.Sprint(g)})
				of := uint32(g % 2)
				var h Handle
				l.Take(&h, task, turn, of)
				h.Get(1)
				if owners[task] != g {
					t.Error("somebody else has the task")
				}
				h.GiveBack(l.Now())
				l.End(task, turn)
				l.Count(g, 1, false)
			}
		}()
	}
	all.Wait()
	var gets, turns, completed uint64
	for i := range l.accounts {
		gets += l.accounts[i].gets
	}
	for i := range l.tasks {
		turns += l.tasks[i].turn
	}
	for i := range l.lanes {
		completed += l.lanes[i].completed
	}
	if all := uint64(goroutines * rounds); gets != all || turns != 2*all || completed != all {
		t.Errorf("%d gets, %d turns, %d completed of %d tasks", gets, turns, completed, all)
	}
	if l.head.tasksRefused != 0 || l.head.accountsRefused != 0 {
		t.Errorf("refused: %d tasks, %d accounts", l.head.tasksRefused, l.head.accountsRefused)
	}
}

func TestFile(t *testing.T) {
	directory := t.TempDir()
	clock := Clock()
	about, err := Self("shop", clock)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range []bool{false, true} {
		// A process before us had our number, and was killed; so was one in the middle of making its ledger.
		path := filepath.Join(directory, fmt.Sprintf("shop.%d.ledger", os.Getpid()))
		for _, stale := range []string{path, path + ".new"} {
			if err := os.WriteFile(stale, []byte("stale"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Create(directory, small, about, group, clock)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool]os.FileMode{false: 0o600, true: 0o640}[group]; info.Mode() != want || info.Size() != int64(small.length()) {
			t.Errorf("mode %v, want %v; %d bytes, want %d", info.Mode(), want, info.Size(), small.length())
		}
		bytes, _ := os.ReadFile(path)
		read, wrong := open(bytes)
		if wrong != "" || read.head.pid != uint64(os.Getpid()) || read.head.pidStarted == 0 || read.head.createdNS == 0 {
			t.Errorf("refused for its %q: %+v", wrong, read)
		}
		if err := f.Remove(); err != nil {
			t.Error(err)
		}
	}
	left, _ := os.ReadDir(directory)
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDirectoriesThatAreRefused(t *testing.T) {
	base := t.TempDir()
	open := filepath.Join(base, "open")
	os.Mkdir(open, 0o700)
	os.Chmod(open, 0o707)
	file := filepath.Join(base, "file")
	os.WriteFile(file, nil, 0o600)
	link := filepath.Join(base, "link")
	os.Symlink(base, link)
	for path, want := range map[string]string{
		open: "can be written by everybody", file: "is no directory", link: "is no directory", filepath.Join(base, "none"): "no such file",
	} {
		if err := CheckDirectory(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if os.Getuid() == 0 {
		other := filepath.Join(base, "other")
		os.Mkdir(other, 0o700)
		os.Chown(other, 12345, -1)
		if err := CheckDirectory(other); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("%v", err)
		}
	}
	if err := CheckDirectory(base); err != nil {
		t.Error(err)
	}
}

func TestDirectoryIsMade(t *testing.T) {
	want := filepath.Join(t.TempDir(), "made")
	t.Setenv("PLIMSOLL_DIR", want)
	got, err := Directory()
	if err != nil || got != want {
		t.Fatalf("%q, %v", got, err)
	}
	if info, err := os.Stat(got); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}
