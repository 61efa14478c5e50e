//! Who wants to be told when a thread is about to be slowed too much.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::channel::Sender;
use hyper::body::Frame;
use plimsoll_cpufutures::TaskId;
use plimsoll_herald::Herald;
use plimsoll_herald::view::Task;
use serde_json::{Value, json};

use super::Refusal;
use super::selection::{Ports, Selection, Wanted};

/// The most at once.
const MOST: usize = 16;
/// Lines that may wait for one who reads slowly. Who falls further behind is cut off.
pub const LINES: usize = 256;
/// Threads that want less than that of a CPU are nobody's worry: a moment's wait slows them many times.
const LEAST_DESIRED_MS_PER_S: f64 = 1.0;
/// One that has been told of is below its bound again once it is so far below it, lest every swing is told.
const BELOW: f64 = 0.9;
/// How often it is looked anew which threads are meant, and how often a line is sent at least, so that either side notices when the other is gone.
const RESOLVE: Duration = Duration::from_secs(1);
const ALIVE: Duration = Duration::from_secs(10);

/// One of them.
pub struct Subscriber {
    selection: Selection,
    bound: f64,
    lines: Sender<Bytes, Infallible>,
    wanted: Wanted,
    /// Who has been told to be above the bound.
    above: HashSet<TaskId>,
    resolved: Duration,
    told: Duration,
}

impl Subscriber {
    /// Wants to be told of these when they are about to be slowed more than `bound`.
    pub fn new(selection: Selection, bound: f64, lines: Sender<Bytes, Infallible>) -> Subscriber {
        Subscriber {
            selection,
            bound,
            lines,
            wanted: Wanted::default(),
            above: HashSet::new(),
            resolved: Duration::ZERO,
            told: Duration::ZERO,
        }
    }

    /// Whether the line could be sent.
    fn send(&mut self, line: &Value) -> bool {
        self.told = Duration::ZERO;
        self.lines.try_send(Frame::data(format!("{line}\n").into())).is_ok()
    }

    /// Tells what has changed; returns whether it still listens.
    fn tell(&mut self, herald: &Herald, ports: &mut Ports) -> bool {
        let passed = herald.cost().period;
        (self.resolved, self.told) = (self.resolved + passed, self.told + passed);
        if self.resolved >= RESOLVE {
            self.resolved = Duration::ZERO;
            match self.selection.among(herald, ports) {
                Ok(wanted) => self.wanted = wanted,
                // It may be back soon: a server that is started anew.
                Err(_) => self.wanted = Wanted::none(),
            }
        }
        let mut lines = Vec::new();
        let bound = self.bound;
        for (id, found) in herald.futures().iter() {
            let Some(described) = herald.described(&id) else { continue };
            let was_above = self.above.contains(&id);
            let next = found.predicted_slowdown();
            let passes = next > bound && found.desired_ms_per_s >= LEAST_DESIRED_MS_PER_S;
            let event = match was_above {
                false if passes && self.wanted.has(&id, described) => "above",
                true if next < BELOW.mul_add(bound, 1.0 - BELOW) => "below",
                _ => continue,
            };
            if was_above {
                self.above.remove(&id)
            } else {
                self.above.insert(id)
            };
            let task = Task::new(id, &described.comm, &found);
            lines.push(json!({ "event": event, "bound": bound, "task": task }));
        }
        self.above.retain(|id| {
            let lives = herald.described(id).is_some();
            if !lives {
                lines.push(
                    json!({ "event": "gone", "bound": bound, "task": { "pid": id.pid, "tid": id.tid } }),
                );
            }
            lives
        });
        if lines.is_empty() && self.told >= ALIVE {
            lines.push(json!({ "event": "alive" }));
        }
        lines.iter().all(|line| self.send(line))
    }
}

/// All of them.
#[derive(Default)]
pub struct Subscribers(Vec<Subscriber>);

impl Subscribers {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more.
    ///
    /// # Errors
    /// Where there are too many, or nobody of those that it wants to know about.
    pub fn add(
        &mut self,
        mut subscriber: Subscriber,
        herald: &Herald,
        ports: &mut Ports,
    ) -> Result<(), Refusal> {
        if self.0.len() == MOST {
            let words = format!("{MOST} subscriptions are open, which is the most there may be; end one");
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, words));
        }
        subscriber.wanted = subscriber.selection.among(herald, ports)?;
        let report = subscriber.wanted.report(herald);
        let first = json!({ "event": "watching", "bound": subscriber.bound, "tasks": report.tasks.len() });
        if subscriber.send(&first) {
            self.0.push(subscriber);
        }
        Ok(())
    }

    /// Tells all what has changed. Those who have gone, or do not read, are dropped.
    pub fn tell(&mut self, herald: &Herald, ports: &mut Ports) {
        self.0.retain_mut(|subscriber| subscriber.tell(herald, ports));
    }
}
