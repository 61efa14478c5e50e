// What a request costs in failsafe-go: TryAcquirePermit and Record of an adaptive limiter, and a refusal. It reads the
// clock by itself and cannot be kept from it. Loops are those of crates/admission/benches/decision. Argument: rounds;
// prints a JSON object a case.
package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

const (
	round  = 2 * time.Millisecond
	warmUp = 2 * time.Second
)

type loop struct {
	what string
	run  func(turns int)
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	loops := []loop{cycle(), refusal(), clockRead()}

	turns := make([]int, len(loops))
	ns := make([][]float64, len(loops))
	for i, l := range loops {
		turns[i] = l.warmUp()
	}
	for range rounds {
		for i, l := range loops {
			ns[i] = append(ns[i], float64(l.time(turns[i]).Nanoseconds())/float64(turns[i]))
		}
	}
	for i, l := range loops {
		slices.Sort(ns[i])
		fmt.Printf("{\"what\":%q,\"p10\":%.2f,\"p50\":%.2f,\"p90\":%.2f}\n",
			l.what, quantile(ns[i], 0.1), quantile(ns[i], 0.5), quantile(ns[i], 0.9))
	}
}

func cycle() loop {
	limiter := adaptivelimiter.NewWithDefaults[any]()
	return loop{"whole cycle and its clock reads", func(turns int) {
		for range turns {
			permit, ok := limiter.TryAcquirePermit()
			if !ok {
				panic("refused")
			}
			permit.Record()
		}
	}}
}

func refusal() loop {
	limiter := adaptivelimiter.NewWithDefaults[any]()
	for ok := true; ok; {
		_, ok = limiter.TryAcquirePermit()
	}
	return loop{"refusal", func(turns int) {
		for range turns {
			if _, ok := limiter.TryAcquirePermit(); ok {
				panic("admitted")
			}
		}
	}}
}

var sink time.Duration

func clockRead() loop {
	began := time.Now()
	return loop{"clock read", func(turns int) {
		for range turns {
			sink ^= time.Since(began)
		}
	}}
}

// warmUp returns the turns that fill a round.
func (l loop) warmUp() int {
	turns := 1_000
	for began := time.Now(); time.Since(began) < warmUp; {
		took := max(1, l.time(turns))
		turns = max(1_000, min(int(float64(turns)*float64(round)/float64(took)), 1e9))
	}
	return turns
}

func (l loop) time(turns int) time.Duration {
	began := time.Now()
	l.run(turns)
	return time.Since(began)
}

func quantile(sorted []float64, share float64) float64 {
	return sorted[int(math.Round(float64(len(sorted)-1)*share))]
}
