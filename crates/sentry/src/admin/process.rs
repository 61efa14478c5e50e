//! What the kernel knows about this process. Nothing where /proc is not there.

use std::fs;

/// Memory that is in RAM.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// Open files and sockets.
pub fn open_descriptors() -> Option<usize> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count())
}

/// Seconds computed, in user mode and in the kernel.
pub fn cpu_seconds() -> Option<f64> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).ok()?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Some(seconds(usage.user_time()) + seconds(usage.system_time()))
}
