// Reads every ledger of the test vectors, and prints it as text or says why it is none.
package ledger

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"plimsoll.dev/go/internal/vectors"
)

// open lays the records over a ledger that was read, or says in a word why it is none.
func open(file []byte) (*Ledger, string) {
	if len(file) < 8 || string(file[:8]) != Magic {
		return nil, "magic"
	}
	if len(file) < headerLen {
		return nil, "length"
	}
	aligned := make([]uint64, (len(file)+7)/8)
	memory := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), len(file))
	copy(memory, file)
	h := (*header)(unsafe.Pointer(&memory[0]))
	if h.version != Version {
		return nil, "version"
	}
	c := Counts{int(h.resources), int(h.lanes), int(h.tasks), int(h.accounts)}
	if c.Check() != nil {
		return nil, "counts"
	}
	if len(file) != c.length() {
		return nil, "length"
	}
	if checkApp(text(h.app[:])) != nil {
		return nil, "app"
	}
	about := About{text(h.app[:]), h.pid, h.pidStarted, h.createdNS}
	return lay(memory, c, about, nil), ""
}

var kinds = []string{"", "LOCK", "MEMORY", "QUEUE", "CPU", "IO"}

// shown is a text with a blank before it, if it is not empty; what cannot be shown is U+FFFD.
func shown(padded []byte) string {
	var s strings.Builder
	for rest := text(padded); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if unicode.IsControl(r) {
			r = utf8.RuneError
		}
		s.WriteRune(r)
		rest = rest[size:]
	}
	if s.Len() == 0 {
		return ""
	}
	return " " + s.String()
}

func dump(l *Ledger) string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	h := l.head
	tasksUsed, accountsUsed := min(int(h.tasksUsed), len(l.tasks)), min(int(h.accountsUsed), len(l.accounts))
	line("ledger %s version=%d resources=%d lanes=%d tasks=%d accounts=%d pid=%d pid_started=%d created_ns=%d",
		text(h.app[:]), h.version, h.resources, h.lanes, h.tasks, h.accounts, h.pid, h.pidStarted, h.createdNS)
	line("application beat_ns=%d tasks_refused=%d accounts_refused=%d resources_refused=%d tasks_used=%d accounts_used=%d",
		h.appBeatNS, h.tasksRefused, h.accountsRefused, h.resourcesRefused, tasksUsed, accountsUsed)
	line("agent beat_ns=%d exact=%d pid=%d", h.agentBeatNS, h.flags&FlagExact, h.agentPID)
	line("clock ns=%d", h.clockNS)
	for i := range l.resources {
		if r := &l.resources[i]; r.kind >= 1 && int(r.kind) < len(kinds) {
			line("resource %d %s capacity=%d%s", i, kinds[r.kind], r.capacity, shown(r.name[:]))
		}
	}
	for i := range l.lanes {
		if lane := &l.lanes[i]; lane.completed != 0 {
			var filled []string
			for bin, n := range lane.bins {
				if n != 0 {
					filled = append(filled, fmt.Sprintf("%d:%d", bin, n))
				}
			}
			line("lane %d completed=%d cancelled=%d sum_ns=%d bins=%s", i, lane.completed, lane.cancelled, lane.sumNS, strings.Join(filled, ","))
		}
	}
	for i := range l.tasks[:tasksUsed] {
		t := &l.tasks[i]
		line("task %d turn=%d key=%d started_ns=%d done=%d total=%d deadline_ns=%d flags=%d tid=%d%s",
			i, t.turn, t.key, t.startedNS, t.done, t.total, t.deadlineNS, t.flags, t.tid, shown(t.label[:]))
	}
	for i := range l.accounts[:accountsUsed] {
		a := &l.accounts[i]
		task, turn, resource := uint32(a.owner), a.owner>>48, a.owner>>32&0xffff
		owner := "task=- turn=0"
		if task != 0 && int(task) <= len(l.tasks) && int(resource) < len(l.resources) {
			if now := l.tasks[task-1].turn; now%2 == 1 && now&0xffff == turn {
				owner = fmt.Sprintf("task=%d turn=%d", task-1, turn)
			}
		}
		line("account %d %s resource=%d gets=%d frees=%d slows=%d wait_ns=%d hold_ns=%d waiting_since_ns=%d holding_since_ns=%d",
			i, owner, resource, a.gets, a.frees, a.slows, a.waitNS, a.holdNS, a.waitingSinceNS, a.holdingSinceNS)
	}
	return s.String()
}

func TestVectorDumps(t *testing.T) {
	for _, name := range vectors.Names(t, ".dump") {
		t.Run(name, func(t *testing.T) {
			l, wrong := open(vectors.Read(t, name+".ledger"))
			if wrong != "" {
				t.Fatalf("refused for its %s", wrong)
			}
			if got, want := dump(l), string(vectors.Read(t, name+".dump")); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestVectorErrors(t *testing.T) {
	for _, name := range vectors.Names(t, ".error") {
		t.Run(name, func(t *testing.T) {
			_, got := open(vectors.Read(t, name+".ledger"))
			if want := strings.TrimSpace(string(vectors.Read(t, name+".error"))); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
