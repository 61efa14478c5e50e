// What the server does, and what it can be made to do.
package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	plimsoll "plimsoll.dev/go"
)

const (
	workers   = 8
	pages     = 256 // that the cache has room for
	hotPages  = 200 // that items are on
	readAhead = 32  // pages that a scan reads at once

	itemWork = 200 * time.Microsecond // under the lock
)

// bed is the server's state: what requests fight over.
type bed struct {
	workers pool
	table   lock
	cache   *cache
}

// pool is what workers are of.
type pool interface {
	Acquire(context.Context, int) error
	Release(context.Context, int)
}

// lock is what the table has.
type lock interface {
	Lock(context.Context)
	Unlock()
}

func newBed(miss time.Duration) *bed {
	return &bed{plimsoll.NewSemaphore("workers", workers), plimsoll.NewMutex("table"), newCache(plimsoll.NewResource(plimsoll.Memory, "pages", pages), miss)}
}

func (b *bed) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /item", b.item)
	mux.HandleFunc("GET /hog/lock", forSeconds(b.hogLock))
	mux.HandleFunc("GET /hog/cache", forSeconds(b.hogCache))
	mux.HandleFunc("GET /hog/pool", forSeconds(b.hogPool))
	mux.HandleFunc("GET /slow", forSeconds(last))
	return mux
}

// item is what clients want: a worker, the lock, a page.
func (b *bed) item(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.FormValue("id"), 10, 64)
	if err != nil {
		http.Error(w, fmt.Sprintf("id=%s: write a number, /item?id=7", r.FormValue("id")), http.StatusBadRequest)
		return
	}
	ctx := r.Context()
	if b.workers.Acquire(ctx, 1) != nil {
		return // the middleware answers
	}
	defer b.workers.Release(ctx, 1)
	b.underLock(ctx)
	pages := b.cache.use(ctx)
	b.cache.read(ctx, pages, []uint64{id % hotPages})
	pages.Free(1)
	if ctx.Err() == nil {
		fmt.Fprintln(w, "ok")
	}
}

func (b *bed) underLock(ctx context.Context) {
	b.table.Lock(ctx)
	defer b.table.Unlock()
	for began := time.Now(); time.Since(began) < itemWork; { // work, and a sleep would be too coarse
	}
}

// forSeconds makes a handler of what lasts for a while, and ends early when it is cancelled.
func forSeconds(do func(context.Context, time.Duration)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
		if err != nil || !(seconds >= 0 && seconds <= 3600) {
			http.Error(w, fmt.Sprintf("seconds=%s: write 0 to 3600, %s?seconds=10", r.FormValue("seconds"), r.URL.Path), http.StatusBadRequest)
			return
		}
		do(r.Context(), time.Duration(seconds*float64(time.Second)))
		if r.Context().Err() == nil {
			fmt.Fprintln(w, "ok")
		}
	}
}

// last lasts, and reports as progress how much of its time has passed.
func last(ctx context.Context, long time.Duration) {
	task := plimsoll.FromContext(ctx)
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for passed := time.Duration(0); passed < long; passed = time.Since(began) {
		task.Progress(passed.Milliseconds(), long.Milliseconds())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (b *bed) hogPool(ctx context.Context, long time.Duration) {
	if b.workers.Acquire(ctx, 1) != nil {
		return
	}
	defer b.workers.Release(ctx, 1)
	last(ctx, long)
}

func (b *bed) hogLock(ctx context.Context, long time.Duration) {
	if b.workers.Acquire(ctx, 1) != nil {
		return
	}
	defer b.workers.Release(ctx, 1)
	b.table.Lock(ctx)
	defer b.table.Unlock()
	last(ctx, long)
}

// hogCache scans: it reads ever new pages, and holds those that have not been evicted yet.
func (b *bed) hogCache(ctx context.Context, long time.Duration) {
	if b.workers.Acquire(ctx, 1) != nil {
		return
	}
	defer b.workers.Release(ctx, 1)
	task := plimsoll.FromContext(ctx)
	use := b.cache.use(ctx)
	held := 0
	began := time.Now()
	for next := uint64(hotPages); ctx.Err() == nil; next += readAhead {
		passed := time.Since(began)
		if passed >= long {
			break
		}
		task.Progress(passed.Milliseconds(), long.Milliseconds())
		ahead := make([]uint64, readAhead)
		for i := range ahead {
			ahead[i] = next + uint64(i)
		}
		b.cache.read(ctx, use, ahead)
		if held += readAhead; held > pages {
			use.Free(held - pages)
			held = pages
		}
	}
	use.Free(held)
}
