// An answer, and whether it has begun.
package httpplimsoll

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// answer is a ResponseWriter that remembers whether anything was answered. It passes on what servers' own can do: flush, hijack, and send
// a file without copying it.
type answer struct {
	http.ResponseWriter
	begun bool
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if status >= 200 { // informational ones answer nothing
		a.begun = true
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(p)
}

func (a *answer) ReadFrom(from io.Reader) (int64, error) {
	a.begun = true
	return io.Copy(a.ResponseWriter, from)
}

func (a *answer) Flush() {
	a.begun = true
	_ = http.NewResponseController(a.ResponseWriter).Flush() // who cannot flush does not
}

func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begun = true
	return http.NewResponseController(a.ResponseWriter).Hijack()
}
