// What tasks fight over.
package plimsoll

import (
	"sync/atomic"

	"plimsoll.dev/go/internal/ledger"
)

// Kind is what sort of thing a resource is.
type Kind uint32

const (
	// Lock: a unit is the lock, or a share of it.
	Lock = Kind(ledger.Lock)
	// Memory: a unit is a page, an entry or a byte; a wait is an eviction.
	Memory = Kind(ledger.Memory)
	// Queue: a unit is a worker, a permit or a connection.
	Queue = Kind(ledger.Queue)
	// CPU: a unit is a nanosecond that was used. The agent reads this by itself for tasks that name their thread.
	CPU = Kind(ledger.CPU)
	// IO: a unit is a byte. The agent reads this by itself for tasks that name their thread.
	IO = Kind(ledger.IO)
)

// Resource is something that tasks hold and wait for. Make it once and keep it.
type Resource struct {
	app      *App
	kind     Kind
	name     string
	capacity uint64
	index    atomic.Int32 // of its record, or -1
}

// resourceLimit is how many resources an application keeps: as many as the largest ledger does.
const resourceLimit = 256

// NewResource makes a resource of the default application: see [App.NewResource].
func NewResource(kind Kind, name string, capacity int) *Resource {
	return std.NewResource(kind, name, capacity)
}

// NewResource makes a resource, or finds the one that has this name already. capacity is how many units can be held at once: permits, pages,
// workers; 0 if nobody knows. Names are cut to 48 bytes. It may be called before the application is opened.
func (a *App) NewResource(kind Kind, name string, capacity int) *Resource {
	name = ledger.Name(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.resources {
		if r.name == name {
			return r
		}
	}
	r := &Resource{app: a, kind: kind, name: name, capacity: uint64(max(capacity, 0))}
	r.index.Store(-1)
	if len(a.resources) < resourceLimit {
		a.resources = append(a.resources, r)
	}
	if file := a.file.Load(); file != nil {
		r.bind(file.Ledger)
	}
	return r
}

// bind gives the resource its record in a ledger. With none free, its uses go unaccounted.
func (r *Resource) bind(l *ledger.Ledger) {
	if index, err := l.Resource(ledger.Kind(r.kind), r.capacity, r.name); err == nil {
		r.index.Store(int32(index))
	}
}

// Name is the name of the resource.
func (r *Resource) Name() string { return r.name }
