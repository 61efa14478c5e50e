// A task: what can be cancelled.
package plimsoll

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll.dev/go/internal/ledger"
)

// Task is a request, a session or a background job, or a fork of one. A nil *Task is one that goes unaccounted.
//
// One goroutine at a time may tell what a task does with a resource; goroutines that work for the same task at once need a [Task.Fork] each.
// Should they do without, nothing breaks, but counts may be lost until the task ends. Progress, Cancelled, Completed and End may be called from anywhere.
type Task struct {
	run     *run
	mu      sync.Mutex // for what is rare: a first use, and the end
	ended   bool
	fewUsed atomic.Int32
	few     [4]Use
	more    atomic.Pointer[[]*Use]
}

// run is what a task and its forks share.
type run struct {
	choices
	root      Task
	app       *App
	lane      int
	ledger    *ledger.Ledger
	recorded  bool // or else the ledger was full: nothing is known of it but, when it ends, how long it took
	index     uint32
	turn      uint64
	startedNS uint64
	label     string
	parent    context.Context
	stop      context.CancelCauseFunc

	mu    sync.Mutex
	over  bool
	forks map[*Task]struct{}
	fate
}

type contextKey struct{}

// Start begins a task of the default application: see [App.Start].
func Start(ctx context.Context, label string, options ...TaskOption) (context.Context, *Task) {
	return std.Start(ctx, label, options...)
}

// Start begins a task. label says what it is, for people: `GET /report`; it is cut to 64 bytes. The context that it returns carries the task, and
// ends when the task is cancelled, with a [*Cancelled] as its cause; or when the task ends. So each task must be ended: `defer task.End()`.
func (a *App) Start(ctx context.Context, label string, options ...TaskOption) (context.Context, *Task) {
	file := a.ledger()
	if file == nil {
		return ctx, nil
	}
	r := &run{app: a, ledger: file.Ledger, label: label, parent: ctx}
	r.root.run = r
	for _, option := range options {
		option(&r.choices)
	}
	r.startedNS = file.Exact()
	if r.deadlineNS == 0 {
		r.deadlineNS = deadline(ctx, r.deadline, r.startedNS)
	}
	if r.index, r.turn, r.recorded = file.TakeTask(); r.recorded {
		ctx, r.stop = context.WithCancelCause(ctx)
		r.lane = int(r.index) // tasks that run at once have different ones
		a.runs[r.index].Store(r)
		file.Begin(r.index, r.turn, ledger.Start{
			Key: r.key, StartedNS: r.startedNS, DeadlineNS: r.deadlineNS, Flags: r.flags(), TID: r.tid, Label: label,
		})
	}
	return context.WithValue(ctx, contextKey{}, &r.root), &r.root
}

func (r *run) flags() (flags uint32) {
	if !r.uncancellable && !r.rerunning {
		flags |= ledger.Cancellable
	}
	if r.background {
		flags |= ledger.Background
	}
	if r.again != nil {
		flags |= ledger.Rerunnable
	}
	if r.rerunning {
		flags |= ledger.Rerun
	}
	return flags
}

// deadline is when a task is of no use any more, in ns of the exact clock: as it was chosen, or else when its context ends; 0 if never.
func deadline(ctx context.Context, chosen time.Time, now uint64) uint64 {
	if chosen.IsZero() {
		var ok bool
		if chosen, ok = ctx.Deadline(); !ok {
			return 0
		}
	}
	if left := time.Until(chosen); left > 0 {
		return now + uint64(left)
	}
	return now
}

// FromContext is the task that a context carries, or nil.
func FromContext(ctx context.Context) *Task {
	t, _ := ctx.Value(contextKey{}).(*Task)
	return t
}

// Progress says that the task has done so much of total: rows, bytes, steps. total is 0 while nobody knows; what is below 0 counts as 0.
func (t *Task) Progress(done, total int64) {
	if t != nil {
		t.run.progress(uint64(max(done, 0)), uint64(max(total, 0)))
	}
}

func (r *run) progress(done, total uint64) {
	r.mu.Lock() // so that it does not end meanwhile, and this becomes another task's progress
	defer r.mu.Unlock()
	if r.recorded && !r.over {
		r.ledger.Progress(r.index, done, total)
	}
}

// Cancelled is why the task is being cancelled, or was, or nil if it is not. It says so before the context ends, while the action of [OnCancel] runs,
// and still says so when the task has ended.
func (t *Task) Cancelled() *Cancelled {
	if t == nil {
		return nil
	}
	t.run.mu.Lock()
	defer t.run.mu.Unlock()
	return t.run.why
}

// Completed says that the task has done what it was to do, even if it is being cancelled: it then counts as finished, and is not run again.
func (t *Task) Completed() {
	if t == nil {
		return
	}
	t.run.mu.Lock()
	t.run.completed = true
	t.run.mu.Unlock()
}

// Fork is for a further goroutine that works for the task at the same time: what that goroutine does with resources goes through the context or
// the task that Fork returns. It ends with its own End, or with the task; only the task's End ends the task.
func (t *Task) Fork(ctx context.Context) (context.Context, *Task) {
	if t == nil {
		return ctx, nil
	}
	r := t.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return ctx, nil
	}
	fork := &Task{run: r}
	if r.forks == nil {
		r.forks = map[*Task]struct{}{}
	}
	r.forks[fork] = struct{}{}
	return context.WithValue(ctx, contextKey{}, fork), fork
}

// Fork forks the task that a context carries: see [Task.Fork].
func Fork(ctx context.Context) (context.Context, *Task) { return FromContext(ctx).Fork(ctx) }

// End ends the task, and its context: what it holds is given back, and if it is a request, its latency counts. To end a task again does nothing.
// The end of a fork gives back what the fork holds.
func (t *Task) End() {
	if t == nil {
		return
	}
	r := t.run
	if t != &r.root {
		t.giveBack()
		r.mu.Lock()
		delete(r.forks, t)
		r.mu.Unlock()
		return
	}
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	r.over = true
	forks := r.forks
	r.forks = nil
	cancelled, order := r.ending()
	r.mu.Unlock()

	for fork := range forks {
		fork.giveBack()
	}
	t.giveBack()
	if r.recorded {
		r.ledger.End(r.index, r.turn)
		r.app.runs[r.index].CompareAndSwap(r, nil)
		r.stop(nil)
	}
	if !r.background {
		r.ledger.Count(r.lane, between(r.startedNS, r.ledger.Exact()), cancelled)
	}
	if order != nil {
		r.ended(order, cancelled)
	}
}

func between(since, now uint64) uint64 {
	if now < since {
		return 0
	}
	return now - since
}
