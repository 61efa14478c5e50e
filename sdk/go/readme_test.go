package plimsoll_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plimsoll.dev/go/internal/agenttest"
)

// TestReadmeExample runs the first example of the README, which is that program and no other, without an agent and with one that cancels it.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```go\n")
	shown, _, _ := strings.Cut(rest, "```")
	source, err := os.ReadFile("example/first/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if shown != string(source) {
		t.Errorf("the README shows\n%s\nand example/first/main.go is\n%s", shown, source)
	}
	program := filepath.Join(t.TempDir(), "first")
	if out, err := exec.Command("go", "build", "-o", program, "./example/first").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		name, directory, want string
	}{
		{"without a directory", "/proc/none/such", "done\n"},
		{"without an agent", filepath.Join(t.TempDir(), "made"), "done\n"},
	} {
		run := exec.Command(program)
		run.Env = append(os.Environ(), "PLIMSOLL_DIR="+c.directory)
		if out, err := run.Output(); err != nil || string(out) != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, out, err, c.want)
		}
	}
	agent := agenttest.New(t)
	run := exec.Command(program)
	run.Env = append(os.Environ(), "PLIMSOLL_DIR="+agent.Directory)
	out := make(chan string, 1)
	go func() {
		text, _ := run.CombinedOutput()
		out <- string(text)
	}()
	agent.Welcome()
	agent.Cancel("GET /report\x00", 1, "it holds table")
	agent.Hear("acknowledge 1")
	agent.Hear("outcome 1 cancelled")
	if got := <-out; got != "cancelled because it holds table\n" {
		t.Errorf("%q", got)
	}
}
