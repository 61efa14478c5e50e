//! How threads are scheduled, and on which CPUs: by system calls, which cost a tenth of what a file of `/proc` does.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;

use plimsoll_cpufutures::{CpuSet, Policy};
use rustix::process::Pid;
use rustix::thread::sched_getaffinity;

use crate::parse::{self, cpu_list};

/// The most sets of CPUs that are told apart. A thread whose set is one more counts as bound to none.
const MOST_SETS: usize = 256;
/// The kernel's sets that are remembered, several of which may be one of those.
const MOST_KNOWN: usize = 1_024;

/// Policy and nice value of a thread.
///
/// # Errors
/// `ESRCH` where it is gone.
pub fn policy(tid: u32) -> io::Result<(Policy, i8)> {
    let mut attributes = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes `size` bytes at most to a structure of that size, which outlives the call. It has no wrapper in the C
    // libraries, of which some answer `sched_getscheduler` with ENOSYS.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, attributes.as_mut_ptr(), size, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it holds whole numbers alone, of which zeros are some.
    let attributes = unsafe { attributes.assume_init() };
    Ok((parse::policy(attributes.sched_policy), attributes.sched_nice.clamp(-20, 19) as i8))
}

/// Sets of CPUs by number, the first of them that of all which are on line.
pub struct Sets {
    sets: Vec<CpuSet>,
    known: HashMap<rustix::thread::CpuSet, u32>,
}

impl Sets {
    /// Those CPUs are on line.
    pub fn new(online: CpuSet) -> Sets {
        Sets { sets: vec![online], known: HashMap::new() }
    }

    /// Those are on line now. Which threads are bound to no CPU is found out anew.
    pub fn renew(&mut self, online: CpuSet) {
        if online != self.sets[0] {
            self.sets[0] = online;
            self.known.clear();
        }
    }

    /// The sets, as [`plimsoll_cpufutures::Host`] wants them.
    pub fn list(&self) -> &[CpuSet] {
        &self.sets
    }

    /// The set of a thread.
    ///
    /// # Errors
    /// `ESRCH` where it is gone.
    pub fn of(&mut self, tid: u32) -> io::Result<u32> {
        let pid = Pid::from_raw(tid as i32).ok_or(io::ErrorKind::InvalidInput)?;
        let kernels = sched_getaffinity(Some(pid))?;
        if let Some(&number) = self.known.get(&kernels) {
            return Ok(number);
        }
        let set: CpuSet = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| kernels.is_set(cpu)).collect();
        let number = self.number(set);
        if self.known.len() == MOST_KNOWN {
            self.known.clear();
        }
        self.known.insert(kernels, number);
        Ok(number)
    }

    fn number(&mut self, set: CpuSet) -> u32 {
        if self.sets[0].iter().all(|cpu| set.contains(cpu)) {
            return 0;
        }
        let known = self.sets.iter().skip(1).position(|known| *known == set);
        match known {
            Some(at) => at as u32 + 1,
            None if self.sets.len() > MOST_SETS => 0,
            None => {
                self.sets.push(set);
                self.sets.len() as u32 - 1
            }
        }
    }
}

/// The CPUs that are on line; those that this thread may use where nobody tells.
pub fn online() -> CpuSet {
    let listed =
        std::fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(|text| cpu_list(&text));
    listed.filter(|set| !set.is_empty()).unwrap_or_else(|| {
        CpuSet::first(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    })
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;
    use rustix::thread::{gettid, sched_setaffinity};

    use super::*;

    #[test]
    fn this_thread_is_scheduled_as_it_asked_to_be() {
        std::thread::spawn(|| {
            let tid = gettid().as_raw_nonzero().get() as u32;
            let (policy, nice) = policy(tid).unwrap();
            assert_eq!(policy, Policy::Normal);
            assert_eq!(i32::from(nice), getpriority_process(None).unwrap());
            let mut sets = Sets::new(online());
            assert_eq!(sets.of(tid).unwrap(), 0);
            let mut first = rustix::thread::CpuSet::new();
            first.set(online().iter().next().unwrap());
            sched_setaffinity(None, &first).unwrap();
            let number = sets.of(tid).unwrap();
            assert_eq!(sets.list()[number as usize].len(), 1);
            assert_eq!(sets.of(tid).unwrap(), number);
        })
        .join()
        .unwrap();
        assert_eq!(policy(u32::MAX / 2).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn cpus_that_go_off_line_and_come_back_are_followed() {
        let set = |cpus: &[usize]| cpus.iter().copied().collect::<CpuSet>();
        let mut sets = Sets::new(CpuSet::first(2));
        assert_eq!(sets.number(set(&[0, 1])), 0);
        let first = sets.number(set(&[0]));
        assert_eq!(sets.number(set(&[0])), first);
        // A third one comes: whoever was bound to the first two is bound now.
        sets.renew(CpuSet::first(3));
        assert_eq!(sets.list()[0].len(), 3);
        let two = sets.number(set(&[0, 1]));
        assert!(two != 0 && two != first);
        assert_eq!((sets.number(set(&[0, 1, 2])), sets.number(set(&[0]))), (0, first));
        // And all but one go.
        sets.renew(CpuSet::first(1));
        assert_eq!((sets.number(set(&[0])), sets.number(set(&[0, 1])), sets.list().len()), (0, 0, 3));
        sets.renew(CpuSet::first(500));
        for cpu in 0..400 {
            sets.number(set(&[cpu]));
        }
        assert_eq!((sets.list().len(), sets.number(set(&[450]))), (1 + MOST_SETS, 0));
    }
}
