//! The discrete events: arrivals, a police where there is one, a gate, a FIFO queue, `P` processes, departures (Bouncer, Fig. 1;
//! Cataclysm, Fig. 2).
//!
//! Time jumps from event to event. At one instant, departures come before stalls, those before the ticks, those before the batches
//! that are due, and those before arrivals. Police and gate are the ones that decide in production; nothing here knows a policy.

use std::collections::VecDeque;
use std::iter::{Fuse, Peekable};

use plimsoll_admission::{Ask, Gate, Outcome};
use plimsoll_core::estimator::Wait;
use plimsoll_core::{ClassId, Grant, Nanos, Refusal, Rng, Verdict};
use plimsoll_policing::police::Police;

use crate::departures::Departures;
use crate::policed::{Held, Policed};

/// A request that comes to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When; never earlier than the one before.
    pub at: Nanos,
    /// Its class.
    pub class: ClassId,
    /// How long it takes once a process works on it.
    pub service: Nanos,
}

/// A request that was let in, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many came before it, let in or not.
    pub index: u64,
    /// As it came.
    pub arrival: Arrival,
    /// When it was let into the queue: on arrival, unless the police looked at it later.
    pub queued_at: Nanos,
    /// What let it in.
    pub grant: Grant,
    /// How long the gate expected it to wait.
    pub expected_wait: Nanos,
}

/// A span in which every process stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When it begins.
    pub at: Nanos,
    /// How long it lasts.
    pub lasts: Nanos,
}

/// What is simulated behind the gate.
#[derive(Clone, Debug)]
pub struct Server {
    /// Requests worked on at once, at least one.
    pub processes: u32,
    /// In rising order, none before the end of the one before.
    pub stalls: Vec<Stall>,
}

/// Who decides.
#[derive(Clone, Copy)]
pub struct Deciders<'a> {
    /// Which classes pass, where that is asked at all.
    pub police: Option<&'a Police>,
    /// Who may enter the queue.
    pub gate: &'a Gate,
    /// How busy the sentry itself is at a time, in 0..1; the police wants to know.
    pub sentry_busy: fn(Nanos) -> f64,
}

/// Sees everything that happens, in the order in which it happens.
pub trait Observer {
    /// A request came, after so many others.
    fn arrived(&mut self, _index: u64, _arrival: &Arrival) {}
    /// A request was turned away: on arrival, unless the police looked at it later.
    fn refused(&mut self, _index: u64, _arrival: &Arrival, _refusal: &Refusal) {}
    /// A request was let in. It waits, if only for a moment.
    fn admitted(&mut self, _request: &Request) {}
    /// A request that had been let in was dropped on leaving the queue.
    fn dropped(&mut self, _request: &Request, _refusal: &Refusal, _now: Nanos) {}
    /// A process took a request from the queue.
    fn started(&mut self, _request: &Request, _now: Nanos) {}
    /// A request was done.
    fn served(&mut self, _request: &Request, _started: Nanos, _now: Nanos) {}
    /// As many processes are at work from now on.
    fn busy(&mut self, _processes: u32, _now: Nanos) {}
}

#[derive(Clone, Copy)]
struct InService {
    request: Request,
    started: Nanos,
}

/// One run under way.
pub struct Engine<'a, T: Iterator<Item = Arrival>, O> {
    gate: &'a Gate,
    policed: Option<Policed<'a>>,
    observer: &'a mut O,
    traffic: Fuse<T>,
    /// The first that has not come yet.
    next: Option<Arrival>,
    stalls: Peekable<std::vec::IntoIter<Stall>>,
    tick_at: Nanos,
    /// The policies' draws.
    rng: Rng,
    /// How many came.
    arrived: u64,
    queue: VecDeque<Request>,
    departures: Departures,
    /// By process; empty where it is idle.
    in_service: Vec<Option<InService>>,
    idle: Vec<u32>,
    /// Processes that are there and may not work, for there are fewer servers than there could be.
    closed: Vec<u32>,
    /// Processes that are to close once they are done.
    closing: usize,
    /// When the stall under way ends, or the last one did.
    thaws: Nanos,
}

/// Puts `traffic` through the deciders and `server` until the last request is done, and tells `observer`. `rng` is for
/// what the policies draw.
pub fn run<O: Observer>(
    deciders: Deciders<'_>,
    server: &Server,
    traffic: impl Iterator<Item = Arrival>,
    rng: Rng,
    observer: &mut O,
) {
    Engine::new(deciders, server, traffic, rng, observer).advance(Nanos::MAX);
}

impl<'a, T: Iterator<Item = Arrival>, O: Observer> Engine<'a, T, O> {
    /// Nothing has happened yet.
    pub fn new(
        deciders: Deciders<'a>,
        server: &Server,
        traffic: T,
        rng: Rng,
        observer: &'a mut O,
    ) -> Engine<'a, T, O> {
        let processes = server.processes.max(1);
        let mut traffic = traffic.fuse();
        Engine {
            gate: deciders.gate,
            policed: deciders.police.map(|police| Policed::new(police, deciders)),
            observer,
            next: traffic.next(),
            traffic,
            stalls: server.stalls.clone().into_iter().peekable(),
            tick_at: Nanos::ZERO,
            rng,
            arrived: 0,
            queue: VecDeque::new(),
            departures: Departures::new(processes),
            in_service: vec![None; processes as usize],
            idle: (0..processes).rev().collect(),
            closed: Vec::new(),
            closing: 0,
            thaws: Nanos::ZERO,
        }
    }

    /// Goes on until nothing more happens before `until`.
    pub fn advance(&mut self, until: Nanos) {
        loop {
            let (departs_at, process) = self.departures.first();
            let arrives_at = self.next.map_or(Nanos::MAX, |arrival| arrival.at);
            let alarm = self.alarm_at();
            if departs_at.min(arrives_at).min(alarm) >= until {
                return;
            }
            if departs_at <= arrives_at && departs_at <= alarm {
                self.depart(process, departs_at);
            } else if alarm <= arrives_at {
                let held = self.policed.as_ref().is_some_and(|policed| policed.batch.waiting() > 0);
                if arrives_at == Nanos::MAX && departs_at == Nanos::MAX && !held {
                    return;
                }
                self.alarm(alarm);
            } else if let Some(arrival) = self.next {
                self.next = self.traffic.next();
                self.arrive(arrival);
            }
        }
    }

    /// When something is to be done next though nobody comes or goes.
    #[inline]
    fn alarm_at(&mut self) -> Nanos {
        let stalls_at = self.stalls.peek().map_or(Nanos::MAX, |stall| stall.at);
        let alarm = self.tick_at.min(stalls_at);
        self.policed.as_ref().map_or(alarm, |policed| alarm.min(policed.alarm_at()))
    }

    fn alarm(&mut self, now: Nanos) {
        if let Some(stall) = self.stalls.next_if(|stall| stall.at <= now) {
            self.departures.delay(stall.lasts);
            self.thaws = stall.at + stall.lasts;
        } else if self.tick_at <= now {
            self.tick_at = self.gate.tick(now);
        } else {
            let idle = self.is_idle();
            if self.policed.as_mut().is_some_and(|policed| !policed.tick(self.gate, idle, now)) {
                self.process(now);
            }
        }
    }

    /// Whether somebody has nothing to do. An idle process means an empty queue.
    fn is_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    #[inline]
    fn arrive(&mut self, arrival: Arrival) {
        let held = Held { index: self.arrived, arrival };
        self.arrived += 1;
        self.observer.arrived(held.index, &arrival);
        let idle = self.is_idle();
        match &mut self.policed {
            None => self.offer(&held, Verdict::Admit(Grant::Estimate), arrival.at),
            Some(policed) => {
                if let Some((held, verdict)) = policed.offer(self.gate, idle, held, &mut self.rng) {
                    self.offer(&held, verdict, arrival.at);
                }
            }
        }
    }

    /// Lets the police look at those that wait for it, and the gate at those that pass.
    fn process(&mut self, now: Nanos) {
        let idle = self.is_idle();
        let Some(policed) = &mut self.policed else { return };
        let mut answers = policed.process(self.gate, idle, now);
        for (held, verdict) in answers.drain(..) {
            self.offer(&held, verdict, now);
        }
        if let Some(policed) = &mut self.policed {
            policed.answers = answers;
        }
    }

    /// What the police has answered; where it lets the request pass, the gate is asked.
    #[inline]
    fn offer(&mut self, &Held { index, arrival }: &Held, passed: Verdict, now: Nanos) {
        let expected_wait = if self.queue.is_empty() { Nanos::ZERO } else { self.gate.expected_wait() };
        let verdict = match passed {
            Verdict::Refuse(_) => passed,
            Verdict::Admit(grant) => {
                let ask = Ask { promised: grant == Grant::Promise, ..Ask::of(arrival.class) };
                self.gate.offer(&ask, now, &mut self.rng)
            }
        };
        let grant = match verdict {
            Verdict::Refuse(refusal) => return self.observer.refused(index, &arrival, &refusal),
            Verdict::Admit(grant) => grant,
        };
        let request = Request { index, arrival, queued_at: now, grant, expected_wait };
        self.observer.admitted(&request);
        // An idle process means an empty queue.
        let Some(process) = self.idle.pop() else { return self.queue.push_back(request) };
        if self.start(process, request, now) {
            self.observer.busy(self.busy(), now);
        } else {
            self.idle.push(process);
        }
    }

    /// Lets `process` work on `request`, unless the gate drops it.
    #[inline]
    fn start(&mut self, process: u32, request: Request, now: Nanos) -> bool {
        let Arrival { class, service, .. } = request.arrival;
        if let Verdict::Refuse(refusal) = self.gate.start(class, now - request.queued_at, now) {
            self.observer.dropped(&request, &refusal, now);
            return false;
        }
        self.observer.started(&request, now);
        self.in_service[process as usize] = Some(InService { request, started: now });
        self.departures.set(process, now.max(self.thaws) + service);
        true
    }

    #[inline]
    fn depart(&mut self, process: u32, now: Nanos) {
        if let Some(InService { request, started }) = self.in_service[process as usize].take() {
            let wait = Wait { expected: request.expected_wait, actual: started - request.queued_at };
            self.gate.finish(request.arrival.class, wait, now - started, Outcome::Measured);
            self.observer.served(&request, started, now);
        }
        if self.closing > 0 {
            self.closing -= 1;
            self.departures.set(process, Nanos::MAX);
            self.closed.push(process);
            return self.observer.busy(self.busy(), now);
        }
        self.take_up(process, now);
        if self.is_idle() && self.policed.as_ref().is_some_and(|policed| policed.batch.waiting() > 0) {
            self.process(now);
        }
    }

    /// Lets `process` work on whoever is next.
    #[inline]
    fn take_up(&mut self, process: u32, now: Nanos) {
        while let Some(request) = self.queue.pop_front() {
            if self.start(process, request, now) {
                return;
            }
        }
        self.departures.set(process, Nanos::MAX);
        self.idle.push(process);
        self.observer.busy(self.busy(), now);
    }

    /// Changes how many processes there are; at most as many as it began with. Those that are too many and at work finish first.
    pub fn set_processes(&mut self, processes: u32, now: Nanos) {
        let wanted = (processes as usize).clamp(1, self.in_service.len());
        loop {
            let open = self.in_service.len() - self.closed.len() - self.closing;
            match open.cmp(&wanted) {
                std::cmp::Ordering::Equal => break,
                std::cmp::Ordering::Greater => match self.idle.pop() {
                    Some(process) => self.closed.push(process),
                    None => self.closing += 1,
                },
                std::cmp::Ordering::Less if self.closing > 0 => self.closing -= 1,
                std::cmp::Ordering::Less => {
                    let Some(process) = self.closed.pop() else { break };
                    self.take_up(process, now);
                    self.observer.busy(self.busy(), now);
                }
            }
        }
        self.gate.set_slots(wanted as u32);
    }

    /// Sees what has happened so far.
    pub fn observer(&mut self) -> &mut O {
        self.observer
    }

    fn busy(&self) -> u32 {
        (self.in_service.len() - self.idle.len() - self.closed.len()) as u32
    }
}
