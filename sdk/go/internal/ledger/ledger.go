// A ledger that is mapped: its records, who takes them, and the time that events are stamped with.
package ledger

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Ledger is a ledger of this process. All methods may be called from any goroutine; those of an [Account] only by the one it belongs to.
type Ledger struct {
	head      *header
	resources []resource
	lanes     []lane
	tasks     []Task
	accounts  []Account
	clock     func() uint64

	freeTasks     stack
	freeAccounts  []stack // by resource
	tasksBelow    links
	accountsBelow links
	mu            sync.Mutex // for what is rare: a record that was never used, and resources
	used          Counts     // how many records of each kind were ever used
}

// About is what a ledger says of the process that writes it.
type About struct {
	App                        string // the application's name
	PID, PIDStarted, CreatedNS uint64
}

// lay lays a ledger of c records over memory, which is zero, aligned to 8 bytes and c.length() long, and writes its header but for the
// magic. clock is the exact time in ns.
func lay(memory []byte, c Counts, about About, clock func() uint64) *Ledger {
	at := func(offset int) unsafe.Pointer { return unsafe.Pointer(&memory[offset]) }
	l := &Ledger{
		head:          (*header)(at(0)),
		resources:     unsafe.Slice((*resource)(at(headerLen)), c.Resources),
		lanes:         unsafe.Slice((*lane)(at(c.lanesAt())), c.Lanes),
		tasks:         unsafe.Slice((*Task)(at(c.tasksAt())), c.Tasks),
		accounts:      unsafe.Slice((*Account)(at(c.accountsAt())), c.Accounts),
		clock:         clock,
		freeAccounts:  make([]stack, c.Resources),
		tasksBelow:    make(links, c.Tasks),
		accountsBelow: make(links, c.Accounts),
	}
	h := l.head
	h.version = Version
	h.resources, h.lanes, h.tasks, h.accounts = uint32(c.Resources), uint32(c.Lanes), uint32(c.Tasks), uint32(c.Accounts)
	h.pid, h.pidStarted, h.createdNS = about.PID, about.PIDStarted, about.CreatedNS
	copy(h.app[:], about.App)
	return l
}

// Now is the time to stamp an event with, in ns: the coarse one, unless the agent asked for exact ones. It is never 0, because the clock is ticked
// before there is anything to stamp. It is small enough to be inlined.
func (l *Ledger) Now() uint64 {
	if atomic.LoadUint64(&l.head.flags)&FlagExact != 0 {
		return l.clock()
	}
	return atomic.LoadUint64(&l.head.clockNS)
}

// Exact is the exact time, in ns.
func (l *Ledger) Exact() uint64 { return l.clock() }

// Beat is the application's sign of life. If the agent gave none for a second, it ticks the coarse clock, too, and withdraws
// what the agent may have left behind.
func (l *Ledger) Beat() {
	now := l.clock()
	l.SetBeat(now)
	if between(atomic.LoadUint64(&l.head.agentBeatNS), now) > 1e9 {
		l.Tick(now)
		atomic.StoreUint64(&l.head.flags, 0)
	}
}

// SetBeat says when the application last gave a sign of life, in ns.
func (l *Ledger) SetBeat(now uint64) {
	atomic.StoreUint64(&l.head.appBeatNS, now)
}

// Tick sets the coarse time, in ns.
func (l *Ledger) Tick(now uint64) { atomic.StoreUint64(&l.head.clockNS, now) }

// Resource finds the record of a resource, or takes one. capacity is how many units can be held at once, 0 if nobody knows.
func (l *Ledger) Resource(kind Kind, capacity uint64, name string) (index uint32, err error) {
	name = cut(name, nameLen)
	if name == "" {
		return 0, fmt.Errorf("a resource has no name")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.resources[:l.used.Resources] {
		if text(l.resources[i].name[:]) == name {
			return uint32(i), nil
		}
	}
	if l.used.Resources == len(l.resources) {
		atomic.AddUint64(&l.head.resourcesRefused, 1)
		return 0, fmt.Errorf("resource %q: the ledger has room for %d", name, len(l.resources))
	}
	r := &l.resources[l.used.Resources]
	r.capacity = capacity
	copy(r.name[:], name)
	atomic.StoreUint32(&r.kind, uint32(kind))
	l.used.Resources++
	return uint32(l.used.Resources - 1), nil
}

// Start is what a task begins with.
type Start struct {
	Key, StartedNS, DeadlineNS uint64
	Flags, TID                 uint32
	Label                      string
}

// TakeTask takes the record of a task, which nobody sees before it begins. With none free the task goes unaccounted, and ok is false.
// turn is what the task's will be.
func (l *Ledger) TakeTask() (task uint32, turn uint64, ok bool) {
	task, ok = l.freeTasks.pop(l.tasksBelow)
	if !ok {
		if task, ok = l.fresh(&l.used.Tasks, &l.head.tasksUsed, len(l.tasks)); !ok {
			atomic.AddUint64(&l.head.tasksRefused, 1)
			return 0, 0, false
		}
	}
	return task, atomic.LoadUint64(&l.tasks[task].turn) | 1, true // a free record's turn is even
}

// Begin begins a task in a record that was taken for it.
func (l *Ledger) Begin(task uint32, turn uint64, s Start) {
	t := &l.tasks[task]
	t.key, t.startedNS, t.deadlineNS, t.flags, t.tid = s.Key, s.StartedNS, s.DeadlineNS, s.Flags, s.TID
	t.done, t.total = 0, 0
	label := cut(s.Label, labelLen)
	clear(t.label[copy(t.label[:], label):])
	atomic.StoreUint64(&t.turn, turn)
}

// Progress says that a task has done so much of total, which is 0 while nobody knows.
func (l *Ledger) Progress(task uint32, done, total uint64) {
	t := &l.tasks[task]
	atomic.StoreUint64(&t.total, total)
	atomic.StoreUint64(&t.done, done)
}

// Over tells whether a record of tasks was in use with this turn, and is no more.
func (l *Ledger) Over(task uint32, turn uint64) bool {
	return task < uint32(len(l.tasks)) && turn%2 == 1 && atomic.LoadUint64(&l.tasks[task].turn) > turn
}

// End ends a task, whose accounts have been given back.
func (l *Ledger) End(task uint32, turn uint64) {
	atomic.StoreUint64(&l.tasks[task].turn, turn+1)
	l.freeTasks.push(l.tasksBelow, task)
}

// Count adds a request to a lane: one that took latencyNS, and ended because it was cancelled or else by itself.
func (l *Ledger) Count(of int, latencyNS uint64, cancelled bool) {
	lane := &l.lanes[of%len(l.lanes)]
	atomic.AddUint64(&lane.completed, 1)
	atomic.AddUint64(&lane.sumNS, latencyNS)
	if cancelled {
		atomic.AddUint64(&lane.cancelled, 1)
	} else {
		atomic.AddUint64(&lane.bins[bin(latencyNS)], 1)
	}
}

// bin is the bin of a latency: none is wider than an eighth of its values.
func bin(latencyNS uint64) int {
	v := latencyNS >> 10
	shift := max(0, bits.Len64(v)-4)
	return min(shift<<3+int(v>>shift), bins-1)
}

// Take gives h an account of a resource, for a task. With none free that use goes unaccounted.
func (l *Ledger) Take(h *Handle, task uint32, turn uint64, of uint32) {
	index, ok := l.freeAccounts[of].pop(l.accountsBelow)
	if !ok {
		if index, ok = l.fresh(&l.used.Accounts, &l.head.accountsUsed, len(l.accounts)); !ok {
			atomic.AddUint64(&l.head.accountsRefused, 1)
			return
		}
	}
	h.ledger, h.index, h.of = l, index, of
	l.accounts[index].setOwner(ownerOf(task, turn, of))
	h.account.Store(&l.accounts[index])
}

// GiveBack ends what goes on in the account of h, if it has one, takes its owner away and lets others have it.
func (h *Handle) GiveBack(now uint64) {
	a := h.account.Swap(nil)
	if a == nil {
		return
	}
	a.close(now)
	a.setOwner(uint64(h.of) << 32)
	h.ledger.freeAccounts[h.of].push(h.ledger.accountsBelow, h.index)
}

// fresh takes a record that was never used: one of limit. *used is how many were taken, and word is where the ledger says so.
func (l *Ledger) fresh(used *int, word *uint32, limit int) (index uint32, ok bool) {
	if atomic.LoadUint32(word) >= uint32(limit) {
		return 0, false // without the lock: a full ledger makes nobody wait
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if *used >= limit {
		return 0, false
	}
	*used++
	atomic.StoreUint32(word, uint32(*used))
	return uint32(*used - 1), true
}
