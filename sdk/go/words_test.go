package plimsoll

import (
	"encoding/binary"
	"os"
	"testing"
)

// words are what a ledger says, read from its file as the agent reads it.
type words struct {
	t    *testing.T
	file []byte
}

func read(t *testing.T, app *App) words {
	t.Helper()
	file, err := os.ReadFile(app.file.Load().Path)
	if err != nil {
		t.Fatal(err)
	}
	return words{t, file}
}

func (w words) u64(at int) uint64 { return binary.LittleEndian.Uint64(w.file[at:]) }
func (w words) u32(at int) int    { return int(binary.LittleEndian.Uint32(w.file[at:])) }

func (w words) lanesAt() int    { return 4096 + 64*w.u32(0x0c) }
func (w words) tasksAt() int    { return w.lanesAt() + 2048*w.u32(0x10) }
func (w words) accountsAt() int { return w.tasksAt() + 128*w.u32(0x14) }

// sums adds up all accounts of a resource: the words after the owner, in their order.
func (w words) sums(r *Resource) (gets, frees, slows, waitNS, holdNS, waiting, holding uint64) {
	var sums [7]uint64
	for i := range w.u32(0xa4) {
		at := w.accountsAt() + 64*i
		if int32(w.u64(at)>>32&0xffff) != r.index.Load() {
			continue
		}
		for word := range sums {
			if v := w.u64(at + 8 + 8*word); word < 5 {
				sums[word] += v
			} else if v != 0 {
				sums[word]++
			}
		}
	}
	return sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6]
}

// expect compares what happened to a resource: units taken and given back, waits, and how many accounts wait and hold now.
func (w words) expect(r *Resource, gets, frees, slows, waiting, holding uint64) {
	w.t.Helper()
	g, f, s, _, _, now, held := w.sums(r)
	if g != gets || f != frees || s != slows || now != waiting || held != holding {
		w.t.Errorf("%s: gets %d frees %d slows %d waiting %d holding %d, want %d %d %d %d %d", r.name, g, f, s, now, held, gets, frees, slows, waiting, holding)
	}
}

// lanes adds up what became of the requests.
func (w words) lanes() (completed, cancelled, inBins uint64) {
	for lane := range w.u32(0x10) {
		at := w.lanesAt() + 2048*lane
		completed += w.u64(at)
		cancelled += w.u64(at + 8)
		for bin := range 248 {
			inBins += w.u64(at + 64 + 8*bin)
		}
	}
	return completed, cancelled, inBins
}
