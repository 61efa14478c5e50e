// What an application says to the agent.
package control

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Hello begins a connection: file is the name of the ledger in its directory.
func Hello(file string) string { return fmt.Sprintf("hello %d %s", Version, file) }

// Acknowledge says that the cancel action is being called.
func Acknowledge(id uint64) string { return fmt.Sprintf("acknowledge %d", id) }

// Word is how a cancellation ended.
type Word string

// How a cancellation can end.
const (
	Cancelled Word = "cancelled" // the task has ended for it
	Finished  Word = "finished"  // it ended by itself first
	Gone      Word = "gone"      // there is no such task
	Failed    Word = "failed"    // the action failed; the text says how
)

// Outcome says how a cancellation ended. The text becomes one line, and is cut to what a line can carry.
func Outcome(id uint64, word Word, text string) string {
	line := fmt.Sprintf("outcome %d %s", id, word)
	if text = oneLine(text); text != "" {
		line += " " + text
	}
	if len(line) < LineLimit {
		return line
	}
	end := LineLimit - 1
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end]
}

// Reran says that what was cancelled under an ID was run again.
func Reran(id uint64) string { return fmt.Sprintf("reran %d", id) }

// Dropped says that it was not, and never will be.
func Dropped(id uint64) string { return fmt.Sprintf("dropped %d", id) }

// oneLine makes control characters blanks and invalid bytes question marks.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r == 0x7f:
			return ' '
		case r == utf8.RuneError:
			return '?'
		}
		return r
	}, text)
}
