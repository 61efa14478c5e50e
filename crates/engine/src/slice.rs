//! How soon a thread gets a processor, where others compute.
//!
//! By default the kernel lets a thread on for milliseconds at a time, and one that wakes up may have to wait for so long. Who asks for a shorter slice
//! has its turn sooner, and no more of the processors than before: just what wants whoever is before a busy server, or watches it, and has little
//! to do at a time. It takes no right, and Linux 6.12; older ones take no notice.

use std::io;

/// The shortest that the kernel grants, in ns.
const SHORTEST_NS: u64 = 100_000;

/// What `sched_getattr` fills and `sched_setattr` reads: the first version of its structure.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: i32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for the shortest slice for the calling thread, and for those that it starts. One of another policy than the usual ones stays as it is.
///
/// # Errors
/// What the kernel says; in a sandbox, that this is forbidden.
pub fn shortest() -> io::Result<()> {
    let mut attributes = of_this_thread()?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&attributes.policy) {
        return Ok(());
    }
    attributes.runtime = SHORTEST_NS;
    // SAFETY: the kernel reads as many bytes as the structure says that it has; it outlives the call. The C libraries have no wrapper.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })
}

fn of_this_thread() -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes `size` bytes at most to a structure of that size, which outlives the call.
    check(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) })?;
    Ok(attributes)
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
        assert_eq!((after.policy, after.nice, after.flags), (before.policy, before.nice, before.flags));
        // A kernel that knows no slices tells none.
        assert!([0, SHORTEST_NS].contains(&after.runtime), "{}", after.runtime);
        let of_another = std::thread::spawn(|| of_this_thread().unwrap().runtime).join().unwrap();
        assert_eq!(of_another, after.runtime, "it is handed down");
    }
}
