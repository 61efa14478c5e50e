// Package ledger is the file in shared memory in which an application keeps account of its tasks: its layout, and what each
// event stores. docs/ledger.md specifies it byte by byte; nothing here goes beyond that page. Clocks and process numbers come in
// from outside, so that tests can play a script and compare bytes.
package ledger

import "fmt"

// Version is the version of the format.
const Version = 1

// Magic begins the file of every ledger that is complete.
const Magic = "PLIMSOLL"

// Lengths of the parts, in bytes.
const (
	headerLen   = 4096
	resourceLen = 64
	laneLen     = 2048
	taskLen     = 128
	accountLen  = 64

	appLen   = 64
	nameLen  = 48
	labelLen = 64
)

// Kind is what sort of thing a resource is.
type Kind uint32

// The kinds of resources. What a unit, a wait and a delay are differs: see docs/ledger.md, "Resources".
const (
	Lock   Kind = 1
	Memory Kind = 2
	Queue  Kind = 3
	CPU    Kind = 4
	IO     Kind = 5
)

// Flags of a task.
const (
	Cancellable uint32 = 1 << iota
	Background
	Rerunnable
	Rerun
)

// FlagExact is the agent's flag in the header: stamp every event with an exact time.
const FlagExact = 1

// header is the first page of the file, as it lies in memory.
type header struct {
	magic                             [8]byte
	version                           uint32
	resources, lanes, tasks, accounts uint32
	_                                 uint32
	pid, pidStarted, createdNS        uint64
	_                                 uint64
	app                               [appLen]byte
	appBeatNS                         uint64
	tasksRefused, accountsRefused     uint64
	resourcesRefused                  uint64
	tasksUsed, accountsUsed           uint32
	_                                 [24]byte
	agentBeatNS, flags, agentPID      uint64
	_                                 [40]byte
	clockNS                           uint64
	_                                 [headerLen - 0x108]byte
}

// resource is the record of a resource.
type resource struct {
	kind     uint32
	_        uint32
	capacity uint64
	name     [nameLen]byte
}

// bins is how many bins a latency can fall into.
const bins = 248

// lane is a share of what became of the requests.
type lane struct {
	completed, cancelled, sumNS uint64
	_                           [5]uint64
	bins                        [bins]uint64
}

// Task is the record of a task. Its fields are written by [Ledger.Begin], [Task.Progress] and [Ledger.End].
type Task struct {
	turn, key, startedNS, done, total, deadlineNS uint64
	flags, tid                                    uint32
	_                                             uint64
	label                                         [labelLen]byte
}

// Counts is how many records of each kind a ledger has.
type Counts struct{ Resources, Lanes, Tasks, Accounts int }

// DefaultCounts is what the format proposes.
var DefaultCounts = Counts{Resources: 64, Lanes: 8, Tasks: 4096, Accounts: 16384}

// Check says which count is out of range.
func (c Counts) Check() error {
	for _, count := range []struct {
		name     string
		is, most int
	}{{"resources", c.Resources, 256}, {"lanes", c.Lanes, 64}, {"tasks", c.Tasks, 131072}, {"accounts", c.Accounts, 1048576}} {
		if count.is < 1 || count.is > count.most {
			return fmt.Errorf("a ledger of %d %s: it can have 1 to %d", count.is, count.name, count.most)
		}
	}
	return nil
}

// Offsets of the parts after the header, and the length of the file, in bytes.
func (c Counts) lanesAt() int    { return headerLen + c.Resources*resourceLen }
func (c Counts) tasksAt() int    { return c.lanesAt() + c.Lanes*laneLen }
func (c Counts) accountsAt() int { return c.tasksAt() + c.Tasks*taskLen }
func (c Counts) length() int     { return c.accountsAt() + c.Accounts*accountLen }
