// The server without accounts, as one would write it without Plimsoll: what accounts cost is measured against that.
package main

import (
	"context"
	"sync"
	"time"
)

func newPlainBed(miss time.Duration) *bed {
	return &bed{make(plainPool, workers), &plainLock{}, newCache(nil, miss)}
}

// plainPool is as many permits as the channel has room for.
type plainPool chan struct{}

// Acquire takes one permit, whatever n is: nobody here asks for more.
func (p plainPool) Acquire(ctx context.Context, n int) error {
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p plainPool) Release(context.Context, int) { <-p }

type plainLock struct{ sync.Mutex }

func (l *plainLock) Lock(context.Context) { l.Mutex.Lock() }
