//! What a run asks of the operating system besides sockets: processors and file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread, and those it starts from now on, on these processors; an empty list changes nothing.
///
/// # Errors
/// Says which processors the system would not give.
pub fn pin_thread(cpus: &[usize]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(format!("there is no processor {cpu}"));
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set).map_err(|e| format!("cannot run on processors {cpus:?}: {e}"))
}

/// Allows this process as many open files as its user may have: thousands of connections need more than the usual
/// 1,024, and whoever opens too many learns it from the connections that fail.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
