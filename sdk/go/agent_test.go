package plimsoll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// impatient makes what an application waits for come soon.
func impatient(s *settings) {
	s.times = times{beat: time.Millisecond, refused: time.Millisecond, action: time.Hour, rerun: time.Hour}
}

// logged is what an application logs.
type logged struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logged) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.lines.String(), what)
}

func (l *logged) option() Option { return Logger(slog.New(slog.NewTextHandler(l, nil))) }

// pair is an application with a resource, and the agent that it is connected with.
func pair(t *testing.T, options ...Option) (*App, *Resource, *fakeAgent) {
	t.Helper()
	at := directory(t)
	agent := listen(t, at)
	app := New("test", append([]Option{impatient, Dir(at)}, options...)...)
	t.Cleanup(app.Close)
	if err := app.Err(); err != nil {
		t.Fatal(err)
	}
	table := app.NewResource(Lock, "table", 1)
	if got, want := agent.welcome(), filepath.Base(app.file.Load().Path); got != want {
		t.Fatalf("hello from %q, want %q", got, want)
	}
	return app, table, agent
}

func TestCancelEndsTheContext(t *testing.T) {
	app, table, agent := pair(t)
	ctx, task := app.Start(context.Background(), "GET /report", Key(7))
	defer task.End()
	child, stop := context.WithCancel(ctx)
	defer stop()
	agent.cancel(1, task, table, "GET /report holds table for 1.2 s")
	agent.hear("acknowledge 1")
	within(t, "the context's end", child.Done())
	var why *Cancelled
	err := context.Cause(child)
	if !errors.As(err, &why) || !errors.Is(err, context.Canceled) {
		t.Fatalf("cause %v", err)
	}
	want := Cancelled{Task: "GET /report", Key: 7, Resource: "table", Reason: "GET /report holds table for 1.2 s"}
	if *why != want || task.Cancelled() != why || err.Error() != "cancelled: GET /report holds table for 1.2 s" {
		t.Errorf("%+v, want %+v; %v", *why, want, err)
	}
	task.End()
	agent.hear("outcome 1 cancelled")
}

func TestOrdersThatCannotBeFollowed(t *testing.T) {
	app, table, agent := pair(t)
	_, ended := app.Start(context.Background(), "ended")
	ended.End()
	agent.cancel(1, ended, table, "too late")
	agent.hear("outcome 1 finished")

	_, next := app.Start(context.Background(), "in its record")
	agent.cancel(2, ended, table, "far too late")
	agent.hear("outcome 2 finished")
	next.End()

	for id, order := range map[int]string{3: "0 99 0 x", 4: "4000 1 0 x", 5: "131071 1 0 x", 6: "0 2 0 an even turn"} {
		agent.say("cancel %d %s", id, order)
		agent.hear(fmt.Sprintf("outcome %d gone", id))
	}

	_, never := app.Start(context.Background(), "never", Uncancellable())
	defer never.End()
	agent.cancel(7, never, table, "x")
	agent.hear("outcome 7 failed the task is not cancellable")
	if never.Cancelled() != nil {
		t.Error("it was cancelled")
	}

	_, twice := app.Start(context.Background(), "twice")
	agent.cancel(8, twice, table, "x")
	agent.hear("acknowledge 8")
	agent.cancel(9, twice, table, "x")
	agent.hear("outcome 9 failed the task was to be cancelled before")
	twice.End()
	agent.hear("outcome 8 cancelled")
}

func TestCompletedInSpiteOfIt(t *testing.T) {
	app, table, agent := pair(t)
	ctx, task := app.Start(context.Background(), "quick", Rerun(func(context.Context) { t.Error("it ran again") }, nil))
	agent.cancel(1, task, table, "x")
	agent.hear("acknowledge 1")
	within(t, "the context's end", ctx.Done())
	task.Completed()
	task.End()
	agent.hear("outcome 1 finished")
	if task.Cancelled() != nil {
		t.Error("it counts as cancelled")
	}
}

func TestCancelActions(t *testing.T) {
	app, table, agent := pair(t, CancelWith(func(*Cancelled) error { return errors.New("the application's own\nsays no") }))
	begin := func(action func(*Cancelled) error) (context.Context, *Task) {
		var options []TaskOption
		if action != nil {
			options = append(options, OnCancel(action))
		}
		return app.Start(context.Background(), "x", options...)
	}
	id := uint64(0)
	cancel := func(task *Task) {
		id++
		agent.cancel(id, task, table, "why")
		agent.hear(fmt.Sprintf("acknowledge %d", id))
	}
	fails := func(task *Task, ctx context.Context, how string) {
		t.Helper()
		cancel(task)
		agent.hear(fmt.Sprintf("outcome %d failed %s", id, how))
		if ctx.Err() != nil || task.Cancelled() != nil {
			t.Errorf("it goes on, but %v, %v", ctx.Err(), task.Cancelled())
		}
		task.End()
	}

	t.Run("of the application", func(t *testing.T) {
		ctx, task := begin(nil)
		fails(task, ctx, "the application's own says no")
	})
	t.Run("panics", func(t *testing.T) {
		ctx, task := begin(func(*Cancelled) error { panic("no") })
		fails(task, ctx, "the cancel action panicked: no")
	})
	t.Run("ends its goroutine", func(t *testing.T) {
		ctx, task := begin(func(*Cancelled) error { panic(nil) })
		fails(task, ctx, "the cancel action panicked: panic called with nil argument")
	})
	t.Run("succeeds", func(t *testing.T) {
		var got *Cancelled
		ctx, task := begin(func(why *Cancelled) error { got = why; return nil })
		cancel(task)
		within(t, "the context's end", ctx.Done())
		if got == nil || got.Reason != "why" || got.Resource != "table" {
			t.Errorf("%+v", got)
		}
		task.End()
		agent.hear(fmt.Sprintf("outcome %d cancelled", id))
	})
	t.Run("ends the task itself", func(t *testing.T) {
		var task *Task
		_, task = begin(func(*Cancelled) error { task.End(); return nil })
		cancel(task)
		agent.hear(fmt.Sprintf("outcome %d cancelled", id))
	})
}

func TestAnActionThatNeverReturns(t *testing.T) {
	app, table, agent := pair(t, func(s *settings) { s.times.action = 20 * time.Millisecond })
	release := make(chan struct{})
	ctx, task := app.Start(context.Background(), "x", OnCancel(func(*Cancelled) error { <-release; return nil }))
	defer task.End()
	agent.cancel(1, task, table, "why")
	agent.hear("acknowledge 1")
	agent.hear("outcome 1 failed the cancel action has not returned after 20ms")
	if ctx.Err() != nil || task.Cancelled() != nil {
		t.Errorf("it goes on, but %v, %v", ctx.Err(), task.Cancelled())
	}

	_, other := app.Start(context.Background(), "y", OnCancel(func(*Cancelled) error { return nil }))
	defer other.End()
	agent.cancel(2, other, table, "why")
	agent.hear("outcome 2 failed an earlier cancel action has not returned")
	close(release)
	for !app.actions.free() { // it returns, some time
		time.Sleep(time.Millisecond)
	}
	if other.Cancelled() != nil {
		t.Error("it was cancelled after all")
	}
	agent.cancel(3, other, table, "why")
	agent.hear("acknowledge 3")
}

func TestReruns(t *testing.T) {
	type key struct{}
	background := context.WithValue(context.Background(), key{}, "kept")
	start := func(t *testing.T, app *App, options ...TaskOption) (task *Task, ran chan *Task, dropped chan struct{}) {
		ran, dropped = make(chan *Task, 1), make(chan struct{}, 1)
		ctx, stop := context.WithCancel(background)
		_, task = app.Start(ctx, "job", append(options, Key(7), Rerun(func(ctx context.Context) {
			if ctx.Err() != nil || ctx.Value(key{}) != "kept" {
				t.Errorf("the context of the rerun: %v, %v", ctx.Err(), ctx.Value(key{}))
			}
			ran <- FromContext(ctx)
		}, func() { dropped <- struct{}{} }))...)
		stop() // as a server does when a request is over
		return task, ran, dropped
	}
	cancel := func(agent *fakeAgent, id uint64, task *Task, table *Resource) {
		agent.cancel(id, task, table, "x")
		agent.hear(fmt.Sprintf("acknowledge %d", id))
		task.End()
		agent.hear(fmt.Sprintf("outcome %d cancelled", id))
	}
	check := func(t *testing.T, again *Task) {
		t.Helper()
		if r := again.run; r.key != 7 || r.label != "job" || r.flags() != 1<<3 {
			t.Errorf("ran as %+v, flags %d", r.choices, r.flags())
		}
	}

	t.Run("rerun", func(t *testing.T) {
		app, table, agent := pair(t)
		task, ran, _ := start(t, app)
		agent.say("rerun 1") // which is nobody's yet
		cancel(agent, 1, task, table)
		agent.say("rerun 1")
		check(t, within(t, "the rerun", ran))
		agent.hear("reran 1")
		agent.say("rerun 1") // and nobody's any more
		agent.say("drop 1")
		task, ran, _ = start(t, app)
		cancel(agent, 2, task, table)
		agent.say("rerun 2")
		agent.hear("reran 2")
	})
	t.Run("drop", func(t *testing.T) {
		app, table, agent := pair(t)
		task, ran, dropped := start(t, app)
		cancel(agent, 1, task, table)
		agent.say("drop 1")
		within(t, "what hears of it", dropped)
		agent.hear("dropped 1")
		if len(ran) != 0 {
			t.Error("it ran again")
		}
	})
	t.Run("a rerun is not cancelled", func(t *testing.T) {
		app, table, agent := pair(t)
		begun, release := make(chan *Task), make(chan struct{})
		_, task := app.Start(background, "job", Background(), Rerun(func(ctx context.Context) { begun <- FromContext(ctx); <-release }, nil))
		cancel(agent, 1, task, table)
		agent.say("rerun 1")
		again := within(t, "the rerun", begun)
		if flags := again.run.flags(); flags != 1<<1|1<<3 {
			t.Errorf("flags %d", flags)
		}
		agent.cancel(2, again, table, "x")
		agent.hear("outcome 2 failed the task is not cancellable")
		close(release)
		agent.hear("reran 1")
	})
	t.Run("the agent hangs up", func(t *testing.T) {
		app, table, agent := pair(t)
		task, ran, _ := start(t, app)
		cancel(agent, 1, task, table)
		agent.hangUp()
		check(t, within(t, "the rerun", ran))
	})
	t.Run("the agent has hung up before the task ends", func(t *testing.T) {
		app, table, agent := pair(t)
		task, ran, _ := start(t, app)
		agent.cancel(1, task, table, "x")
		agent.hear("acknowledge 1")
		agent.hangUp()
		agent.welcome() // and is back
		task.End()
		check(t, within(t, "the rerun", ran))
	})
	t.Run("the agent says nothing", func(t *testing.T) {
		app, table, agent := pair(t, func(s *settings) { s.times.rerun = time.Millisecond })
		task, ran, _ := start(t, app)
		cancel(agent, 1, task, table)
		check(t, within(t, "the rerun", ran))
		agent.hear("reran 1")
	})
	t.Run("the deadline has passed", func(t *testing.T) {
		app, table, agent := pair(t)
		task, _, dropped := start(t, app, Deadline(time.Now().Add(-time.Second)))
		cancel(agent, 1, task, table)
		agent.say("rerun 1")
		within(t, "what hears of it", dropped)
		agent.hear("dropped 1")
	})
	t.Run("the application is closed", func(t *testing.T) {
		app, table, agent := pair(t)
		task, _, dropped := start(t, app)
		cancel(agent, 1, task, table)
		app.Close()
		within(t, "what hears of it", dropped)
	})
	t.Run("it panics", func(t *testing.T) {
		var log logged
		app, table, agent := pair(t, log.option())
		for id := uint64(1); id <= 3; id++ {
			_, task := app.Start(background, "job", Rerun(func(context.Context) { panic("no") }, func() { panic("no") }))
			cancel(agent, id, task, table)
			if id < 3 {
				agent.say("rerun %d", id)
				agent.hear(fmt.Sprintf("reran %d", id))
			} else {
				agent.say("drop %d", id)
				agent.hear(fmt.Sprintf("dropped %d", id))
			}
		}
		if log.count("panicked") != 1 {
			t.Errorf("logged %q", log.lines.String())
		}
	})
	t.Run("too many wait", func(t *testing.T) {
		app, table, agent := pair(t)
		app.reruns.mu.Lock()
		app.reruns.kept = rerunLimit
		app.reruns.mu.Unlock()
		task, ran, dropped := start(t, app)
		cancel(agent, 1, task, table)
		within(t, "what hears of it", dropped)
		agent.say("rerun 1")
		app.reruns.mu.Lock()
		defer app.reruns.mu.Unlock()
		if len(ran) != 0 || len(app.reruns.waiting) != 0 || app.reruns.kept != rerunLimit {
			t.Errorf("%d ran, %d wait, %d kept", len(ran), len(app.reruns.waiting), app.reruns.kept)
		}
	})
}

func TestAnAgentThatComesAndGoes(t *testing.T) {
	var log logged
	app, table, agent := pair(t, log.option())
	agent.hangUp()
	agent.welcome()
	agent.die()
	ctx, task := app.Start(context.Background(), "x")
	task.Use(table).Get(1)
	task.End()
	if err := ctx.Err(); err != context.Canceled {
		t.Error(err)
	}
	again := listen(t, filepath.Dir(app.file.Load().Path))
	again.welcome()
	_, task = app.Start(context.Background(), "x")
	again.cancel(1, task, table, "x")
	again.hear("acknowledge 1")
	task.End()
	again.hear("outcome 1 cancelled")
	if log.count("\n") != 0 {
		t.Errorf("logged %q", log.lines.String())
	}
}

func TestRefusedIsLoggedOnce(t *testing.T) {
	var log logged
	at := directory(t)
	agent := listen(t, at)
	app := New("test", impatient, Dir(at), log.option())
	defer app.Close()
	for range 3 {
		agent.accept()
		agent.say("refused not yours")
		agent.hangUp()
	}
	agent.welcome() // it changed its mind
	if log.count("not yours") != 1 || log.count("\n") != 1 {
		t.Errorf("logged %q", log.lines.String())
	}
}

// Whatever the other end says, the application goes on and connects again.
func TestAgentsThatTalkNonsense(t *testing.T) {
	at := directory(t)
	agent := listen(t, at)
	app := New("test", impatient, Dir(at), (&logged{}).option())
	defer app.Close()
	for _, nonsense := range []string{"welcome 2 enforce", "cancel 1 0 1 0 x", "welcome 1 off\n" + strings.Repeat("x", 2000), strings.Repeat("x", 1025)} {
		agent.accept()
		agent.say("%s", nonsense)
		if agent.lines.Scan() {
			t.Errorf("after %.20q: %q", nonsense, agent.lines.Text())
		}
		agent.hangUp()
	}
	agent.accept()
	agent.say("dance\nwelcome 1 sideways\nwelcome 1 enforce\ndance\ncancel\nrerun\ndrop eight\nrerun 77\ndrop 78\ncancel 5 9 9 0 x")
	agent.hear("outcome 5 gone")
}

func TestClosedWhileTasksRun(t *testing.T) {
	app, table, _ := pair(t)
	path := app.file.Load().Path
	ctx, task := app.Start(context.Background(), "x")
	use := task.Use(table)
	use.Get(1)
	app.Close()
	app.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ledger: %v", err)
	}
	use.Free(1)
	task.Progress(1, 2)
	task.Use(app.NewResource(Lock, "later", 1)).Get(1)
	task.End()
	if ctx.Err() == nil {
		t.Error("the context goes on")
	}
	if _, task := app.Start(context.Background(), "x"); task != nil || !errors.Is(app.Err(), errClosed) {
		t.Errorf("%v, %v", task, app.Err())
	}
}
