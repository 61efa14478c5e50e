//! A forked child must not write into its parent's ledger: in the child, memory of its own takes the mapping's place.
//!
//! So the child's tasks go on at the same addresses, at no cost to any event, and nobody reads them. It may open a ledger of its own.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Once, atomic};

/// Most ledgers that a process ever opens; one that found no place here would not be safe from a child, so it is not opened.
const MOST: usize = 256;

static AT: [AtomicPtr<u8>; MOST] = [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST];
static LENGTH: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Sees to it that children get memory of their own for this mapping, which must never be unmapped. `false` if there are too many.
pub fn protect((at, length): (*mut u8, usize)) -> bool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler touches nothing but atomics and mappings of ours, and is there as long as the program.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
    let Ok(place) = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < MOST).then_some(n + 1))
    else {
        return false;
    };
    LENGTH[place].store(length, Ordering::Relaxed);
    AT[place].store(at, Ordering::Release);
    true
}

/// Runs in a child right after the fork, alone: it may not lock or allocate.
extern "C" fn in_the_child() {
    for (at, length) in AT.iter().zip(&LENGTH) {
        let (at, length) = (at.load(atomic::Ordering::Acquire), length.load(Ordering::Relaxed));
        if !at.is_null() {
            let (protection, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            );
            // SAFETY: these bytes are a mapping of ours that is never unmapped, and all of its records are atomics for which
            // zeros are as good as anything. If there is no memory, the mapping goes, and a child that uses it ends, before it
            // could write into what is not its own.
            let mapped = unsafe { libc::mmap(at.cast(), length, protection, flags, -1, 0) };
            if mapped == libc::MAP_FAILED {
                // SAFETY: as above.
                unsafe { libc::munmap(at.cast(), length) };
            }
        }
    }
}
