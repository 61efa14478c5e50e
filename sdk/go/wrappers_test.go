package plimsoll

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// alone is an application without an agent.
func alone(t *testing.T, options ...Option) *App {
	t.Helper()
	app := New("test", append([]Option{impatient, Dir(directory(t))}, options...)...)
	t.Cleanup(app.Close)
	if err := app.Err(); err != nil {
		t.Fatal(err)
	}
	return app
}

// waits comes when so many accounts of a resource wait.
func waits(t *testing.T, app *App, r *Resource, accounts uint64) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, _, _, _, _, waiting, _ := read(t, app).sums(r); waiting == accounts {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d accounts of %s never waited", accounts, r.name)
		}
	}
}

func TestMutex(t *testing.T) {
	app := alone(t)
	m := app.NewMutex("table")
	ctx, task := app.Start(context.Background(), "a")
	defer task.End()
	m.Lock(ctx)
	read(t, app).expect(m.resource, 1, 0, 0, 0, 1)
	if m.TryLock(ctx) {
		t.Error("locked twice")
	}
	ctxB, taskB := app.Start(context.Background(), "b")
	locked := make(chan struct{})
	go func() { m.Lock(ctxB); close(locked) }()
	waits(t, app, m.resource, 1)
	m.Unlock()
	within(t, "the lock", locked)
	read(t, app).expect(m.resource, 2, 1, 1, 0, 1)
	m.Unlock()
	if !m.TryLock(context.Background()) { // by nobody
		t.Error("not free")
	}
	m.Unlock()
	taskB.End()
	read(t, app).expect(m.resource, 2, 2, 1, 0, 0)
}

func TestRWMutex(t *testing.T) {
	app := alone(t)
	m := app.NewRWMutex("table")
	ctx, task := app.Start(context.Background(), "a")
	defer task.End()
	ctxB, taskB := app.Start(context.Background(), "b")
	defer taskB.End()
	m.RLock(ctx)
	if !m.TryRLock(ctxB) || m.TryLock(ctx) {
		t.Fatal("readers share, a writer does not")
	}
	read(t, app).expect(m.resource, 2, 0, 0, 0, 2)
	m.RUnlock(ctx)
	locked := make(chan struct{})
	go func() { m.Lock(ctx); close(locked) }()
	waits(t, app, m.resource, 1)
	m.RUnlock(ctxB)
	within(t, "the lock", locked)
	if m.TryRLock(ctxB) {
		t.Error("read while somebody writes")
	}
	shared := make(chan struct{})
	go func() { m.RLock(ctxB); close(shared) }()
	waits(t, app, m.resource, 1)
	m.Unlock()
	within(t, "the share", shared)
	m.RUnlock(ctxB)
	if !m.TryLock(context.Background()) {
		t.Error("not free")
	}
	m.Unlock()
	read(t, app).expect(m.resource, 4, 4, 2, 0, 0)
}

func TestSemaphoreInOrder(t *testing.T) {
	app := alone(t)
	s := app.NewSemaphore("workers", 3)
	ctx, task := app.Start(context.Background(), "a")
	defer task.End()
	if err := s.Acquire(ctx, 2); err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 3)
	apply := func(name string, n int, already uint64) context.Context {
		ctx, task := app.Start(context.Background(), name)
		t.Cleanup(task.End)
		go func() {
			if err := s.Acquire(ctx, n); err != nil {
				t.Error(err)
			}
			order <- name
		}()
		waits(t, app, s.resource, already+1)
		return ctx
	}
	three := apply("three", 3, 0)
	one := apply("one", 1, 1) // there is room for it, but it came later
	if s.TryAcquire(ctx, 1) {
		t.Error("who tries does not jump the queue")
	}
	s.Release(ctx, 2)
	if first := within(t, "the first", order); first != "three" {
		t.Errorf("%s was first", first)
	}
	s.Release(three, 3)
	within(t, "the second", order)
	if !s.TryAcquire(ctx, 2) {
		t.Error("there is room")
	}
	s.Release(ctx, 2)
	s.Release(one, 1)
	read(t, app).expect(s.resource, 8, 8, 2, 0, 0)
}

func TestSemaphoreLeft(t *testing.T) {
	app := alone(t)
	s := app.NewSemaphore("workers", 2)
	ctx, task := app.Start(context.Background(), "a")
	defer task.End()
	s.Acquire(ctx, 1)
	waiting, leave := context.WithCancelCause(context.Background())
	big, bigTask := app.Start(waiting, "big")
	defer bigTask.End()
	left := make(chan error, 1)
	go func() { left <- s.Acquire(big, 2) }()
	waits(t, app, s.resource, 1)
	small, smallTask := app.Start(context.Background(), "small")
	defer smallTask.End()
	got := make(chan error, 1)
	go func() { got <- s.Acquire(small, 1) }()
	waits(t, app, s.resource, 2)
	why := errors.New("the client has gone")
	leave(why)
	if err := within(t, "who left", left); err != why {
		t.Errorf("left with %v", err)
	}
	if err := within(t, "who waited behind", got); err != nil {
		t.Error(err)
	}
	if err := s.Acquire(big, 1); err != why {
		t.Errorf("came in with %v", err)
	}
	read(t, app).expect(s.resource, 2, 0, 2, 0, 2)
}

func TestSemaphoreMisused(t *testing.T) {
	app := alone(t)
	s := app.NewSemaphore("workers", 2)
	for _, n := range []int{-1, 3} {
		if err := s.Acquire(context.Background(), n); err == nil || !strings.Contains(err.Error(), "0 to 2 can be had") {
			t.Errorf("%d: %v", n, err)
		}
	}
	if s.TryAcquire(context.Background(), 3) || s.TryAcquire(context.Background(), -1) {
		t.Error("got what there is not")
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(p.(string), "1 permits were given back, 0 are held") {
			t.Errorf("%v", p)
		}
	}()
	s.Release(context.Background(), 1)
}

// Who is cancelled while waiting leaves with the reason.
func TestCancelledWhileWaiting(t *testing.T) {
	app, table, agent := pair(t)
	s := app.NewSemaphore("workers", 1)
	s.Acquire(context.Background(), 1)
	ctx, task := app.Start(context.Background(), "a")
	result := make(chan error, 1)
	go func() { defer task.End(); result <- s.Acquire(ctx, 1) }()
	waits(t, app, s.resource, 1)
	agent.cancel(1, task, table, "x")
	agent.hear("acknowledge 1")
	var why *Cancelled
	if err := within(t, "the end of the wait", result); !errors.As(err, &why) {
		t.Error(err)
	}
	agent.hear("outcome 1 cancelled")
	if completed, cancelled, inBins := read(t, app).lanes(); completed != 1 || cancelled != 1 || inBins != 0 {
		t.Errorf("completed %d, cancelled %d, in bins %d", completed, cancelled, inBins)
	}
}

func TestPool(t *testing.T) {
	app := alone(t)
	made := 0
	var fail error
	p := NewPoolOf(app, "connections", 2, func(context.Context) (int, error) {
		if fail != nil {
			return 0, fail
		}
		made++
		return made, nil
	})
	ctx, task := app.Start(context.Background(), "a")
	defer task.End()
	first, _ := p.Get(ctx)
	second, _ := p.Get(ctx)
	over, stop := context.WithCancel(context.Background())
	stop()
	if _, err := p.Get(over); err != context.Canceled {
		t.Error(err)
	}
	p.Put(ctx, first)
	p.Put(ctx, second)
	if again, _ := p.Get(ctx); again != second {
		t.Errorf("got %d, and %d was used last", again, second)
	}
	p.Discard(ctx)
	if idle := p.Drain(); len(idle) != 1 || idle[0] != first || len(p.Drain()) != 0 {
		t.Errorf("idle: %v", idle)
	}
	fail = errors.New("no connection")
	for range 3 { // and no permit is lost
		if _, err := p.Get(ctx); err != fail {
			t.Error(err)
		}
	}
	fail = nil
	if third, err := p.Get(ctx); third != 3 || err != nil {
		t.Errorf("%d, %v", third, err)
	}
	read(t, app).expect(p.permits.resource, 7, 6, 0, 0, 1)
}

// Many tasks at once: in the end all that was taken was given back, and every request was counted.
func TestManyTasks(t *testing.T) {
	const goroutines, rounds = 16, 300
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	app := alone(t)
	mutex, rw, semaphore := app.NewMutex("mutex"), app.NewRWMutex("rw"), app.NewSemaphore("semaphore", 4)
	things := NewPoolOf(app, "things", 3, func(context.Context) (*int, error) { return new(int), nil })
	many := make([]*Resource, 6) // more than fit into a task
	for i := range many {
		many[i] = app.NewResource(Memory, "pages "+string(rune('a'+i)), 0)
	}
	var all sync.WaitGroup
	for g := range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			random := rand.New(rand.NewPCG(seed, uint64(g)))
			for range rounds {
				ctx, task := app.Start(context.Background(), "x")
				mutex.Lock(ctx)
				mutex.Unlock()
				if random.IntN(4) == 0 {
					rw.Lock(ctx)
					rw.Unlock()
				} else {
					rw.RLock(ctx)
					rw.RUnlock(ctx)
				}
				n := 1 + random.IntN(4)
				if err := semaphore.Acquire(ctx, n); err != nil {
					t.Error(err)
				}
				var both sync.WaitGroup
				for range 2 {
					both.Add(1)
					go func() {
						defer both.Done()
						ctx, fork := Fork(ctx)
						defer fork.End()
						thing, err := things.Get(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						*thing++
						things.Put(ctx, thing)
						fork.Use(many[0]).Get(1) // and its end gives it back
						fork.Progress(1, 2)
					}()
				}
				both.Wait()
				semaphore.Release(ctx, n)
				for _, pages := range many {
					task.Use(pages).Get(3)
				}
				task.End()
			}
		}()
	}
	all.Wait()
	w := read(t, app)
	const tasks = goroutines * rounds
	if completed, cancelled, inBins := w.lanes(); completed != tasks || inBins != tasks || cancelled != 0 {
		t.Errorf("completed %d, in bins %d, cancelled %d of %d", completed, inBins, cancelled, tasks)
	}
	for _, r := range append(many, mutex.resource, rw.resource, semaphore.resource, things.permits.resource) {
		gets, frees, _, _, _, waiting, holding := w.sums(r)
		if gets != frees || gets < tasks || waiting != 0 || holding != 0 {
			t.Errorf("%s: gets %d, frees %d, waiting %d, holding %d", r.name, gets, frees, waiting, holding)
		}
	}
	w.expect(many[0], 5*tasks, 5*tasks, 0, 0, 0)
	w.expect(many[5], 3*tasks, 3*tasks, 0, 0, 0)
	if idle := things.Drain(); len(idle) > 3 {
		t.Errorf("%d things", len(idle))
	} else {
		sum := 0
		for _, thing := range idle {
			sum += *thing
		}
		if sum != 2*tasks {
			t.Errorf("lent %d times, want %d", sum, 2*tasks)
		}
	}
}
