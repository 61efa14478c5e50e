// What can be chosen: for an application, and for a task.
package plimsoll

import (
	"context"
	"log/slog"
	"time"

	"plimsoll.dev/go/internal/ledger"
)

// Option is a choice for an application, made by [Open].
type Option func(*settings)

type settings struct {
	directory string
	counts    ledger.Counts
	group     bool
	logger    *slog.Logger
	onCancel  func(*Cancelled) error
	times     times
}

// times are the intervals and limits of docs/ledger.md. Tests shorten them.
type times struct{ beat, refused, action, rerun time.Duration }

func defaults() settings {
	return settings{counts: ledger.DefaultCounts, times: times{
		beat:    time.Second,
		refused: 10 * time.Second,
		action:  5 * time.Second,
		rerun:   30 * time.Second,
	}}
}

// Dir sets the directory of ledgers, which must exist, in place of $PLIMSOLL_DIR or /dev/shm/plimsoll-UID.
func Dir(path string) Option { return func(s *settings) { s.directory = path } }

// Size sets how many records the ledger has: resources 1 to 256 (default 64), lanes 1 to 64 (8), tasks 1 to 131,072 (4,096) and accounts
// 1 to 1,048,576 (16,384). A task needs an account for each resource that it uses.
func Size(resources, lanes, tasks, accounts int) Option {
	return func(s *settings) {
		s.counts = ledger.Counts{Resources: resources, Lanes: lanes, Tasks: tasks, Accounts: accounts}
	}
}

// Group lets the file's group read the ledger (mode 0640), for an agent of that group.
func Group() Option { return func(s *settings) { s.group = true } }

// Logger sets where the few things that can go wrong are logged, once each. The default is [slog.Default].
func Logger(logger *slog.Logger) Option { return func(s *settings) { s.logger = logger } }

// CancelWith sets the cancel action of all tasks that have none of their own: see [OnCancel].
func CancelWith(action func(*Cancelled) error) Option {
	return func(s *settings) { s.onCancel = action }
}

// TaskOption is a choice for a task, made by [Start].
type TaskOption func(*choices)

type choices struct {
	key           uint64
	deadline      time.Time
	deadlineNS    uint64 // the same on the exact clock; 0 if never
	background    bool
	uncancellable bool
	rerunning     bool
	tid           uint32
	onCancel      func(*Cancelled) error
	again         func(context.Context)
	dropped       func()
}

// Key sets the application's number for the task: whatever helps to find it again.
func Key(key uint64) TaskOption { return func(c *choices) { c.key = key } }

// Deadline says when the task is of no use any more, if that is not when its context ends. It does not end the context.
func Deadline(at time.Time) TaskOption { return func(c *choices) { c.deadline = at } }

// Background says that the task is no request: nobody waits for it, so its latency does not count.
func Background() TaskOption { return func(c *choices) { c.background = true } }

// Uncancellable says that the task is seen but never cancelled.
func Uncancellable() TaskOption { return func(c *choices) { c.uncancellable = true } }

// Again says that the task is the second run of one that was cancelled: it is never cancelled.
func Again() TaskOption { return func(c *choices) { c.rerunning = true } }

// OnThread tells the agent the thread of the caller, for what that uses of CPU and IO. The goroutine must be locked to it
// ([runtime.LockOSThread]) until the task ends.
func OnThread() TaskOption { return func(c *choices) { c.tid = ledger.ThreadID() } }

// OnCancel sets what is done to cancel the task before its context ends, for work that listens to no context: a statement that must be killed,
// a subprocess. It runs in a goroutine of its own. If it returns an error, panics, or has not returned after five seconds, the task is not
// cancelled, its context goes on, and the agent is told; while one does not return, no other task is cancelled.
func OnCancel(action func(*Cancelled) error) TaskOption {
	return func(c *choices) { c.onCancel = action }
}

// Rerun says that the task can be run again if it was cancelled, and how. again is called once, in a goroutine of its own, when the agent
// says that there is room, when that has said nothing for 30 seconds, or when it has gone. Its context has the values of the one
// that the task was started with, its deadline, and a task that is never cancelled. dropped is called instead, if it is not nil, when the deadline has passed
// or too many (1,024) wait already.
func Rerun(again func(context.Context), dropped func()) TaskOption {
	return func(c *choices) { c.again, c.dropped = again, dropped }
}
