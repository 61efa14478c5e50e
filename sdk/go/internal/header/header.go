// Package header is what requests and answers say about cancellation, in HTTP and in gRPC.
package header

import "strings"

const (
	// Cancelled names the resource that a cancelled request held up, in its answer.
	Cancelled = "plimsoll-cancelled"
	// Rerun is "1" in a request that is sent a second time because it was cancelled: it never is again.
	Rerun = "plimsoll-rerun"
)

// Value is a text as a header can carry it: printable ASCII.
func Value(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}
