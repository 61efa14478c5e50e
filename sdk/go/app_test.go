package plimsoll

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// tryAll does everything that an application may, which must go well whether it is accounted for or not.
func tryAll(t *testing.T, app *App) {
	t.Helper()
	mutex, semaphore := app.NewMutex("mutex"), app.NewSemaphore("semaphore", 1)
	ctx, task := app.Start(context.Background(), "x", Key(1), Background())
	mutex.Lock(ctx)
	mutex.Unlock()
	if err := semaphore.Acquire(ctx, 1); err != nil {
		t.Error(err)
	}
	semaphore.Release(ctx, 1)
	use := task.Use(mutex.resource)
	use.Wait()
	use.Unwait()
	use.Get(1)
	use.Slow(1, time.Second)
	use.Free(1)
	task.Progress(1, 2)
	fctx, fork := task.Fork(ctx)
	fork.Use(mutex.resource).Get(1)
	fork.End()
	if task.Cancelled() != nil || fctx.Err() != nil || ctx.Err() != nil {
		t.Error("it was cancelled")
	}
	task.Completed()
	task.End()
	task.End()
}

func TestWithoutALedger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o600)
	for _, c := range []struct {
		name, why string
		option    Option
	}{
		{"test", "is no directory", Dir(file)},
		{"test", "no such file", Dir(filepath.Join(t.TempDir(), "none"))},
		{"te/st", `application name "te/st": write 1 to 32`, Dir(directory(t))},
		{"test", "a ledger of 0 lanes: it can have 1 to 64", Size(1, 0, 1, 1)},
	} {
		var log logged
		app := New(c.name, c.option, log.option())
		for range 3 {
			tryAll(t, app)
		}
		if ctx, task := app.Start(context.Background(), "x"); task != nil || ctx != context.Background() || FromContext(ctx) != nil {
			t.Error("there is a task")
		}
		if err := app.Err(); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v, want %q", err, c.why)
		}
		if log.count("no ledger") != 1 || log.count("\n") != 1 {
			t.Errorf("logged %q", log.lines.String())
		}
		app.Close()
	}
}

func TestFullLedger(t *testing.T) {
	app := alone(t, Size(1, 1, 1, 1))
	first, second := app.NewResource(Lock, "first", 1), app.NewResource(Lock, "second", 1)
	_, task := app.Start(context.Background(), "a")
	for range 3 {
		task.Use(first).Get(1)
		task.Use(second).Get(1)
	}
	_, fork := task.Fork(context.Background())
	for range 3 {
		fork.Use(first).Get(1) // no account, which is asked for once
	}
	ctx, more := app.Start(context.Background(), "b")
	if more == nil || FromContext(ctx) != more {
		t.Error("it has no record, and yet its latency counts")
	}
	tryAll(t, app)
	more.Use(first).Get(1)
	more.End()
	more.End()
	task.End()
	w := read(t, app)
	w.expect(first, 3, 3, 0, 0, 0)
	if tasks, accounts, resources := w.u64(0x88), w.u64(0x90), w.u64(0x98); tasks != 2 || accounts != 1 || resources != 3 {
		t.Errorf("refused: %d tasks, %d accounts, %d resources", tasks, accounts, resources)
	}
	if completed, _, inBins := w.lanes(); completed != 2 || inBins != 2 {
		t.Errorf("completed %d, in bins %d", completed, inBins)
	}
}

func TestManyResources(t *testing.T) {
	app := alone(t)
	var made []*Resource
	for i := range 300 {
		made = append(made, app.NewResource(Lock, strings.Repeat("x", i%40+1)+string(rune('A'+i/40)), 1))
	}
	_, task := app.Start(context.Background(), "x")
	defer task.End()
	for range 2 {
		for _, r := range made {
			task.Use(r).Get(1)
		}
	}
	got := uint64(0)
	for _, r := range made {
		if r.index.Load() >= 0 {
			gets, _, _, _, _, _, _ := read(t, app).sums(r)
			got += gets
		}
	}
	if got != 2*64 {
		t.Errorf("%d gets of 64 resources", got)
	}
	if len(app.resources) > resourceLimit || len(*task.more.Load()) > resourceLimit {
		t.Errorf("%d resources, %d uses", len(app.resources), len(*task.more.Load()))
	}
}

func TestResourcesAreTheSameByName(t *testing.T) {
	app, other := newApp(), newApp()
	long := strings.Repeat("x", 60)
	early := app.NewResource(Lock, long, 1) // before there is a ledger
	at := directory(t)
	app.open("one", []Option{Dir(at)})
	defer app.Close()
	if app.NewResource(Queue, long+"y", 2) != early || early.Name() != long[:48] || early.index.Load() != 0 {
		t.Error("another one")
	}
	other.open("two", []Option{Dir(at)})
	defer other.Close()
	_, task := app.Start(context.Background(), "x")
	defer task.End()
	if task.Use(other.NewResource(Lock, "theirs", 1)) != nil || task.Use(nil) != nil {
		t.Error("of another application, or of none")
	}
	if task.Use(early) != task.Use(early) {
		t.Error("another use")
	}
}

func TestForks(t *testing.T) {
	app := alone(t)
	table := app.NewResource(Lock, "table", 1)
	ctx, task := app.Start(context.Background(), "x")
	fctx, fork := Fork(ctx)
	if FromContext(fctx) != fork || fork == task {
		t.Error("the fork is not in its context")
	}
	_, second := fork.Fork(fctx)
	task.Use(table).Get(1)
	fork.Use(table).Get(1)
	second.Use(table).Get(1)
	read(t, app).expect(table, 3, 0, 0, 0, 3)
	fork.End()
	fork.End()
	fork.Use(table).Get(1)
	read(t, app).expect(table, 3, 1, 0, 0, 2)
	if ctx.Err() != nil {
		t.Error("a fork ended the task")
	}
	task.End() // and with it the other fork
	second.Use(table).Get(1)
	second.End()
	read(t, app).expect(table, 3, 3, 0, 0, 0)
	if _, late := task.Fork(ctx); late != nil {
		t.Error("a fork of what is over")
	}
}

// Goroutines that share a task without forks may lose counts. They break nothing, and the race detector finds nothing.
func TestSharedWithoutForks(t *testing.T) {
	app := alone(t)
	mutex := app.NewRWMutex("rw")
	for range 50 {
		ctx, task := app.Start(context.Background(), "x")
		var all sync.WaitGroup
		for range 4 {
			all.Add(1)
			go func() {
				defer all.Done()
				for range 50 {
					mutex.RLock(ctx)
					task.Progress(1, 2)
					mutex.RUnlock(ctx)
				}
			}()
		}
		go task.End()
		all.Wait()
		task.End()
	}
	_, task := app.Start(context.Background(), "y")
	task.Use(mutex.resource).Get(1)
	task.End()
	if _, _, _, _, _, waiting, holding := read(t, app).sums(mutex.resource); waiting != 0 || holding != 0 {
		t.Errorf("waiting %d, holding %d", waiting, holding)
	}
}

func TestTaskRecord(t *testing.T) {
	app := alone(t)
	before := app.clock()
	limited, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	_, a := app.Start(limited, "a", Key(7), OnThread())
	defer a.End()
	_, b := app.Start(context.Background(), "b", Background(), Uncancellable(), Deadline(time.Now().Add(2*time.Hour)), Rerun(func(context.Context) {}, nil))
	defer b.End()
	a.Progress(-1, 10)
	b.Progress(3, -1)
	w := read(t, app)
	task := func(i int) func(int) uint64 { return func(at int) uint64 { return w.u64(w.tasksAt() + 128*i + at) } }
	one, two := task(0), task(1)
	if one(8) != 7 || one(24) != 0 || one(32) != 10 || one(48)&0xffffffff != 1 || one(48)>>32 == 0 {
		t.Errorf("key %d, done %d, total %d, flags and thread %#x", one(8), one(24), one(32), one(48))
	}
	if two(24) != 3 || two(32) != 0 || two(48) != 6 {
		t.Errorf("done %d, total %d, flags and thread %#x", two(24), two(32), two(48))
	}
	const hour = uint64(time.Hour)
	for i, at := range []uint64{one(40) - hour, two(40) - 2*hour} {
		if at < before-1e9 || at > app.clock()+1e9 {
			t.Errorf("deadline %d: %d ns, and it is %d ns", i, at, app.clock())
		}
	}
	if started := one(16); started < before || started > app.clock() {
		t.Errorf("started at %d ns", started)
	}
}

func TestSignsOfLife(t *testing.T) {
	app := alone(t)
	for _, at := range []int{0x80, 0x100} { // the heartbeat, and the clock, which nobody else ticks
		first := read(t, app).u64(at)
		for until := time.Now().Add(patience); read(t, app).u64(at) <= first; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%#x stands still", at)
			}
		}
	}
}

// A program that never opens the default application has one all the same, by its own name, and one that opens it twice is told.
func TestDefaultApplication(t *testing.T) {
	const variable = "PLIMSOLL_TEST_DEFAULT"
	if os.Getenv(variable) != "" {
		var log logged
		mutex := NewMutex("early")
		ctx, task := Start(context.Background(), "x")
		mutex.Lock(ctx)
		if _, err := os.Stat(std.file.Load().Path); err != nil || mutex.resource.index.Load() != 0 {
			t.Error(err, mutex.resource.index.Load())
		}
		os.Stdout.WriteString("ledger " + filepath.Base(std.file.Load().Path) + "\n")
		mutex.Unlock()
		task.End()
		log.option()(&std.settings)
		if Open("again") != std || Open("again") != Default() || log.count("open already") != 1 {
			t.Errorf("logged %q", log.lines.String())
		}
		std.Close()
		return
	}
	at := filepath.Join(directory(t), "made")
	run := exec.Command(os.Args[0], "-test.run=^TestDefaultApplication$")
	run.Env = append(os.Environ(), variable+"=1", "PLIMSOLL_DIR="+at)
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ledger go-test.") {
		t.Errorf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(at); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
