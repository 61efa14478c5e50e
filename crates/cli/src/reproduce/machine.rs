//! What the kernel says of the whole machine.

use plimsoll_herald::parse::Times;

/// CPU seconds since boot, of all CPUs together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpus {
    /// Those that nobody used.
    pub idle_s: f64,
    /// Those that a hypervisor gave to somebody else.
    pub stolen_s: f64,
}

impl Cpus {
    /// As of now.
    ///
    /// # Errors
    /// Where `/proc/stat` cannot be read.
    pub fn now() -> Result<Cpus, String> {
        let text = std::fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
        Cpus::of(&text).ok_or_else(|| "/proc/stat does not begin with the sum of all CPUs".to_owned())
    }

    fn of(text: &str) -> Option<Cpus> {
        let ticks: Vec<f64> = text
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let s = |field: usize| Some(ticks.get(field)? / rustix::param::clock_ticks_per_second() as f64);
        // A CPU that waits for a disk is idle, too.
        Some(Cpus { idle_s: s(3)? + s(4)?, stolen_s: s(7)? })
    }

    /// What has been added since.
    pub fn since(self, before: Cpus) -> Cpus {
        Cpus { idle_s: self.idle_s - before.idle_s, stolen_s: self.stolen_s - before.stolen_s }
    }
}

/// How long threads of some processes were ready to run without running, in seconds, as far as they are still there.
pub fn waited_s(pids: impl IntoIterator<Item = u32>) -> f64 {
    pids.into_iter().flat_map(threads).map(|thread| thread.delay_ns).sum::<u64>() as f64 / 1e9
}

/// How long threads of a process that are still there have run, in seconds: as of the kernel's last tick, where `/proc/PID/stat` counts in
/// ticks. Nothing where none is there.
pub fn ran_s(pid: u32) -> Option<f64> {
    threads(pid).map(|thread| thread.run_ns).reduce(|sum, ns| sum + ns).map(|ns| ns as f64 / 1e9)
}

fn threads(pid: u32) -> impl Iterator<Item = Times> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| Times::parse(&std::fs::read(thread.path().join("schedstat")).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_are_read_in_seconds() {
        let hertz = rustix::param::clock_ticks_per_second();
        let text =
            format!("cpu  1 2 3 {} {} 6 7 {} 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n", 4 * hertz, hertz, 2 * hertz);
        let cpus = Cpus::of(&text).unwrap();
        assert_eq!((cpus.idle_s, cpus.stolen_s), (5.0, 2.0));
        assert!(Cpus::of("cpu0 1 2 3 4 5 6 7 8\n").is_none() && Cpus::of("cpu  1 2\n").is_none());
        assert!(Cpus::now().is_ok());
    }

    #[test]
    fn this_program_has_waited_for_a_while_and_nobody_has_not() {
        let own = waited_s([std::process::id()]);
        assert!(own > 0.0 && own.is_finite(), "{own}");
        assert_eq!(waited_s([]), 0.0);
    }

    #[test]
    fn this_program_has_run_and_more_once_it_has_computed() {
        let own = || ran_s(std::process::id()).unwrap();
        let before = own();
        // The kernel brings it up to date at its ticks.
        while own() <= before {}
        assert!(before > 0.0 && before.is_finite(), "{before}");
        assert_eq!(ran_s(u32::MAX), None);
    }
}
