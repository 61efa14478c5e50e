//! The policy and the nice value of threads. Both are handed down to every thread and process that is started later.

use std::io;

use rustix::process::{Pid, getpriority_process, setpriority_process};
use serde::{Deserialize, Serialize};

use crate::process::Process;

/// Sweeps over a job whose threads start new ones meanwhile, at most.
const MOST_SWEEPS: usize = 8;

/// How one thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// `SCHED_OTHER`, `SCHED_IDLE`, ... with `SCHED_RESET_ON_FORK`.
    pub policy: i32,
    /// That of the real-time policies; 0 of all others.
    pub realtime: i32,
    /// -20 to 19.
    pub nice: i32,
}

impl Scheduling {
    /// That of a thread.
    ///
    /// # Errors
    /// Where there is no such thread.
    pub fn of(tid: i32) -> io::Result<Scheduling> {
        let mut parameter = libc::sched_param { sched_priority: 0 };
        // SAFETY: neither call touches memory but `parameter`, which is there.
        let policy = check(unsafe { libc::sched_getscheduler(tid) })?;
        // SAFETY: as above.
        check(unsafe { libc::sched_getparam(tid, &mut parameter) })?;
        let nice = getpriority_process(Pid::from_raw(tid))?;
        Ok(Scheduling { policy, realtime: parameter.sched_priority, nice })
    }

    /// Schedules a thread so.
    ///
    /// # Errors
    /// Where there is no such thread, or no right to.
    pub fn set(&self, tid: i32) -> io::Result<()> {
        set_policy(tid, self.policy, self.realtime)?;
        set_nice(tid, self.nice)
    }

    /// The same on the cycles that are left over.
    pub fn idle(&self) -> Scheduling {
        Scheduling {
            policy: libc::SCHED_IDLE | self.policy & libc::SCHED_RESET_ON_FORK,
            realtime: 0,
            ..*self
        }
    }

    /// Whether it gives way to all others already.
    pub fn is_idle(&self) -> bool {
        self.policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_IDLE
    }

    /// Whether it has a deadline, which cannot be given back by its policy alone.
    pub fn has_deadline(&self) -> bool {
        self.policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_DEADLINE
    }

    /// Whether it is one among equals: no real-time policy, no deadline.
    pub fn is_fair(&self) -> bool {
        matches!(
            self.policy & !libc::SCHED_RESET_ON_FORK,
            libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE
        )
    }
}

/// Makes the calling thread run on left-over cycles. It allocates nothing, so it may be called between fork and exec.
///
/// # Errors
/// Never on a kernel since 2.6.23, save in a sandbox that forbids it.
pub fn become_idle() -> io::Result<()> {
    set_policy(0, libc::SCHED_IDLE, 0)
}

/// Sets the nice value of a thread.
///
/// # Errors
/// Where there is no such thread, or no right to.
pub fn set_nice(tid: i32, nice: i32) -> io::Result<()> {
    Ok(setpriority_process(Pid::from_raw(tid), nice)?)
}

fn set_policy(tid: i32, policy: i32, realtime: i32) -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: realtime };
    // SAFETY: the call reads `parameter`, which is there.
    check(unsafe { libc::sched_setscheduler(tid, policy, &parameter) }).map(drop)
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls `act` for each thread of these processes, also for those that are started meanwhile: until a sweep finds no new one, or
/// there were too many sweeps. Threads that vanish are none.
///
/// # Errors
/// The first error of `act`, if not that the thread has gone.
pub fn each_thread(
    mut processes: impl FnMut() -> Vec<Process>,
    mut act: impl FnMut(i32) -> io::Result<()>,
) -> io::Result<()> {
    let mut seen = std::collections::HashSet::new();
    for _ in 0..MOST_SWEEPS {
        let before = seen.len();
        for tid in processes().iter().flat_map(Process::threads) {
            if seen.insert(tid) {
                match act(tid) {
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    done => done?,
                }
            }
        }
        if seen.len() == before {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_scheduled_and_put_back() {
        // A thread of its own: what has become idle without the right to go back stays so.
        let thread = std::thread::spawn(|| {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            let was = Scheduling::of(tid).unwrap();
            assert!(was.is_fair());
            become_idle().unwrap();
            let is = Scheduling::of(tid).unwrap();
            assert!(is.is_idle());
            assert_eq!(is, was.idle());
            if was.set(tid).is_ok() {
                assert_eq!(Scheduling::of(tid).unwrap(), was);
            }
        });
        thread.join().unwrap();
        assert!(Scheduling::of(i32::MAX).is_err());
    }
}
