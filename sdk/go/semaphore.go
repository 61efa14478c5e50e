// A semaphore that accounts for who holds permits and who waits for them.
package plimsoll

import (
	"container/list"
	"context"
	"fmt"
	"sync"
)

// Semaphore is so many permits, given in the order in which they were asked for. Who waits stops waiting when its context ends: when its client has
// gone, or when the agent cancels it.
type Semaphore struct {
	resource *Resource
	size     int

	mu      sync.Mutex
	held    int
	waiting list.List // of *applicant
}

// applicant waits for n permits. granted is closed when it has them.
type applicant struct {
	n       int
	granted chan struct{}
}

// NewSemaphore makes a semaphore of the default application: see [App.NewSemaphore].
func NewSemaphore(name string, permits int) *Semaphore { return std.NewSemaphore(name, permits) }

// NewSemaphore makes a semaphore of so many permits.
func (a *App) NewSemaphore(name string, permits int) *Semaphore {
	return &Semaphore{resource: a.NewResource(Queue, name, permits), size: permits}
}

// Acquire takes n permits, and waits for them if it must. If the context ends first it takes none and returns the context's cause, which is a
// [*Cancelled] if the agent cancelled the task. To ask for more than there are is an error at once.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	if n < 0 || n > s.size {
		return fmt.Errorf("semaphore %q: %d permits were asked for, 0 to %d can be had", s.resource.name, n, s.size)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	use := FromContext(ctx).Use(s.resource)
	s.mu.Lock()
	if s.fits(n) {
		s.held += n
		s.mu.Unlock()
		use.Get(n)
		return nil
	}
	me := &applicant{n: n, granted: make(chan struct{})}
	place := s.waiting.PushBack(me)
	s.mu.Unlock()
	use.Wait()
	select {
	case <-me.granted:
		use.Get(n)
		return nil
	case <-ctx.Done():
		use.Unwait()
		s.leave(me, place)
		return context.Cause(ctx)
	}
}

// TryAcquire takes n permits if it can have them at once, and tells whether it did.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) bool {
	s.mu.Lock()
	ok := n >= 0 && s.fits(n)
	if ok {
		s.held += n
	}
	s.mu.Unlock()
	if ok {
		FromContext(ctx).Use(s.resource).Get(n)
	}
	return ok
}

// Release gives n permits back: those of the same task that took them, so the context must be the same or one derived from it. To give back
// more than is held is a bug, and panics.
func (s *Semaphore) Release(ctx context.Context, n int) {
	FromContext(ctx).Use(s.resource).Free(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 0 || n > s.held {
		panic(fmt.Sprintf("semaphore %q: %d permits were given back, %d are held", s.resource.name, n, s.held))
	}
	s.held -= n
	s.grant()
}

// fits tells whether n permits can be had now, by somebody who came last. The lock is held.
func (s *Semaphore) fits(n int) bool { return s.waiting.Len() == 0 && s.held+n <= s.size }

// grant lets those in who wait first, as far as the permits go. The lock is held.
func (s *Semaphore) grant() {
	for first := s.waiting.Front(); first != nil; first = s.waiting.Front() {
		who := first.Value.(*applicant)
		if s.held+who.n > s.size {
			return
		}
		s.held += who.n
		s.waiting.Remove(first)
		close(who.granted)
	}
}

// leave takes an applicant out who does not wait any longer.
func (s *Semaphore) leave(who *applicant, place *list.Element) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-who.granted: // at the same moment: others want it
		s.held -= who.n
	default:
		s.waiting.Remove(place)
	}
	s.grant()
}
