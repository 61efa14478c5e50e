// Locks that account for who holds and who waits for them.
package plimsoll

import (
	"context"
	"sync"
)

// Mutex is a [sync.Mutex] that tells who holds it and who waits. The task comes from the context; a context without one locks all the same.
// One that a waiter can leave when it is cancelled is a [Semaphore] of one.
type Mutex struct {
	resource *Resource
	mu       sync.Mutex
	holder   *Use // guarded by the mutex itself
}

// NewMutex makes a mutex of the default application: see [App.NewMutex].
func NewMutex(name string) *Mutex { return std.NewMutex(name) }

// NewMutex makes a mutex. Several may have the same name, the locks of a table's rows, say, and are then one resource.
func (a *App) NewMutex(name string) *Mutex { return &Mutex{resource: a.NewResource(Lock, name, 1)} }

// Lock locks, and waits if it must.
func (m *Mutex) Lock(ctx context.Context) {
	use := FromContext(ctx).Use(m.resource)
	if !m.mu.TryLock() {
		use.Wait()
		m.mu.Lock()
	}
	use.Get(1)
	m.holder = use
}

// TryLock locks if that is possible at once, and tells whether it did.
func (m *Mutex) TryLock(ctx context.Context) bool {
	if !m.mu.TryLock() {
		return false
	}
	m.holder = FromContext(ctx).Use(m.resource)
	m.holder.Get(1)
	return true
}

// Unlock unlocks. Like that of a [sync.Mutex] it must be locked.
func (m *Mutex) Unlock() {
	use := m.holder
	m.holder = nil
	use.Free(1)
	m.mu.Unlock()
}

// RWMutex is a [sync.RWMutex] that tells who holds it or shares of it, and who waits.
type RWMutex struct {
	resource *Resource
	mu       sync.RWMutex
	holder   *Use // who writes; guarded by the mutex itself
}

// NewRWMutex makes a lock of the default application: see [App.NewRWMutex].
func NewRWMutex(name string) *RWMutex { return std.NewRWMutex(name) }

// NewRWMutex makes a lock. Several may have the same name, and are then one resource.
func (a *App) NewRWMutex(name string) *RWMutex {
	return &RWMutex{resource: a.NewResource(Lock, name, 0)}
}

// Lock locks for writing, and waits if it must.
func (m *RWMutex) Lock(ctx context.Context) {
	use := FromContext(ctx).Use(m.resource)
	if !m.mu.TryLock() {
		use.Wait()
		m.mu.Lock()
	}
	use.Get(1)
	m.holder = use
}

// TryLock locks for writing if that is possible at once, and tells whether it did.
func (m *RWMutex) TryLock(ctx context.Context) bool {
	if !m.mu.TryLock() {
		return false
	}
	m.holder = FromContext(ctx).Use(m.resource)
	m.holder.Get(1)
	return true
}

// Unlock unlocks what was locked for writing.
func (m *RWMutex) Unlock() {
	use := m.holder
	m.holder = nil
	use.Free(1)
	m.mu.Unlock()
}

// RLock takes a share, for reading, and waits if it must.
func (m *RWMutex) RLock(ctx context.Context) {
	use := FromContext(ctx).Use(m.resource)
	if !m.mu.TryRLock() {
		use.Wait()
		m.mu.RLock()
	}
	use.Get(1)
}

// TryRLock takes a share if that is possible at once, and tells whether it did.
func (m *RWMutex) TryRLock(ctx context.Context) bool {
	if !m.mu.TryRLock() {
		return false
	}
	FromContext(ctx).Use(m.resource).Get(1)
	return true
}

// RUnlock gives a share back: that of the same task that took it, so the context must be the same or one derived from it.
func (m *RWMutex) RUnlock(ctx context.Context) {
	FromContext(ctx).Use(m.resource).Free(1)
	m.mu.RUnlock()
}
