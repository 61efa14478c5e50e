// What a task does with a resource.
package plimsoll

import (
	"time"

	"plimsoll.dev/go/internal/ledger"
)

// Use is what a task, or a fork of it, does with a resource. One goroutine at a time may use it. A nil *Use is one that goes unaccounted.
type Use struct {
	resource *Resource
	account  ledger.Handle // which does nothing when there was none, and when the task has ended
}

// Wait says that the task begins to wait for the resource, because others have it. The next Get ends the wait; so does Unwait.
func (u *Use) Wait() {
	if u != nil {
		u.account.Wait()
	}
}

// Unwait says that the task waits no more, though it got nothing. Without a wait it does nothing.
func (u *Use) Unwait() {
	if u != nil {
		u.account.EndWait()
	}
}

// Get says that the task took n units, which ends its wait. n below 0 is nothing.
func (u *Use) Get(n int) {
	if u != nil && n >= 0 {
		u.account.Get(uint64(n))
	}
}

// Free says that the task gave n units back. What is more than it holds does not count; n below 1 is nothing.
func (u *Use) Free(n int) {
	if u != nil && n > 0 {
		u.account.Free(uint64(n))
	}
}

// Slow says that n units were delayed by so much altogether: entries of a cache that had to be evicted for the task, or waits that were measured
// elsewhere. What is below 1, or 0, is nothing.
func (u *Use) Slow(n int, delay time.Duration) {
	if u != nil && n > 0 && delay >= 0 {
		u.account.Slow(uint64(n), uint64(delay))
	}
}

// Use is what the task does with a resource. The same task and resource give the same Use, so it can be asked for again and again; where
// nanoseconds count, keep it. It is nil for a nil task, one that found the ledger full, a nil resource and one of another
// application.
func (t *Task) Use(r *Resource) *Use {
	if t == nil {
		return nil
	}
	for i := range t.few[:t.fewUsed.Load()] {
		if t.few[i].resource == r {
			return &t.few[i]
		}
	}
	return t.useMore(r)
}

// useMore finds the Use of a resource among those that did not fit into the task, or makes it.
func (t *Task) useMore(r *Resource) *Use {
	if r == nil || r.app != t.run.app || !t.run.recorded {
		return nil
	}
	if more := t.more.Load(); more != nil {
		for _, u := range *more {
			if u.resource == r {
				return u
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	return t.takeUse(r)
}

// takeUse makes the Use of a resource, under the lock, unless another goroutine has done so meanwhile. A Use for which there was no account
// is kept like any other, so that the ledger is asked once.
func (t *Task) takeUse(r *Resource) *Use {
	used := t.fewUsed.Load()
	var more []*Use
	if kept := t.more.Load(); kept != nil {
		more = *kept
	}
	for i := range t.few[:used] {
		if t.few[i].resource == r {
			return &t.few[i]
		}
	}
	for _, u := range more {
		if u.resource == r {
			return u
		}
	}
	index := r.index.Load()
	if index < 0 && len(more) >= resourceLimit {
		return nil
	}
	u := &Use{}
	if int(used) < len(t.few) {
		u = &t.few[used]
	}
	u.resource = r
	if index >= 0 {
		t.run.ledger.Take(&u.account, t.run.index, t.run.turn, uint32(index))
	}
	if int(used) < len(t.few) {
		t.fewUsed.Store(used + 1)
	} else {
		more = append(more[:len(more):len(more)], u) // a copy: others may be reading the one that there is
		t.more.Store(&more)
	}
	return u
}

// giveBack gives all accounts back: what is still held is freed. From then on the Uses do nothing.
func (t *Task) giveBack() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	now := t.run.ledger.Now()
	for i := range t.few[:t.fewUsed.Load()] {
		t.few[i].account.GiveBack(now)
	}
	if more := t.more.Load(); more != nil {
		for _, u := range *more {
			u.account.GiveBack(now)
		}
	}
}
