//! Applications that keep a ledger (`docs/ledger.md`), as sources.
//!
//! | file | does |
//! | --- | --- |
//! | `port` | the lines over which an application is told to cancel |
//! | `scene` | from a look into a ledger to a scene |
//! | `tick` | ticks the clocks of ledgers |
//! | `unread` | who has come to a process that stands still to collect garbage |

pub mod port;
mod scene;
mod tick;
mod unread;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::decision::{Again, Outcome, State};
use plimsoll_core::Nanos;
use plimsoll_core::config::Mode;
use plimsoll_ledger::control::{self, FromAgent, FromSdk, Outcome as Word};
use plimsoll_ledger::layout::{BACKGROUND, Kind, MOST_RESOURCES};
use plimsoll_ledger::{Ledger, Look, Refusal, Task};

use crate::clock;
use crate::event::{About, rounded};
use crate::host::{self, Host, Process};
use crate::source::{Sent, Source, Trouble, Words};
use crate::standstill::{Standstill, Stood};

use self::port::Port;
use self::scene::{Books, FIRST, Stopped, Threads};
use self::unread::Unread;

pub use self::tick::{Open, tick};

/// From one look to the next: in calm, and while something is wrong.
const CALM: Duration = Duration::from_millis(50);
const TROUBLE: Duration = Duration::from_millis(20);
/// How often the kernel is asked about threads: in calm, and while something is wrong.
const SELDOM: Nanos = Nanos::from_secs(2);
const OFTEN: Nanos = Nanos::from_millis(50);
/// Threads that it is asked about.
const THREADS: usize = 128;
/// How often it is seen to that the process still lives and writes.
const PULSE: Nanos = Nanos::from_millis(500);
/// Cancellations that are remembered.
const REMEMBERED: usize = 4_096;

/// A mode as the application is told it.
pub fn word(mode: Mode) -> control::Mode {
    match mode {
        Mode::Off => control::Mode::Off,
        Mode::Shadow => control::Mode::Shadow,
        Mode::Enforce => control::Mode::Enforce,
    }
}

/// A ledger being watched.
pub struct Book {
    ledger: Rc<RefCell<Ledger>>,
    port: Rc<RefCell<Port>>,
    look: Look,
    books: Books,
    host: Host,
    /// How it stands still to collect garbage, if it is a JVM whose ledger has a heap; not looked for yet.
    standstill: Option<Option<Standstill>>,
    unread: Unread,
    asked: Nanos,
    pulse: Nanos,
    exact: bool,
    pid: u32,
    /// By number of the cancellation: the task, and what the application said.
    cancellations: BTreeMap<u64, Cancellation>,
    next: u64,
    warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Cancellation {
    task: u64,
    acknowledged: bool,
    answered: bool,
}

impl Book {
    /// One that has not looked yet.
    pub fn new(ledger: Rc<RefCell<Ledger>>, port: Rc<RefCell<Port>>) -> Book {
        let pid = ledger.borrow().pid();
        Book {
            ledger,
            port,
            look: Look::default(),
            books: Books::default(),
            host: Host::default(),
            standstill: None,
            unread: Unread::default(),
            asked: Nanos::ZERO,
            pulse: Nanos::ZERO,
            exact: false,
            pid: u32::try_from(pid).unwrap_or(0),
            cancellations: BTreeMap::new(),
            next: 0,
            warnings: Vec::new(),
        }
    }

    fn read(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), Refusal> {
        self.ledger.borrow_mut().look(now.0, &mut self.look)?;
        let pace = if self.exact { OFTEN } else { SELDOM };
        let mut did = HashMap::new();
        if now.since(self.asked) >= pace {
            self.asked = now;
            self.host.keep_recent(now);
            let pid = self.pid;
            // Any thread may run a task of which it is not known; they are listed only while something is wrong, and of nobody who accounts for
            // processors: what is lost to them would be counted twice, and once as nobody's.
            let accounts = self.look.resources.iter().any(|resource| resource.kind == Kind::Cpu);
            let wander = self.exact && !accounts && self.look.tasks.iter().any(|task| task.tid == 0);
            let others = if wander { host::threads(pid, THREADS) } else { Vec::new() };
            let known = self.look.tasks.iter().map(|task| task.tid).filter(|&tid| tid != 0);
            let tids: BTreeSet<u32> = known.chain(others).take(THREADS).collect();
            did = self.host.read(now, tids.into_iter().map(|tid| Process { pid, tid: Some(tid) }));
        }
        let threads = Threads { pid: self.pid, did: &did, cpus: host::cpus() };
        self.books.scene(&self.look, &threads, scene);
        if let Some(heap) = scene::heap(&self.look) {
            self.stand_still(now, heap, scene);
        }
        Ok(())
    }

    /// While it collects garbage all who are there wait for the heap, and so do those who have come since.
    fn stand_still(&mut self, now: Nanos, heap: u32, scene: &mut Scene) {
        let pid = self.pid;
        let Some(seen) = self.standstill.get_or_insert_with(|| Standstill::of(pid, now)) else { return };
        let Stood { stood_ns, in_ns } = seen.look(now).unwrap_or_default();
        self.unread.look(now, in_ns, stood_ns, self.look.window.completed);
        let Unread { came, waited_ns, .. } = &self.unread;
        scene::stopped(scene, heap, &Stopped { now, stood_ns, came, waited_ns: *waited_ns });
    }

    fn task(&self, id: u64) -> Option<&Task> {
        let index = self.look.tasks.binary_search_by_key(&scene::record(id), |task| task.index).ok()?;
        self.look.tasks.get(index).filter(|task| scene::id(task.index, task.turn) == id)
    }

    fn words_of(&self, id: u64) -> Words {
        let Some(task) = self.task(id) else {
            return Words { name: format!("task {}", scene::record(id)), ..Words::default() };
        };
        let label = task.label.show().into_owned();
        let why = if task.rerun() {
            Some("it is being run again, and is cancelled only once".to_owned())
        } else if !task.cancellable() {
            Some("its application does not offer to cancel it".to_owned())
        } else {
            (!self.port.borrow().is_open()).then(|| "its application is not connected".to_owned())
        };
        let age_ns = self.look.now_ns.saturating_sub(task.started_ns);
        let progress = (task.total > 0).then(|| rounded(100.0 * task.done as f64 / task.total as f64));
        Words {
            name: match label.is_empty() {
                true => format!("task {}", task.key),
                false => format!("task {} ({label})", task.key),
            },
            pid: Some(self.pid),
            about: About {
                what: Some(label).filter(|label| !label.is_empty()),
                kind: (task.flags & BACKGROUND != 0).then(|| "background".to_owned()),
                age_s: Some(rounded(age_ns as f64 / 1e9)),
                progress_pct: progress,
                not_cancellable: why,
                again: Some(if task.rerunnable() { "re-executable" } else { "not re-executable" }),
                ..About::default()
            },
        }
    }

    /// The index of a resource that has no record: what stands for the processors, the disk and the network, so that an application finds no
    /// name for it. Records are used from the first on.
    fn no_record(&self) -> u16 {
        let free = |&index: &u16| self.look.resource(index).is_none();
        (0..MOST_RESOURCES as u16).rev().find(free).unwrap_or(0)
    }

    fn of_task(&self, task: u64) -> Option<u64> {
        self.cancellations.iter().rev().find(|(_, of)| of.task == task).map(|(&id, _)| id)
    }
}

impl Source for Book {
    async fn look(&mut self, scene: &mut Scene) -> Result<Nanos, Trouble> {
        let now = clock::now();
        if now.since(self.pulse) >= PULSE {
            self.pulse = now;
            if !self.ledger.borrow().is_alive() {
                return Err(Trouble {
                    why: "its process has ended, or has closed it".to_owned(),
                    gone: true,
                });
            }
        }
        match self.read(now, scene) {
            Ok(()) => Ok(now),
            // No ledger any more: it is closed, and tried again as a new one.
            Err(refusal) => Err(Trouble { why: format!("its ledger: {refusal}"), gone: true }),
        }
    }

    fn judged(&mut self, state: State, exact: bool) -> Duration {
        if exact != self.exact {
            self.exact = exact;
            if let Err(refusal) = self.ledger.borrow().set_exact(exact) {
                self.warnings.push(format!("its ledger cannot be written: {refusal}"));
            }
        }
        if exact || state != State::Calm { TROUBLE } else { CALM }
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn resource(&self, index: u32) -> String {
        let own = index.checked_sub(FIRST).and_then(|index| self.look.resource(u16::try_from(index).ok()?));
        match (index, own) {
            (scene::CPU, _) => "processors".to_owned(),
            (scene::IO, _) => "disk and network".to_owned(),
            (_, Some(resource)) => resource.name.show().into_owned(),
            (_, None) => format!("resource {index}"),
        }
    }

    async fn words(&mut self, tasks: &[u64]) -> Vec<Words> {
        tasks.iter().map(|&task| self.words_of(task)).collect()
    }

    async fn cancel(&mut self, task: u64, resource: u32, reason: &str, tries: u32) -> Sent {
        if tries > 0 {
            // A task is told once. What became of it, its application says within five seconds.
            let of = self.of_task(task).and_then(|id| self.cancellations.get(&id));
            return match of {
                Some(of) if !of.acknowledged && tries > 2 => {
                    Sent::Failed("its application does not answer".to_owned())
                }
                Some(_) => Sent::Told,
                None => Sent::Failed("its application could not be told".to_owned()),
            };
        }
        let Some((index, turn)) = self.task(task).map(|task| (task.index, task.turn)) else {
            return Sent::Gone;
        };
        self.next += 1;
        let id = self.next;
        let own = resource.checked_sub(FIRST).and_then(|index| u16::try_from(index).ok());
        let resource = own.unwrap_or_else(|| self.no_record());
        let line = FromAgent::Cancel { id, task: index, turn, resource, text: reason.to_owned() };
        if !self.port.borrow_mut().say(&line) {
            return Sent::Failed("its application is not connected".to_owned());
        }
        if self.cancellations.len() >= REMEMBERED {
            self.cancellations.pop_first();
        }
        self.cancellations.insert(id, Cancellation { task, acknowledged: false, answered: false });
        Sent::Told
    }

    fn again(&mut self, again: Again) {
        let (task, rerun) = match again {
            Again::Rerun(task) => (task, true),
            Again::Abandon(task) => (task, false),
        };
        if let Some(id) = self.of_task(task) {
            let line = if rerun { FromAgent::Rerun { id } } else { FromAgent::Drop { id } };
            // If the application is not there to hear it, it decides by itself.
            self.port.borrow_mut().say(&line);
        }
    }

    fn outcomes(&mut self) -> Vec<(u64, Outcome, Option<String>)> {
        let mut outcomes = Vec::new();
        while let Some(line) = { self.port.borrow_mut().hear() } {
            match line {
                FromSdk::Acknowledge { id } => {
                    if let Some(of) = self.cancellations.get_mut(&id) {
                        of.acknowledged = true;
                    }
                }
                FromSdk::Outcome { id, outcome, text } => {
                    let Some(of) = self.cancellations.get_mut(&id).filter(|of| !of.answered) else {
                        continue;
                    };
                    (of.acknowledged, of.answered) = (true, true);
                    outcomes.push(match outcome {
                        Word::Cancelled => (of.task, Outcome::Cancelled, None),
                        Word::Finished | Word::Gone => (of.task, Outcome::Finished, None),
                        Word::Failed => (of.task, Outcome::Failed, Some(text)),
                    });
                }
                FromSdk::Reran { id } | FromSdk::Dropped { id } => {
                    self.cancellations.remove(&id);
                }
                FromSdk::Hello { .. } => {}
            }
        }
        outcomes
    }

    fn reaches(&self) -> bool {
        self.port.borrow().is_open()
    }

    fn is_silent(&self) -> bool {
        false
    }

    fn close(&mut self) {
        // The application clears it anyway when the heartbeat stays away.
        let _ = self.ledger.borrow().set_exact(false);
        self.port.borrow_mut().close();
    }
}

#[cfg(test)]
mod tests;
