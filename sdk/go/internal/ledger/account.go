// What one task did with one resource: the events, as stores.
package ledger

import "sync/atomic"

// Account is the record of what one task did with one resource.
//
// At any moment one goroutine writes an account, and nobody but the agent reads it, in another process. So its words need no
// atomic read-modify-write, and plain loads and stores they are: that is what makes a get/free pair cost a few nanoseconds. What the
// reader needs is the order of the stores. The Go compiler keeps stores to memory in the order of the program (it may only drop one
// that the next instruction overwrites, between which nothing can have been seen), and amd64 keeps stores in order, too, so there the order
// of docs/ledger.md is what any other processor sees. arm64, riscv64 and the rest may show two of these stores the other way round: the order
// is then a courtesy. A reader that meets such a moment sees a hold without its get, or a get without its hold, for one look, which is what
// its checks are for ("What a reader holds against it"). The words that say whose a record is, `owner` and `turn`, are stored atomically, and
// thus in order everywhere; those that the agent writes, `flags` and `clock_ns`, are loaded atomically.
//
// The race detector does not watch memory that is not Go's, so it is silent about the mapped words, whoever writes them; all that lies on
// Go's side of an account is atomic or behind a lock, and clean under it.
type Account struct {
	owner                          uint64
	gets, frees, slows             uint64
	waitNS, holdNS                 uint64
	waitingSinceNS, holdingSinceNS uint64
}

// Handle is an account in the hands of a task. Its methods do nothing when there is no account, or none any more; a write that is on its way
// while the task ends may still get through, and is then lost in the next owner's sums.
type Handle struct {
	account atomic.Pointer[Account]
	ledger  *Ledger
	index   uint32
	of      uint32
}

// Wait says that a wait begins. One that goes on already is not begun again.
func (h *Handle) Wait() {
	a := h.account.Load()
	if a == nil || a.waitingSinceNS != 0 {
		return
	}
	a.slows++
	a.waitingSinceNS = h.ledger.Now()
}

// EndWait says that the wait is over, with or without success; without a wait it does nothing.
func (h *Handle) EndWait() {
	if a := h.account.Load(); a != nil && a.waitingSinceNS != 0 {
		a.endWait(h.ledger.Now())
	}
}

func (a *Account) endWait(now uint64) {
	since := a.waitingSinceNS
	a.waitingSinceNS = 0
	a.waitNS += between(since, now)
}

// Get says that n units were taken, which ends the wait for them.
func (h *Handle) Get(n uint64) {
	a := h.account.Load()
	if a == nil {
		return
	}
	if a.waitingSinceNS != 0 {
		a.endWait(h.ledger.Now())
	}
	gets := a.gets
	a.gets = gets + n
	if gets == a.frees && n != 0 {
		a.holdingSinceNS = h.ledger.Now()
	}
}

// Free says that n units were given back. What is more than is held does not count.
func (h *Handle) Free(n uint64) {
	a := h.account.Load()
	if a == nil {
		return
	}
	gets, frees := a.gets, a.frees
	if gets <= frees {
		return
	}
	if held := gets - frees; n >= held {
		n = held
		a.endHold(h.ledger.Now())
	}
	a.frees = frees + n
}

func (a *Account) endHold(now uint64) {
	since := a.holdingSinceNS
	a.holdingSinceNS = 0
	a.holdNS += between(since, now)
}

// Slow says that n units had to wait delayNS altogether, measured elsewhere: evictions, most of all.
func (h *Handle) Slow(n, delayNS uint64) {
	if a := h.account.Load(); a != nil {
		a.slows += n
		a.waitNS += delayNS
	}
}

// close ends what still goes on, as the end of the task does.
func (a *Account) close(now uint64) {
	if a.waitingSinceNS != 0 {
		a.endWait(now)
	}
	if a.gets != a.frees {
		a.endHold(now)
		a.frees = a.gets
	}
}

// between is how long it was from since to now, in ns, and 0 if that would be negative: coarse and exact times may follow each other.
func between(since, now uint64) uint64 {
	if since > now {
		return 0
	}
	return now - since
}

// ownerOf is the word that says whose an account is.
func ownerOf(task uint32, turn uint64, resource uint32) uint64 {
	return uint64(task+1) | uint64(resource)<<32 | turn<<48
}

// setOwner gives the account to somebody, or to nobody: from then on the agent counts what it says for them.
func (a *Account) setOwner(owner uint64) { atomic.StoreUint64(&a.owner, owner) }
