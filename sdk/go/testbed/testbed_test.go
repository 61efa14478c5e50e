package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plimsoll.dev/go/internal/agenttest"
)

const variable = "PLIMSOLL_TESTBED"

// TestMain is the server itself where it is started by a test.
func TestMain(m *testing.M) {
	if os.Getenv(variable) != "" {
		os.Args = os.Args[:1]
		main()
		return
	}
	os.Exit(m.Run())
}

// start starts the server under an agent. stop ends it in order.
func start(t *testing.T) (url string, agent *agenttest.Agent, stop func()) {
	t.Helper()
	agent = agenttest.New(t)
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), variable+"=1", "PLIMSOLL_DIR="+agent.Directory)
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	var port int
	if _, err := fmt.Sscanf(line, "ready %d\n", &port); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	agent.Welcome()
	return fmt.Sprintf("http://127.0.0.1:%d", port), agent, func() {
		server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func get(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
}

func TestTestbed(t *testing.T) {
	url, agent, stop := start(t)
	for path, want := range map[string]string{
		"/item?id=1":                  "200 ok",
		"/item?id=x":                  "400 id=x: write a number, /item?id=7",
		"/slow?seconds=0.01":          "200 ok",
		"/hog/cache?seconds=0.05":     "200 ok",
		"/hog/lock?seconds=0.01":      "200 ok",
		"/hog/pool?seconds=0":         "200 ok",
		"/hog/pool?seconds=-1":        "400 seconds=-1: write 0 to 3600, /hog/pool?seconds=10",
		"/hog/pool?seconds=NaN":       "400 seconds=NaN: write 0 to 3600, /hog/pool?seconds=10",
		"/none":                       "404 404 page not found",
		"/item?id=187446744073709551": "200 ok",
	} {
		if got := get(url + path); got != want {
			t.Errorf("%s answered %q, want %q", path, got, want)
		}
	}
	for path, holding := range map[string]uint64{
		"/hog/lock":  2,       // a worker and the lock
		"/hog/cache": 1 + 256, // a worker and all pages
		"/hog/pool":  1,
		"/slow":      0,
	} {
		t.Run(path, func(t *testing.T) {
			answer := make(chan string, 1)
			go func() { answer <- get(url + path + "?seconds=3600") }()
			id := agent.Cancel("GET "+path+"\x00", holding, "it hogs")
			agent.Hear(fmt.Sprintf("acknowledge %d", id))
			agent.Hear(fmt.Sprintf("outcome %d cancelled", id))
			if got := <-answer; got != "503 cancelled: it hogs" {
				t.Errorf("answered %q", got)
			}
			if got := get(url + "/item?id=7"); got != "200 ok" {
				t.Errorf("then /item answered %q", got)
			}
		})
	}
	stop()
	if left, _ := filepath.Glob(filepath.Join(agent.Directory, "*.ledger*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Eight hogs have all workers; items are served as soon as one of them is cancelled.
func TestHogsInAllWorkers(t *testing.T) {
	url, agent, stop := start(t)
	defer stop()
	hogs := make(chan string, workers)
	for range workers {
		go func() { hogs <- get(url + "/hog/pool?seconds=3600") }()
	}
	id := agent.Cancel("GET /hog/pool\x00", 1, "it hogs")
	agent.Hear(fmt.Sprintf("acknowledge %d", id))
	agent.Hear(fmt.Sprintf("outcome %d cancelled", id))
	if got := <-hogs; got != "503 cancelled: it hogs" {
		t.Errorf("answered %q", got)
	}
	if got := get(url + "/item?id=7"); got != "200 ok" {
		t.Errorf("answered %q", got)
	}
}
