// Free records, last in, first out, without a lock: taking one never waits for a goroutine that was put aside while it held a lock.
package ledger

import "sync/atomic"

// links says, for each record, which free one lies below it: its index plus 1.
type links []atomic.Uint32

// stack is the top of a stack of free records: bits 0-31 are the index plus 1, or 0 if it is empty; bits 32-63 count the changes, so that a
// top that was taken and came back in between is not mistaken for one that never left.
type stack struct{ top atomic.Uint64 }

func (s *stack) push(below links, index uint32) {
	for {
		top := s.top.Load()
		below[index].Store(uint32(top))
		if s.top.CompareAndSwap(top, (top>>32+1)<<32|uint64(index+1)) {
			return
		}
	}
}

func (s *stack) pop(below links) (index uint32, ok bool) {
	for {
		top := s.top.Load()
		if uint32(top) == 0 {
			return 0, false
		}
		index = uint32(top) - 1
		if s.top.CompareAndSwap(top, (top>>32+1)<<32|uint64(below[index].Load())) {
			return index, true
		}
	}
}
