//! How a JVM on this host stands still to collect garbage, as the kernel of the host sees it.
//!
//! Of a JVM's threads there are two that have a processor only while all others stand still: the one that stops them, and the first of those
//! that collect meanwhile. One waits for the other, so what both ran, or could have run, is how long it stood still. The serial collector has no
//! threads of its own, but collects on the one that stops the others. Those that collect beside the requests (ZGC, Shenandoah) have none of
//! that name, and stop the others for moments only.

use plimsoll_core::Nanos;

use crate::host::{self, Process};

/// What the JVM calls the two. Those of its own threads are the first that it begins.
const STOPS: &str = "VM Thread";
const COLLECTS: &str = "GC Thread#0";
const MOST: usize = 256;

/// These threads, and what they had run at the last look.
#[derive(Debug)]
pub struct Standstill {
    threads: Vec<Process>,
    wanted_ns: u64,
    at: Nanos,
}

/// For how long it stood still since the last look, and how long that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stood {
    /// So many ns.
    pub stood_ns: u64,
    /// Of so many.
    pub in_ns: u64,
}

impl Standstill {
    /// Of the JVM that is this process of this host, whatever collects there; nothing where it is none.
    pub fn of(pid: u32, now: Nanos) -> Option<Standstill> {
        let stops = host::thread_named(pid, STOPS, MOST)?;
        let collects = host::thread_named(pid, COLLECTS, MOST);
        let threads: Vec<Process> = std::iter::once(stops).chain(collects).collect();
        Some(Standstill { wanted_ns: wanted_ns(&threads)?, threads, at: now })
    }

    /// Of the process of this number whose JVM began at that time of day (seconds since 1970), and collects on threads of its own unless it is
    /// `serial`; nothing where there is none on this host, or it has no such threads.
    pub fn find(pid: u32, began_s: f64, serial: bool, now: Nanos) -> Option<Standstill> {
        // The process itself may have begun long before: as a script that found out how to start it.
        let is_it = |found: &Standstill| {
            host::began(found.threads[0], began_s) && (serial || found.threads.len() > 1)
        };
        Standstill::of(pid, now).filter(is_it)
    }

    /// How it stood still since the last look; nothing where it is gone.
    pub fn look(&mut self, now: Nanos) -> Option<Stood> {
        let wanted_ns = wanted_ns(&self.threads)?;
        let stood_ns = wanted_ns.saturating_sub(std::mem::replace(&mut self.wanted_ns, wanted_ns));
        let in_ns = now.since(std::mem::replace(&mut self.at, now)).0;
        Some(Stood { stood_ns: stood_ns.min(in_ns), in_ns })
    }
}

/// While one of them waits for a processor nobody else goes on, either.
fn wanted_ns(threads: &[Process]) -> Option<u64> {
    let wanted = |&thread: &Process| host::ran_and_queued_ns(thread).map(|(ran, queued)| ran + queued);
    threads.iter().map(wanted).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread::{Builder, JoinHandle};

    use super::*;

    const MS: u64 = 1_000_000;

    /// A thread of this name that computes as often as it is told to, and says when it is done.
    fn thread(name: &str, done: Sender<()>) -> (Sender<u64>, JoinHandle<()>) {
        let (tell, told) = channel();
        let work = move || {
            for rounds in told {
                std::hint::black_box((0..rounds).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
                done.send(()).unwrap();
            }
        };
        (tell, Builder::new().name(name.to_owned()).spawn(work).unwrap())
    }

    #[test]
    fn a_jvm_stands_still_while_these_two_of_its_threads_run() {
        let pid = std::process::id();
        let find = |began_s| Standstill::find(pid, began_s, false, Nanos::ZERO);
        let (done, is_done) = channel();
        let [stops, collects] = [STOPS, COLLECTS].map(|name| thread(name, done.clone()));
        for (tell, _) in [&stops, &collects] {
            tell.send(1).unwrap();
            is_done.recv().unwrap();
        }
        let began_s = host::began_at(host::thread_named(pid, STOPS, MOST).unwrap()).unwrap();
        assert!(find(began_s + 60.0).is_none(), "another process, of another host");
        let mut seen = find(began_s).unwrap();

        let calm = seen.look(Nanos(10_000 * MS)).unwrap();
        assert!(calm.stood_ns < 100 * MS, "{calm:?}");
        for (tell, _) in [&stops, &collects] {
            tell.send(20_000_000).unwrap();
            is_done.recv().unwrap();
        }
        let stood = seen.look(Nanos(10_004 * MS)).unwrap();
        assert_eq!(stood, Stood { stood_ns: 4 * MS, in_ns: 4 * MS }, "all the time");
        let calm = seen.look(Nanos(20_000 * MS)).unwrap();
        assert!(calm.stood_ns < 100 * MS, "{calm:?}");

        let end = |(tell, thread): (Sender<u64>, JoinHandle<()>)| {
            drop(tell);
            thread.join().unwrap();
        };
        end(collects);
        assert!(find(began_s).is_none(), "it collects on threads of another name");
        assert!(Standstill::find(pid, began_s, true, Nanos::ZERO).is_some(), "it needs no others");
        assert!(Standstill::of(pid, Nanos::ZERO).is_some_and(|of| of.threads.len() == 1));
        end(stops);
        assert_eq!(seen.look(Nanos(20_100 * MS)), None, "they are gone");
        assert!(Standstill::of(pid, Nanos::ZERO).is_none(), "that is no JVM");
    }
}
