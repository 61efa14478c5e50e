// What accounting costs: `go run ./bench` prints one JSON line, in ns.
//
// calm_ns and exact_ns are a get/free pair with coarse and with exact stamps; task_ns is a task from Start to End that uses nothing. For
// scale: mutex_ns is a pair of Lock and Unlock of a sync.Mutex, tracked_mutex_ns the same of a plimsoll.Mutex, through the context, in calm. Each is the median of many
// short repetitions, which other programs on the machine disturb less than they would a long one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	plimsoll "plimsoll.dev/go"
)

const (
	repetitions = 301
	pairs       = 20_000 // in a repetition
	tasks       = 500
)

// median is the ns that one of n things takes, which do does in a row.
func median(n int, do func(n int)) float64 {
	took := make([]float64, repetitions)
	for i := range took {
		began := time.Now()
		do(n)
		took[i] = float64(time.Since(began).Nanoseconds()) / float64(n)
	}
	slices.Sort(took)
	return took[repetitions/2]
}

// agentExact is what an agent does that suspects an overload: it is there, and wants exact stamps.
func agentExact(directory string) error {
	ledgers, err := filepath.Glob(filepath.Join(directory, "*.ledger"))
	if err != nil || len(ledgers) != 1 {
		return fmt.Errorf("%d ledgers in %s (%v)", len(ledgers), directory, err)
	}
	f, err := os.OpenFile(ledgers[0], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for year := range 8 { // a sign of life that lasts: the year 584, in ns
		if _, err := f.WriteAt([]byte{0xff}, 0xc0+int64(year)); err != nil {
			return err
		}
	}
	_, err = f.WriteAt([]byte{1}, 0xc8)
	return err
}

func main() {
	directory, err := os.MkdirTemp("", "plimsoll-bench")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(directory)
	app := plimsoll.Open("bench", plimsoll.Dir(directory))
	defer app.Close()
	if err := app.Err(); err != nil {
		log.Fatal(err)
	}
	ctx, task := plimsoll.Start(context.Background(), "bench")
	use := task.Use(plimsoll.NewResource(plimsoll.Lock, "bench", 1))
	pair := func(n int) {
		for range n {
			use.Get(1)
			use.Free(1)
		}
	}
	var mutex sync.Mutex
	tracked := plimsoll.NewMutex("tracked")
	result := map[string]any{
		"lang":    "go",
		"calm_ns": median(pairs, pair),
		"mutex_ns": median(pairs, func(n int) {
			for range n {
				mutex.Lock()
				mutex.Unlock()
			}
		}),
		"tracked_mutex_ns": median(pairs, func(n int) {
			for range n {
				tracked.Lock(ctx)
				tracked.Unlock()
			}
		}),
		"task_ns": median(tasks, func(n int) {
			for range n {
				_, task := plimsoll.Start(context.Background(), "bench", plimsoll.Key(7))
				task.End()
			}
		}),
	}
	if err := agentExact(directory); err != nil {
		log.Fatal(err)
	}
	result["exact_ns"] = median(pairs, pair)
	task.End()
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		log.Fatal(err)
	}
}
