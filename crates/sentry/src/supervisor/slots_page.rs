//! A page of memory that all workers of a sentry share. Each writes the slots that its requests hold; during an
//! upgrade each leaves the slots alone that the others hold, so that a pool's servers do not see more than `workers`
//! requests at once because there are two sentries for a while. What a worker knows of the others is as old as its last
//! look, so two that take the same slot at once have both until the next one.

use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

use super::lifecycle::SEATS;

/// Pools of one worker that the page has room for. Further ones are not shared, and said so in the log.
pub const POOLS: usize = 64;

/// Zero throughout is a page that nobody uses, so that a fresh memfd needs no initialisation.
#[repr(C)]
struct Page {
    seats: [Seat; SEATS],
}

#[repr(C)]
struct Seat {
    pools: [Entry; POOLS],
}

#[repr(C)]
struct Entry {
    /// Hash of the pool's name, since the configs of two workers may number their pools differently; 0 is unused.
    pool: AtomicU64,
    in_use: AtomicU32,
}

/// The page, mapped.
#[derive(Debug)]
pub struct SlotsPage {
    page: NonNull<Page>,
}

// SAFETY: the page holds nothing but atomics and stays mapped for as long as this value lives.
unsafe impl Send for SlotsPage {}
// SAFETY: as above.
unsafe impl Sync for SlotsPage {}

impl SlotsPage {
    /// A fresh page: the descriptor by which it is handed on.
    ///
    /// # Errors
    /// Where the kernel has no memory for it.
    pub fn create() -> io::Result<OwnedFd> {
        let file = memfd_create("plimsoll-slots", MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&file, size_of::<Page>() as i64)?;
        Ok(file)
    }

    /// Maps the page of this descriptor.
    ///
    /// # Errors
    /// Where it is not such a page, for instance that of a release with another layout.
    pub fn map(file: impl AsFd) -> io::Result<SlotsPage> {
        let length = const { NonZeroUsize::new(size_of::<Page>()).unwrap() };
        if nix::sys::stat::fstat(&file)?.st_size != size_of::<Page>() as i64 {
            return Err(io::Error::other(
                "the shared slots page has another size; restart instead of upgrading",
            ));
        }
        // SAFETY: a new shared mapping at an address of the kernel's choice, of a file that is long enough and
        // that nobody shortens; every bit pattern is a valid Page.
        let page = unsafe {
            mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, file, 0)?
        };
        Ok(SlotsPage { page: page.cast() })
    }

    fn seats(&self) -> &[Seat; SEATS] {
        // SAFETY: mapped in `map`, unmapped only in `drop`, and page-aligned, which is enough for atomics.
        &unsafe { self.page.as_ref() }.seats
    }

    /// Forgets what the worker in this seat held: it is gone, or about to start.
    pub fn clear(&self, seat: usize) {
        for entry in &self.seats()[seat].pools {
            entry.in_use.store(0, Ordering::Relaxed);
            entry.pool.store(0, Ordering::Relaxed);
        }
    }

    /// Says that the worker in this seat holds `in_use` slots of a pool. False if the page has no room for it.
    pub fn publish(&self, seat: usize, pool: &str, in_use: u32) -> bool {
        let key = key(pool);
        // Only the worker in the seat writes here, so that finding a place and taking it need not be one step.
        let place =
            self.seats()[seat].pools.iter().find(|e| [0, key].contains(&e.pool.load(Ordering::Relaxed)));
        let Some(entry) = place else { return false };
        entry.in_use.store(in_use, Ordering::Relaxed);
        entry.pool.store(key, Ordering::Relaxed);
        true
    }

    /// The slots of a pool that workers in other seats hold.
    pub fn held_by_others(&self, seat: usize, pool: &str) -> u32 {
        let key = key(pool);
        let others = self.seats().iter().enumerate().filter(|(other, _)| *other != seat);
        others
            .flat_map(|(_, s)| &s.pools)
            .filter(|e| e.pool.load(Ordering::Relaxed) == key)
            .fold(0, |sum, e| sum.saturating_add(e.in_use.load(Ordering::Relaxed)))
    }
}

impl Drop for SlotsPage {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.page.cast::<c_void>(), size_of::<Page>()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// FNV-1a: the same in every release, since two releases speak through the page. Never 0.
fn key(pool: &str) -> u64 {
    let hash = pool.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_see_what_the_others_hold() {
        let file = SlotsPage::create().unwrap();
        let (old, new) = (SlotsPage::map(&file).unwrap(), SlotsPage::map(&file).unwrap());
        assert!(old.publish(0, "shop", 7) && old.publish(0, "api", 2));
        assert!(new.publish(1, "api", 1), "in another order");
        assert_eq!((new.held_by_others(1, "shop"), new.held_by_others(1, "api")), (7, 2));
        assert_eq!((old.held_by_others(0, "shop"), old.held_by_others(0, "api")), (0, 1));
        old.publish(0, "shop", 0);
        assert_eq!(new.held_by_others(1, "shop"), 0);
        new.clear(0);
        assert_eq!(new.held_by_others(1, "api"), 0, "a dead worker holds nothing");
    }

    #[test]
    fn a_full_page_says_so() {
        let page = SlotsPage::map(SlotsPage::create().unwrap()).unwrap();
        for i in 0..POOLS {
            assert!(page.publish(0, &format!("pool{i}"), 1));
        }
        assert!(!page.publish(0, "one more", 1));
        assert!(page.publish(0, "pool0", 2), "those that are there go on");
    }

    #[test]
    fn a_page_of_another_size_is_refused() {
        let file = SlotsPage::create().unwrap();
        ftruncate(&file, 16).unwrap();
        SlotsPage::map(&file).unwrap_err();
    }
}
