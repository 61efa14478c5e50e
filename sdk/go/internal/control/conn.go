// The connection with the agent: lines in both directions, none of which the application ever waits for.
package control

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// writeLimit is how long an agent may take to read what it is told, before it is taken for dead. It is long enough for a busy machine to
	// get round to writing what was said just before the end.
	writeLimit = time.Second
	// backlog is how many lines may wait to be written. Nobody says more at once than there are tasks being cancelled.
	backlog = 2048
)

// Conn is a connection with an agent.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
	out  chan string
	once sync.Once
	done chan struct{} // closed when it shall end
	gone chan struct{} // closed when it has
}

// Dial connects with the agent at a path. It must run as our own user or as root.
func Dial(path string) (*Conn, error) {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil, err
	}
	if err := trusted(conn.(*net.UnixConn)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &Conn{conn: conn, in: bufio.NewReaderSize(conn, LineLimit), out: make(chan string, backlog), done: make(chan struct{}), gone: make(chan struct{})}
	go c.write()
	return c, nil
}

// Say sends a line, without its end. It returns at once; an agent that does not listen loses the connection.
func (c *Conn) Say(line string) {
	select {
	case c.out <- line:
	default:
		c.Close()
	}
}

// Hear waits for the next line of the agent's that can be understood. One without an end is an error, like a connection that ends.
func (c *Conn) Hear() (Line, error) {
	for {
		line, err := c.in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("a line of more than %d bytes", LineLimit)
		}
		if err != nil {
			return nil, err
		}
		if said := Parse(string(line[:len(line)-1])); said != nil {
			return said, nil
		}
	}
}

// HearWithin is [Conn.Hear] with a limit to its patience, at which the connection ends.
func (c *Conn) HearWithin(limit time.Duration) (Line, error) {
	timer := time.AfterFunc(limit, c.Close)
	defer timer.Stop()
	return c.Hear()
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection, when what was said before has been written: a program may end as soon as its task was cancelled, and the agent
// is to know that it was. It returns at once, and may be called more than once.
func (c *Conn) Close() {
	c.once.Do(func() {
		close(c.done)
		c.conn.SetReadDeadline(time.Now()) // nobody hears any more
		c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	})
}

// Gone is closed when all is written, or given up, after [Conn.Close].
func (c *Conn) Gone() <-chan struct{} { return c.gone }

func (c *Conn) write() {
	defer close(c.gone)
	defer c.conn.Close()
	defer c.Close()
	for {
		select {
		case line := <-c.out:
			c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
			if !c.send(line) {
				return
			}
		case <-c.done:
			c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
			for {
				select {
				case line := <-c.out:
					if !c.send(line) {
						return
					}
				default:
					return
				}
			}
		}
	}
}

func (c *Conn) send(line string) bool {
	_, err := io.WriteString(c.conn, line+"\n")
	return err == nil
}
