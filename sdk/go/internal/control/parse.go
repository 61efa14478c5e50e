// Package control speaks with the agent: the lines of docs/ledger.md, "Control", and the connection that carries them.
package control

import (
	"strconv"
	"strings"
)

// SocketName is the name of the socket on which the agent listens, in the directory of the ledgers.
const SocketName = "agent.sock"

// LineLimit is how long a line may be, in bytes, with its end.
const LineLimit = 1024

// Version is the version of the protocol.
const Version = 1

// Line is what the agent said: one of [Welcome], [Refused], [Cancel], [Rerun], [Drop], or nil for what cannot be understood.
type Line any

// Welcome says that the agent will look after this application, and in which mode.
type Welcome struct {
	Version uint64
	Mode    string // "off", "shadow" or "enforce"
}

// Refused says why the agent will not.
type Refused struct{ Text string }

// Cancel asks that a task be cancelled.
type Cancel struct {
	ID       uint64
	Task     uint32 // the index of its record
	Turn     uint64
	Resource uint32 // the index of what it holds up
	Text     string // why, for people
}

// Rerun says that there is room again for what was cancelled under an ID.
type Rerun struct{ ID uint64 }

// Drop says that what was cancelled under an ID is not to be run again.
type Drop struct{ ID uint64 }

// The largest indices that a ledger can have, and the largest number.
const (
	lastTask     = 131071
	lastResource = 255
	anything     = 1<<64 - 1
)

// Parse reads a line of the agent's, without its end. What cannot be understood is nil: later agents may know more words than these.
func Parse(line string) Line {
	if len(line) >= LineLimit {
		return nil
	}
	word, rest, _ := strings.Cut(line, " ")
	w := words{rest: rest}
	var said Line
	switch word {
	case "welcome":
		welcome := Welcome{Version: w.number(anything), Mode: w.word()}
		switch welcome.Mode {
		case "off", "shadow", "enforce":
		default:
			return nil
		}
		said = welcome
	case "refused":
		said = Refused{w.rest}
	case "cancel":
		cancel := Cancel{ID: w.number(anything), Task: uint32(w.number(lastTask)), Turn: w.number(anything), Resource: uint32(w.number(lastResource))}
		cancel.Text = w.rest
		said = cancel
	case "rerun":
		said = Rerun{w.number(anything)}
	case "drop":
		said = Drop{w.number(anything)}
	}
	if w.senseless {
		return nil
	}
	return said
}

// words takes words off the front of a line.
type words struct {
	rest      string
	senseless bool // one was not what it should be
}

func (w *words) word() (word string) {
	word, w.rest, _ = strings.Cut(w.rest, " ")
	return word
}

// number takes a decimal number of at most last off the front: digits, and nothing else.
func (w *words) number(last uint64) uint64 {
	word := w.word()
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || n > last || word[0] < '0' { // ParseUint takes a plus sign
		w.senseless = true
	}
	return n
}
