//! How soon a thread gets a processor, where others compute.
//!
//! By default the kernel lets a thread on for milliseconds at a time, and one that wakes up may have to wait for so long. Who asks for a shorter slice
//! has its turn sooner, and no more of the processors than before: just what wants whoever is before a busy server, or watches it, and has little
//! to do at a time. It takes no right, and Linux 6.12; older ones take no notice.

use std::io;
use std::mem::MaybeUninit;

/// The shortest that the kernel grants, in ns.
const SHORTEST_NS: u64 = 100_000;

/// Asks for the shortest slice for the calling thread, and for those that it starts. One of another policy than the usual ones stays as it is; where the
/// kernel refuses, as in a sandbox, all go on as they are.
pub fn shorten() {
    if let Err(error) = shortest() {
        log::debug!(error:%; "no shorter slice");
    }
}

fn shortest() -> io::Result<()> {
    let mut attributes = of_this_thread()?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attributes.sched_policy as i32)) {
        return Ok(());
    }
    attributes.sched_runtime = SHORTEST_NS;
    // SAFETY: the kernel reads as many bytes as the structure says that it has; it outlives the call. The C libraries have no wrapper.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

fn of_this_thread() -> io::Result<libc::sched_attr> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes `size` bytes at most to a structure of that size, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0) })?;
    // SAFETY: it holds whole numbers alone, of which zeros are some.
    Ok(unsafe { attributes.assume_init() })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_slice_that_it_asked_for_and_else_is_what_it_was() {
        let before = of_this_thread().unwrap();
        shortest().unwrap();
        let after = of_this_thread().unwrap();
        let as_before = |of: &libc::sched_attr| (of.sched_policy, of.sched_nice, of.sched_flags);
        assert_eq!(as_before(&after), as_before(&before));
        // A kernel that knows no slices tells none.
        assert!([0, SHORTEST_NS].contains(&after.sched_runtime), "{}", after.sched_runtime);
        let of_another = std::thread::spawn(|| of_this_thread().unwrap().sched_runtime).join().unwrap();
        assert_eq!(of_another, after.sched_runtime, "it is handed down");
    }
}
