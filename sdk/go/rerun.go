// What was cancelled and waits to be run again.
package plimsoll

import (
	"context"
	"fmt"
	"sync"
	"time"

	"plimsoll.dev/go/internal/control"
)

const (
	// rerunLimit is how many tasks may wait to be run again, or be at it.
	rerunLimit = 1024
	// rerunsAtOnce is how many are run again at once: when an agent dies, all that waited for it are due.
	rerunsAtOnce = 8
)

// reruns are the cancelled tasks of an application that wait to be run again.
type reruns struct {
	app   *App
	slots chan struct{}

	mu      sync.Mutex
	closed  bool
	kept    int // that wait, or are at it
	waiting map[order]*waiter
}

// waiter is one of them.
type waiter struct {
	order
	run   *run
	timer *time.Timer
}

func (s *reruns) init(a *App) {
	s.app, s.slots, s.waiting = a, make(chan struct{}, rerunsAtOnce), map[order]*waiter{}
}

// add keeps a task that was cancelled until the agent decides, until it has said nothing for long, or until it is gone.
func (s *reruns) add(o *order, r *run) {
	w := &waiter{order: *o, run: r}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.kept >= rerunLimit {
		go s.tellDropped(w)
		return
	}
	s.kept++
	s.waiting[w.order] = w
	w.timer = time.AfterFunc(s.app.times.rerun, func() { s.run(w.conn, w.id) })
	select {
	case <-w.conn.Done():
		s.take(w)
		go s.again(w)
	default:
	}
}

// take takes a task out of those that wait. The lock is held.
func (s *reruns) take(w *waiter) {
	delete(s.waiting, w.order)
	w.timer.Stop()
}

// takeBy takes the one that was cancelled under an ID, or nil.
func (s *reruns) takeBy(conn *control.Conn, id uint64) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[order{conn, id}]
	if w != nil {
		s.take(w)
	}
	return w
}

// run runs one again.
func (s *reruns) run(conn *control.Conn, id uint64) {
	if w := s.takeBy(conn, id); w != nil {
		go s.again(w)
	}
}

// drop gives one up.
func (s *reruns) drop(conn *control.Conn, id uint64) {
	if w := s.takeBy(conn, id); w != nil {
		go s.giveUp(w)
	}
}

// connectionEnded runs all again that waited for the agent at the other end.
func (s *reruns) connectionEnded(conn *control.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		if w.conn == conn {
			s.take(w)
			go s.again(w)
		}
	}
}

// close gives all up, those that wait and those to come.
func (s *reruns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, w := range s.waiting {
		s.take(w)
		go s.giveUp(w)
	}
}

// again runs a task again, unless its deadline has passed.
func (s *reruns) again(w *waiter) {
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	if r := w.run; r.deadlineNS != 0 && r.ledger.Exact() >= r.deadlineNS {
		s.giveUp(w)
		return
	}
	s.rerun(w.run)
	s.forget()
	w.conn.Say(control.Reran(w.id))
}

// rerun runs a task again as what is never cancelled.
func (s *reruns) rerun(r *run) {
	ctx := context.WithoutCancel(r.parent)
	if at, ok := r.parent.Deadline(); ok {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, at)
		defer stop()
	}
	ctx, task := s.app.Start(ctx, r.label, func(c *choices) {
		c.key, c.deadline, c.background, c.rerunning = r.key, r.deadline, r.background, true
	})
	defer s.survive("a task that was run again")
	defer task.End()
	r.again(ctx)
}

// giveUp tells the application and the agent that a task is not run again.
func (s *reruns) giveUp(w *waiter) {
	s.tellDropped(w)
	s.forget()
	w.conn.Say(control.Dropped(w.id))
}

func (s *reruns) tellDropped(w *waiter) {
	defer s.survive("what hears of a dropped task")
	if w.run.dropped != nil {
		w.run.dropped()
	}
}

func (s *reruns) forget() {
	s.mu.Lock()
	s.kept--
	s.mu.Unlock()
}

// survive keeps a panic of the application's functions from ending it, since they run in a goroutine that it never started.
func (s *reruns) survive(what string) {
	if p := recover(); p != nil {
		s.app.say("panic", what+" panicked", "panic", fmt.Sprint(p))
	}
}
