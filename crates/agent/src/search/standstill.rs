//! How a node on this host stands still to collect garbage, as the kernel of the host sees it.
//!
//! The node looks at its collectors once a second. But of a JVM's threads there are two that have a processor only while all others stand still:
//! the one that stops them, and the first of those that collect meanwhile. One waits for the other, so what both ran is how long it stood
//! still. The serial collector has no threads of its own, but collects on the one that stops the others. Those that collect beside the
//! requests (ZGC, Shenandoah) have none of that name, and then what the node tells has to do.

use plimsoll_core::Nanos;

use crate::host::{self, Process};
use crate::server::latency::Pauses;

/// What the JVM calls the two. Those of its own threads are the first that it begins.
const STOPS: &str = "VM Thread";
const COLLECTS: &str = "GC Thread#0";
const MOST: usize = 256;

/// These threads, and what they had run at the last look.
#[derive(Debug)]
pub struct Standstill {
    threads: Vec<Process>,
    ran_ns: u64,
    at: Nanos,
}

impl Standstill {
    /// Of the process of this number whose JVM began at that time of day (seconds since 1970), and collects on threads of its own unless it is
    /// `serial`; nothing where there is none on this host, or it has no such threads.
    pub fn find(pid: u32, began_s: f64, serial: bool, now: Nanos) -> Option<Standstill> {
        let stops = host::thread_named(pid, STOPS, MOST)?;
        // The process itself may have begun long before: as a script that found out how to start it.
        if !host::began(stops, began_s) {
            return None;
        }
        let mut threads = vec![stops];
        if !serial {
            threads.push(host::thread_named(pid, COLLECTS, MOST)?);
        }
        Some(Standstill { ran_ns: ran_ns(&threads)?, threads, at: now })
    }

    /// How it stood still since the last look; nothing where it is gone. How often is not seen: as often as it usually does by what it `told`, or
    /// once.
    pub fn look(&mut self, now: Nanos, told: Pauses) -> Option<Pauses> {
        let ran_ns = ran_ns(&self.threads)?;
        let stood_ns = ran_ns.saturating_sub(std::mem::replace(&mut self.ran_ns, ran_ns));
        let in_ns = now.since(std::mem::replace(&mut self.at, now)).0;
        let usually = told.part * in_ns as f64 / told.each_ns.max(1) as f64;
        Some(Pauses::of((usually as u64).max(1), stood_ns.min(in_ns), in_ns))
    }
}

fn ran_ns(threads: &[Process]) -> Option<u64> {
    threads.iter().map(|&thread| host::ran_and_queued_ns(thread).map(|(ran_ns, _)| ran_ns)).sum()
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

        let calm = seen.look(Nanos(10_000 * MS), Pauses::default()).unwrap();
        assert!(calm.part < 0.01, "{calm:?}");
        for (tell, _) in [&stops, &collects] {
            tell.send(20_000_000).unwrap();
            is_done.recv().unwrap();
        }
        let told = Pauses { part: 0.5, each_ns: MS };
        let stood = seen.look(Nanos(10_004 * MS), told).unwrap();
        assert_eq!(
            stood,
            Pauses { part: 1.0, each_ns: 2 * MS },
            "all the time, and twice in 4 ms as it told"
        );
        let calm = seen.look(Nanos(20_000 * MS), told).unwrap();
        assert!(calm.part < 0.01, "{calm:?}");

        let end = |(tell, thread): (Sender<u64>, JoinHandle<()>)| {
            drop(tell);
            thread.join().unwrap();
        };
        end(collects);
        assert!(find(began_s).is_none(), "it collects on threads of another name");
        assert!(Standstill::find(pid, began_s, true, Nanos::ZERO).is_some(), "it needs no others");
        end(stops);
        assert_eq!(seen.look(Nanos(20_100 * MS), told), None, "they are gone");
    }
}
