// A small server that can be brought to its knees by whoever hogs its lock, its cache or its workers, to see whether the agent finds the
// one to blame: `go run ./testbed --port 8080`. It prints `ready PORT` when it serves, on 127.0.0.1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	plimsoll "plimsoll.dev/go"
	"plimsoll.dev/go/httpplimsoll"
)

// connections is how many may be open at once. More wait to be accepted.
const connections = 512

func main() {
	port := flag.Int("port", 0, "the port to listen on, 0 for one that is free")
	missMS := flag.Int("miss-ms", 2, "what it takes to fetch a page that is not in the cache")
	noSDK := flag.Bool("no-sdk", false, "keep no accounts: what they cost is measured against that")
	flag.Parse()
	if err := run(*port, time.Duration(*missMS)*time.Millisecond, *noSDK); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

func run(port int, miss time.Duration, noSDK bool) error {
	var handler http.Handler
	if noSDK {
		handler = newPlainBed(miss).routes()
	} else {
		defer plimsoll.Open("testbed-go").Close()
		handler = httpplimsoll.Handler(newBed(miss).routes())
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-stopped.Done()
		server.Close()
	}()
	fmt.Println("ready", listener.Addr().(*net.TCPAddr).Port)
	if err := server.Serve(limit(listener, connections)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// limited is a listener with a limit to the connections that are open at once.
type limited struct {
	net.Listener
	slots chan struct{}
}

func limit(listener net.Listener, most int) net.Listener {
	return &limited{listener, make(chan struct{}, most)}
}

func (l *limited) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slotted{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

type slotted struct {
	net.Conn
	free func()
}

func (c *slotted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
