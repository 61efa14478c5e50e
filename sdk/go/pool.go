// A pool that accounts for who holds its things and who waits for one.
package plimsoll

import (
	"context"
	"sync"
)

// Pool is up to so many things that take long to make, connections for example, and are lent to one task at a time. They are made when there is
// no idle one; the one that was used last is lent first. Who waits does so in order, and stops when its context ends.
type Pool[T any] struct {
	permits *Semaphore
	make    func(context.Context) (T, error)

	mu   sync.Mutex
	idle []T
}

// NewPool makes a pool of the default application: see [NewPoolOf].
func NewPool[T any](name string, capacity int, make func(context.Context) (T, error)) *Pool[T] {
	return NewPoolOf(std, name, capacity, make)
}

// NewPoolOf makes a pool of up to capacity things, which make makes.
func NewPoolOf[T any](a *App, name string, capacity int, make func(context.Context) (T, error)) *Pool[T] {
	return &Pool[T]{permits: a.NewSemaphore(name, capacity), make: make}
}

// Get lends a thing, and waits for one if it must. What it returns as an error is the cause of the context that ended first, or that
// of what makes things. What was lent must come back, by Put or by Discard.
func (p *Pool[T]) Get(ctx context.Context) (T, error) {
	var none T
	if err := p.permits.Acquire(ctx, 1); err != nil {
		return none, err
	}
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		thing := p.idle[last]
		p.idle[last] = none
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return thing, nil
	}
	p.mu.Unlock()
	made := false
	defer func() {
		if !made { // it failed, or panicked
			p.permits.Release(ctx, 1)
		}
	}()
	thing, err := p.make(ctx)
	if err != nil {
		return none, err
	}
	made = true
	return thing, nil
}

// Put gives a thing back, for others to use. The context must be that of the Get, or one derived from it.
func (p *Pool[T]) Put(ctx context.Context, thing T) {
	p.mu.Lock()
	p.idle = append(p.idle, thing)
	p.mu.Unlock()
	p.permits.Release(ctx, 1)
}

// Discard says that a thing that was lent is broken, so that another one can be made in its place.
func (p *Pool[T]) Discard(ctx context.Context) { p.permits.Release(ctx, 1) }

// Drain takes all idle things out, to be closed. Those that are lent come back later.
func (p *Pool[T]) Drain() []T {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle
	p.idle = nil
	return idle
}
