//! The discrete events of an application: tasks come, take what they need, wait for what others have, and go; and somebody looks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use plimsoll_cancellation::{Controller, Scene};
use plimsoll_core::config::workload::{Arrivals, Step};
use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use rand::RngExt;

use super::account::Tally;
use super::case::{Case, Comes};
use super::fluid::Job;
use super::latencies::Latencies;
use super::live::{Burst, Cancelling, Doing, Live, Tasks};
use super::program::{DEPTH, Op};
use super::ran::{Act, Fate, Ran, Record};
use super::resource::State;
use crate::arrivals::Times;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// One of a class comes.
    Comes(u32),
    /// A task has slept enough.
    Wakes { task: u32, token: u32 },
    /// What was cancelled gets to know.
    Cancel { task: u64 },
    /// A heap has been collected.
    Collected(u32),
    /// Somebody looks.
    Look,
}

/// A task that was cancelled and may be run again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub class: u32,
    pub record: u32,
}

/// A run under way.
pub struct Engine<'a> {
    pub(super) case: &'a Case,
    pub(super) now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    seed: u64,
    /// Of each class, when the next ones come.
    times: Vec<Option<Times>>,
    /// Of each class, how many came.
    came: Vec<u64>,
    /// Of each record, how many of its class came before.
    nth: Vec<u64>,
    pub(super) tasks: Tasks,
    /// What those that were woken do next, in order.
    pub(super) ready: VecDeque<Job>,
    next_id: u64,
    pub(super) states: Vec<State>,
    pub(super) tallies: Vec<Tally>,
    /// Requests inside, and those outside that wait for a connection.
    inside: u32,
    outside: VecDeque<(u32, u32)>,
    /// Of requests that ended since the last look.
    pub(super) latencies: Latencies,
    /// What was cancelled and may be run again.
    pub(super) gone: BTreeMap<u64, Gone>,
    pub(super) ran: Ran,
}

/// Runs a case to its end: with what disturbs it or without, and with somebody who looks or without. The same seed gives the same
/// tasks, whoever looks.
pub fn run(case: &Case, seed: u64, disturbed: bool, controller: Option<&mut dyn Controller>) -> Ran {
    let mut engine = Engine::new(case, seed, disturbed);
    engine.go(controller);
    engine.ran
}

impl<'a> Engine<'a> {
    /// Nothing has happened yet.
    fn new(case: &'a Case, seed: u64, disturbed: bool) -> Engine<'a> {
        let classes = case.classes.len();
        let mut engine = Engine {
            case,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            order: 0,
            seed,
            times: Vec::with_capacity(classes),
            came: vec![0; classes],
            nth: Vec::new(),
            tasks: Tasks::default(),
            ready: VecDeque::new(),
            next_id: 1,
            states: case.resources.iter().map(|spec| State::new(spec.is, classes)).collect(),
            tallies: case
                .resources
                .iter()
                .map(|spec| Tally::new(spec.is.kind(), spec.is.capacity()))
                .collect(),
            inside: 0,
            outside: VecDeque::new(),
            latencies: Latencies::default(),
            gone: BTreeMap::new(),
            ran: Ran { records: Vec::new(), acts: Vec::new(), pauses: 0 },
        };
        engine.warm();
        for (i, class) in (0u32..).zip(&case.classes) {
            let comes = disturbed || !class.trigger;
            engine.times.push(None);
            match &class.comes {
                _ if !comes => {}
                Comes::Rate { per_s, from, until } => {
                    let rng = seeded(seed, 2 + u64::from(i));
                    let step = |start, factor| Step { start, factor };
                    let pattern = vec![step(Nanos::ZERO, 0.0), step(*from, 1.0), step(*until, 0.0)];
                    let mut times = Times::new(&Arrivals::Schedule(pattern), *per_s, rng);
                    let first = times.next();
                    engine.times[i as usize] = Some(times);
                    first.into_iter().for_each(|at| engine.at(at, Event::Comes(i)));
                }
                Comes::At { times, count } => {
                    for &at in times {
                        (0..*count).for_each(|_| engine.at(at, Event::Comes(i)));
                    }
                }
            }
        }
        engine
    }

    /// The application has been running for long: what its requests read is in its caches.
    fn warm(&mut self) {
        for (i, class) in (0u32..).zip(&self.case.classes) {
            for op in class.program.ops.iter().filter(|_| !class.trigger) {
                if let Op::Touch { pool, reads, .. } = op
                    && let State::Pages(pages, _) = &mut self.states[*pool as usize]
                    && !reads.in_order
                {
                    (reads.first..reads.first + reads.among).for_each(|page| {
                        pages.read(page, i);
                    });
                }
            }
        }
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, self.order, event)));
        self.order += 1;
    }

    fn go(&mut self, mut controller: Option<&mut dyn Controller>) {
        if let Some(controller) = &controller {
            self.at(controller.interval(), Event::Look);
        }
        let (mut scene, mut orders) = (Scene::default(), Vec::new());
        loop {
            while let Some(job) = self.ready.pop_front() {
                if self.tasks.of(job).is_some() {
                    self.go_on(job.task);
                }
            }
            let timer = self.events.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
            let shared =
                self.states.iter().enumerate().filter_map(|(i, state)| Some((state.fluid()?.next(), i)));
            let (done, which) = shared.min().unwrap_or((Nanos::MAX, 0));
            let next = timer.min(done);
            if next >= self.case.length {
                break;
            }
            self.now = next;
            if done <= timer {
                self.finish_work(which);
            } else if let Some(Reverse((_, _, event))) = self.events.pop() {
                match (event, &mut controller) {
                    (Event::Look, Some(controller)) => {
                        self.show(&mut scene);
                        controller.look(self.now, &scene, &mut orders);
                        orders.drain(..).for_each(|order| self.obey(order));
                        self.at(self.now + controller.interval(), Event::Look);
                    }
                    (event, _) => self.happen(event),
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Comes(class) => {
                let next = self.times[class as usize].as_mut().and_then(Times::next);
                next.into_iter().for_each(|at| self.at(at, Event::Comes(class)));
                self.comes(class);
            }
            Event::Wakes { task, token } => {
                if self.tasks.of(Job { task, token }).is_some() {
                    self.wake(task);
                }
            }
            Event::Cancel { task } => self.cancel_now(task),
            Event::Collected(heap) => self.collected(heap),
            Event::Look => {}
        }
    }

    fn comes(&mut self, class: u32) {
        let record = self.ran.records.len() as u32;
        let fate = Fate::Unfinished;
        self.ran.records.push(Record { class, came: self.now, ended: self.now, fate });
        self.nth.push(self.came[class as usize]);
        self.came[class as usize] += 1;
        if self.case.classes[class as usize].background || self.inside < self.case.connections {
            self.start(class, record, true);
        } else if self.outside.len() < self.case.backlog as usize {
            self.outside.push_back((class, record));
        } else {
            self.ran.records[record as usize].fate = Fate::Refused;
        }
    }

    /// What a task draws depends on which of its class it is and on nothing that happens to it.
    fn rng(&self, class: u32, nth: u64) -> Rng {
        seeded(self.seed, (u64::from(class) + 1) << 40 | nth)
    }

    /// A task gets inside.
    pub(super) fn start(&mut self, class: u32, record: u32, first: bool) {
        let spec = &self.case.classes[class as usize];
        if !spec.background {
            self.inside += 1;
        }
        let id = self.next_id;
        self.next_id += 1;
        let mut rng = self.rng(class, self.nth[record as usize]);
        let task = self.tasks.insert(Live {
            id,
            class,
            record,
            started: self.now,
            token: 0,
            doing: Doing::Ready,
            pc: 0,
            phase: 0,
            left: 0,
            loops: [0; DEPTH],
            depth: 0,
            // Two that read in order do not read the same.
            cursor: rng.random::<u32>() >> 1,
            evicting: false,
            burst: Burst::default(),
            done: 0,
            cancellable: spec.cancellable && first,
            rerunnable: spec.rerunnable && first,
            cancelling: Cancelling::No,
            pause: Nanos::ZERO,
            rng,
            accounts: Vec::new(),
        });
        self.wake(task);
    }

    /// A task is to go on.
    pub(super) fn wake(&mut self, task: u32) {
        let live = self.tasks.at(task);
        live.doing = Doing::Ready;
        self.ready.push_back(Job { task, token: live.token });
    }

    /// A task goes on when a time has passed.
    pub(super) fn sleep(&mut self, task: u32, time: Nanos) {
        let live = self.tasks.at(task);
        live.token = live.token.wrapping_add(1);
        live.doing = Doing::Asleep;
        let token = live.token;
        self.at(self.now + time, Event::Wakes { task, token });
    }

    /// A heap is collected for so long.
    pub(super) fn collect_for(&mut self, heap: u32, time: Nanos) {
        self.at(self.now + time, Event::Collected(heap));
    }

    /// A task is told to end in a while.
    pub(super) fn cancel_in(&mut self, task: u64, time: Nanos) {
        self.at(self.now + time, Event::Cancel { task });
    }

    /// A task ends, wherever it is, and leaves everything to others.
    pub(super) fn end(&mut self, task: u32, fate: Fate) {
        self.leave_work(task);
        self.leave_queue(task);
        self.give_back(task);
        let live = self.tasks.at(task);
        let (id, class, record, started) = (live.id, live.class, live.record, live.started);
        let rerunnable = live.rerunnable;
        self.tasks.remove(task);
        let entry = &mut self.ran.records[record as usize];
        (entry.fate, entry.ended) = (fate, self.now);
        if fate == Fate::Cancelled && rerunnable {
            self.gone.insert(id, Gone { class, record });
        }
        if self.case.classes[class as usize].background {
            return;
        }
        self.latencies.ended(self.now - started, fate == Fate::Done);
        self.inside -= 1;
        if self.inside < self.case.connections
            && let Some((class, record)) = self.outside.pop_front()
        {
            self.start(class, record, true);
        }
    }

    /// Writes down something that was done to a task.
    pub(super) fn act(&mut self, what: super::ran::Done, class: u32, task: u64) {
        self.ran.acts.push(Act { at: self.now, class, task, what });
    }
}
