// How a task is cancelled: what its context then says, and what becomes of the agent's order.
package plimsoll

import (
	"context"

	"plimsoll.dev/go/internal/control"
)

// Cancelled is why a task was cancelled. It is the cause of the task's context ([context.Cause]), and as an error it is a [context.Canceled], too:
// `errors.Is(err, context.Canceled)` holds.
type Cancelled struct {
	Task     string // the label
	Key      uint64 // the application's number for it
	Resource string // the name of what it held up
	Reason   string // the agent's words, for people
}

// Error is `cancelled: REASON`.
func (c *Cancelled) Error() string { return "cancelled: " + c.Reason }

// Unwrap is [context.Canceled].
func (c *Cancelled) Unwrap() error { return context.Canceled }

// order is the agent's order to cancel a task.
type order struct {
	conn *control.Conn
	id   uint64
}

func (o *order) outcome(word control.Word, text string) {
	o.conn.Say(control.Outcome(o.id, word, text))
}

// fate is what becomes of a task. It is guarded by the lock of the run that it is part of.
type fate struct {
	tried     bool       // to cancel it: that happens once
	why       *Cancelled // while it is being cancelled, and ever after
	order     *order     // that has had no outcome
	completed bool       // it says so itself
}

// take takes an order to cancel the task, and acknowledges it, before the task can end for it. If it cannot be followed, word and text are its outcome.
func (r *run) take(o *order, why *Cancelled) (word control.Word, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return control.Finished, ""
	case r.uncancellable || r.rerunning:
		return control.Failed, "the task is not cancellable"
	case r.tried:
		return control.Failed, "the task was to be cancelled before"
	}
	r.tried, r.why, r.order = true, why, o
	o.conn.Say(control.Acknowledge(o.id))
	return "", ""
}

// succeed ends the context of a task whose cancel action has done its part. The order's outcome comes when the task ends.
func (r *run) succeed(o *order) {
	r.mu.Lock()
	current := r.order == o
	why := r.why
	r.mu.Unlock()
	if current {
		r.stop(why)
	}
}

// fail lets a task whose cancel action has failed go on.
func (r *run) fail(o *order, text string) {
	r.mu.Lock()
	current := r.order == o
	if current {
		r.why, r.order = nil, nil
	}
	r.mu.Unlock()
	if current {
		o.outcome(control.Failed, text)
	}
}

// ending tells how the task, which ends now, is to be counted, and what order is to hear of it. The lock is held.
func (r *run) ending() (cancelled bool, o *order) {
	o, r.order = r.order, nil
	if r.completed {
		r.why = nil
	}
	return r.why != nil, o
}

// ended says what became of an order, now that the task has ended.
func (r *run) ended(o *order, cancelled bool) {
	if !cancelled {
		o.outcome(control.Finished, "")
		return
	}
	if r.again != nil {
		r.app.reruns.add(o, r) // before the agent hears of it, who may ask for it at once
	}
	o.outcome(control.Cancelled, "")
}
