// An application: its ledger, and the goroutines that give signs of life and listen to the agent.
package plimsoll

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"plimsoll.dev/go/internal/control"
	"plimsoll.dev/go/internal/ledger"
)

// App is an application with a ledger of its own. Most programs are one, and never need to name it: [Start], [NewMutex] and the rest
// use [Default].
type App struct {
	settings
	clock   func() uint64
	opening sync.Once
	tried   atomic.Bool // to open the ledger
	file    atomic.Pointer[ledger.File]
	stop    chan struct{}
	beats   chan struct{} // a heartbeat was given, for who waits for one
	stopped sync.Once
	workers sync.WaitGroup

	mu        sync.Mutex
	resources []*Resource
	err       error
	said      map[string]bool

	runs    []atomic.Pointer[run] // those alive, by the index of their record
	actions actions
	reruns  reruns
}

var std = newApp()

// Default is the application that package-level functions use. It is opened by [Open] or, under the name of the program, by the
// first task.
func Default() *App { return std }

// Open names and opens the default application. It is best called first thing in main, with `defer app.Close()` after it. If the ledger
// cannot be kept, the application goes unaccounted, which is logged once; [App.Err] tells why.
func Open(name string, options ...Option) *App {
	if !std.open(name, options) {
		std.say("open", "the default application is open already", "name", name)
	}
	return std
}

// New opens a further application in the same process, under another name. Most programs want [Open].
func New(name string, options ...Option) *App {
	a := newApp()
	a.open(name, options)
	return a
}

func newApp() *App {
	a := &App{settings: defaults(), clock: ledger.Clock(), stop: make(chan struct{}), beats: make(chan struct{}), said: map[string]bool{}}
	a.reruns.init(a)
	return a
}

// open opens the ledger, once. It tells whether this was the time.
func (a *App) open(name string, options []Option) (first bool) {
	a.opening.Do(func() {
		first = true
		defer a.tried.Store(true)
		for _, option := range options {
			option(&a.settings)
		}
		if name == "" {
			name = ledger.AppFrom(filepath.Base(os.Args[0]))
		}
		file, err := a.create(name)
		a.mu.Lock()
		a.err = err
		a.mu.Unlock()
		if err != nil {
			a.say("ledger", "no ledger: tasks go unaccounted", "error", err)
			return
		}
		a.begin(file)
	})
	return first
}

func (a *App) create(name string) (*ledger.File, error) {
	if err := a.counts.Check(); err != nil {
		return nil, err
	}
	if a.directory == "" {
		directory, err := ledger.Directory()
		if err != nil {
			return nil, err
		}
		a.directory = directory
	} else if err := ledger.CheckDirectory(a.directory); err != nil {
		return nil, err
	}
	about, err := ledger.Self(name, a.clock)
	if err != nil {
		return nil, err
	}
	return ledger.Create(a.directory, a.counts, about, a.group, a.clock)
}

// begin makes a ledger the application's, and starts what looks after it.
func (a *App) begin(file *ledger.File) {
	file.Tick(a.clock())
	file.Beat()
	a.runs = make([]atomic.Pointer[run], a.counts.Tasks)
	a.mu.Lock()
	for _, r := range a.resources {
		r.bind(file.Ledger)
	}
	a.file.Store(file)
	a.mu.Unlock()
	a.workers.Add(2)
	go a.beat(file)
	go a.attend(file)
}

// ledger is the ledger to write to, or nil.
func (a *App) ledger() *ledger.File {
	if !a.tried.Load() {
		a.open("", nil)
	}
	return a.file.Load()
}

// Err is why the application goes unaccounted, or nil if it does not.
func (a *App) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

var errClosed = errors.New("the application was closed")

// Close removes the ledger and leaves the agent. Tasks that still run end unaccounted, and what waits to be run again is dropped.
func (a *App) Close() {
	a.stopped.Do(func() {
		a.opening.Do(func() { a.tried.Store(true) }) // one that was never opened stays so
		a.reruns.close()                             // first: or else the end of the connection would run them again
		close(a.stop)
		a.workers.Wait()
		if file := a.file.Swap(nil); file != nil {
			if err := file.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
				a.say("remove", "the ledger stays behind", "error", err)
			}
		}
		a.mu.Lock()
		if a.err == nil {
			a.err = errClosed
		}
		a.mu.Unlock()
	})
}

// beat gives signs of life.
func (a *App) beat(file *ledger.File) {
	defer a.workers.Done()
	ticker := time.NewTicker(a.times.beat)
	defer ticker.Stop()
	for {
		select {
		case <-a.stop:
			return
		case <-ticker.C:
			file.Beat()
			select {
			case a.beats <- struct{}{}:
			default:
			}
		}
	}
}

// say logs a line, unless one about this cause was logged before.
func (a *App) say(cause, message string, args ...any) {
	a.mu.Lock()
	said := a.said[cause]
	a.said[cause] = true
	logger := a.logger
	a.mu.Unlock()
	if said {
		return
	}
	if logger == nil {
		logger = slog.Default()
	}
	logger.Warn("plimsoll: "+message, args...)
}

// socket is where the agent listens.
func (a *App) socket() string { return filepath.Join(a.directory, control.SocketName) }
