// A cache of pages, of which the one that was not read for longest gives way.
package main

import (
	"container/list"
	"context"
	"sync"
	"time"

	plimsoll "plimsoll.dev/go"
)

type cache struct {
	resource *plimsoll.Resource // nil: nobody keeps account
	miss     time.Duration      // what it takes to fetch what is not there

	mu     sync.Mutex // of the moment; nobody holds it while a page is fetched
	recent list.List  // of page numbers, the last that was read in front
	places map[uint64]*list.Element
}

func newCache(resource *plimsoll.Resource, miss time.Duration) *cache {
	return &cache{resource: resource, miss: miss, places: map[uint64]*list.Element{}}
}

// use is what the task of a context does with pages.
func (c *cache) use(ctx context.Context) *plimsoll.Use {
	if c.resource == nil {
		return nil // on which all methods do nothing
	}
	return plimsoll.FromContext(ctx).Use(c.resource)
}

// read reads pages, which the task then holds. Those that are not there are fetched, all at once; where others had to be evicted for them,
// the fetch was the price.
func (c *cache) read(ctx context.Context, use *plimsoll.Use, numbers []uint64) {
	missing := 0
	c.mu.Lock()
	for _, number := range numbers {
		if place := c.places[number]; place != nil {
			c.recent.MoveToFront(place)
		} else {
			missing++
		}
	}
	c.mu.Unlock()
	if missing > 0 {
		began := time.Now()
		select {
		case <-ctx.Done():
		case <-time.After(c.miss):
		}
		if evicted := c.put(numbers); evicted > 0 {
			use.Slow(evicted, time.Since(began))
		}
	}
	use.Get(len(numbers))
}

// put puts pages in, and tells how many had to give way.
func (c *cache) put(numbers []uint64) (evicted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, number := range numbers {
		if c.places[number] != nil {
			continue // somebody else fetched it, too
		}
		c.places[number] = c.recent.PushFront(number)
		if c.recent.Len() > pages {
			last := c.recent.Back()
			c.recent.Remove(last)
			delete(c.places, last.Value.(uint64))
			evicted++
		}
	}
	return evicted
}
