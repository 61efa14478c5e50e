// What the agent says, and who does it.
package plimsoll

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"plimsoll.dev/go/internal/control"
	"plimsoll.dev/go/internal/ledger"
)

// welcomeLimit is how long an agent may take to answer a hello.
const welcomeLimit = 5 * time.Second

// attend connects with the agent, at every heartbeat that finds no connection, until the application is closed. Of timers of its own it has none: waking
// up is what this costs.
func (a *App) attend(file *ledger.File) {
	defer a.workers.Done()
	for {
		var pause time.Duration
		conn, err := control.Dial(a.socket())
		switch {
		case err == nil:
			if a.serve(conn, filepath.Base(file.Path)) {
				pause = a.times.refused
			}
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED): // no agent, which is no news
		default:
			a.say("agent", "the agent cannot be reached", "error", err)
		}
		for again := time.Now().Add(pause); ; {
			select {
			case <-a.stop:
				return
			case <-a.beats:
			}
			if !time.Now().Before(again) {
				break
			}
		}
	}
}

// serve does what the agent says until the connection ends. It tells whether the agent refused.
func (a *App) serve(conn *control.Conn, ledgerName string) (refused bool) {
	over := make(chan struct{})
	go func() {
		select {
		case <-a.stop:
			conn.Close()
		case <-over:
		}
	}()
	defer func() {
		close(over)
		conn.Close()
		<-conn.Gone()
		a.reruns.connectionEnded(conn)
	}()
	conn.Say(control.Hello(ledgerName))
	line, err := conn.HearWithin(welcomeLimit)
	if err != nil {
		return false
	}
	switch said := line.(type) {
	case control.Refused:
		a.say("refused", "the agent refuses this application", "reason", said.Text)
		return true
	case control.Welcome:
		if said.Version != control.Version {
			a.say("version", "the agent speaks another version", "ours", control.Version, "its", said.Version)
			return true
		}
	default:
		a.say("welcome", "the agent gives orders before it has said welcome")
		return true
	}
	for {
		line, err := conn.Hear()
		if err != nil {
			return false
		}
		switch said := line.(type) {
		case control.Cancel:
			a.cancel(&order{conn, said.ID}, said)
		case control.Rerun:
			a.reruns.run(conn, said.ID)
		case control.Drop:
			a.reruns.drop(conn, said.ID)
		case control.Refused:
			a.say("refused", "the agent refuses this application", "reason", said.Text)
			return true
		}
	}
}

// cancel follows an order, or says at once why not.
func (a *App) cancel(o *order, said control.Cancel) {
	var r *run
	if int(said.Task) < len(a.runs) {
		r = a.runs[said.Task].Load()
	}
	if r == nil || r.turn != said.Turn {
		if a.file.Load().Over(said.Task, said.Turn) {
			o.outcome(control.Finished, "")
		} else {
			o.outcome(control.Gone, "")
		}
		return
	}
	why := &Cancelled{Task: r.label, Key: r.key, Resource: a.resourceName(said.Resource), Reason: said.Text}
	action := r.onCancel
	if action == nil {
		action = a.onCancel
	}
	if action != nil && !a.actions.free() {
		o.outcome(control.Failed, "an earlier cancel action has not returned")
		return
	}
	if word, text := r.take(o, why); word != "" {
		o.outcome(word, text)
		return
	}
	if action == nil {
		r.succeed(o)
		return
	}
	a.actions.run(func() error { return action(why) }, a.times.action, func(err error) {
		if err != nil {
			r.fail(o, err.Error())
		} else {
			r.succeed(o)
		}
	})
}

func (a *App) resourceName(index uint32) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.resources {
		if r.index.Load() == int32(index) {
			return r.name
		}
	}
	return ""
}

// actionLimit is how many cancel actions may run at once.
const actionLimit = 64

// actions are the cancel actions that run.
type actions struct {
	mu             sync.Mutex
	running, stuck int
}

// free tells whether another one may run.
func (s *actions) free() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck == 0 && s.running < actionLimit
}

// run runs an action in a goroutine of its own, and tells then how it went: within the limit, or that it was not. A panic is an error.
func (s *actions) run(action func() error, limit time.Duration, then func(error)) {
	s.mu.Lock()
	s.running++
	s.mu.Unlock()
	result := make(chan error, 1)
	go func() {
		err := errors.New("the cancel action ended its goroutine") // unless it returns: runtime.Goexit
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the cancel action panicked: %v", p)
			}
			result <- err
		}()
		err = action()
	}()
	go func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		var err error
		stuck := 0
		select {
		case err = <-result:
			then(err)
		case <-timer.C:
			stuck = 1
			s.add(0, 1)
			then(fmt.Errorf("the cancel action has not returned after %v", limit))
			<-result
		}
		s.add(-1, -stuck)
	}()
}

func (s *actions) add(running, stuck int) {
	s.mu.Lock()
	s.running += running
	s.stuck += stuck
	s.mu.Unlock()
}
