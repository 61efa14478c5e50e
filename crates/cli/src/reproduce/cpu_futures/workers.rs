//! How a server's workers fare, as a herald of our own sees it ten times a second: what all settings are judged by, those that an agent
//! has a part in too.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use plimsoll_cpufutures::Allocations;
use plimsoll_herald::{Herald, Options};
use plimsoll_testbed::control_group::family;
use tokio::sync::mpsc;

/// Who desires less has next to nothing to do. One short wait would make it look slow, and no request waits for it.
const LEAST_MS_PER_S: f64 = 10.0;
/// Who its children are takes longer to find than how they fare, and changes more rarely.
const LOOKS_AT_CHILDREN: u64 = 10;
/// Looks that may wait to be taken.
const WAITING: usize = 100;

/// The workers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fare {
    /// How many had anything to do in the last second.
    pub active: u32,
    /// How many times slower than on an idle machine the worst of them ran in it.
    pub slowdown: f64,
}

impl Fare {
    fn of(workers: impl Iterator<Item = Allocations>) -> Fare {
        let none = Fare { active: 0, slowdown: 1.0 };
        workers.filter(|found| found.desired_ms_per_s >= LEAST_MS_PER_S).fold(none, |fare, found| Fare {
            active: fare.active + 1,
            slowdown: fare.slowdown.max(found.slowdown()),
        })
    }
}

/// Looks at the children of a process until it is dropped, on a thread of its own: a herald blocks.
pub struct Watch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    looks: mpsc::Receiver<Fare>,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// Where there can be no herald here.
    pub fn start(master: u32) -> Result<Watch, String> {
        let (tell, looks) = mpsc::channel(WAITING);
        let ends = Arc::new(AtomicBool::new(false));
        let mut herald = Herald::new(Options::default())?;
        let ended = Arc::clone(&ends);
        let look = move || {
            let mut workers = HashSet::new();
            for i in 0_u64.. {
                if ended.load(Relaxed) {
                    break;
                }
                herald.wait();
                herald.sample();
                if i % LOOKS_AT_CHILDREN == 0 {
                    // The one that starts and ends them serves nobody.
                    workers = family(master).into_iter().filter(|pid| *pid != master).collect();
                }
                let found = herald.futures().iter().filter(|(id, _)| workers.contains(&id.pid));
                // Who does not take them in time misses some.
                let _ = tell.try_send(Fare::of(found.map(|(_, found)| found)));
            }
        };
        let thread = std::thread::Builder::new().name("herald".to_owned()).spawn(look);
        let thread = Some(thread.map_err(|e| format!("cannot start a thread: {e}"))?);
        Ok(Watch { ends, thread, looks })
    }

    /// The next look.
    pub async fn next(&mut self) -> Option<Fare> {
        self.looks.recv().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_those_who_have_something_to_do() {
        let of = |desired_ms_per_s: f64, actual_ms_per_s: f64| Allocations {
            desired_ms_per_s,
            actual_ms_per_s,
            ..Allocations::default()
        };
        let workers = [of(1000.0, 250.0), of(900.0, 300.0), of(2.0, 0.01), of(0.0, 0.0)];
        assert_eq!(Fare::of(workers.into_iter()), Fare { active: 2, slowdown: 4.0 });
        assert_eq!(Fare::of([].into_iter()), Fare { active: 0, slowdown: 1.0 });
    }
}
