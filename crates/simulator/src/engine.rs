//! The discrete events: arrivals, a gate, a FIFO queue, `P` processes, departures (Bouncer, Fig. 1).
//!
//! Time jumps from event to event. At one instant, departures come before the gate's ticks and those before
//! arrivals. The gate is the one that decides in production; nothing here knows a policy.

use std::collections::VecDeque;

use plimsoll_admission::{Ask, Gate, Outcome};
use plimsoll_core::estimator::Wait;
use plimsoll_core::{ClassId, Grant, Nanos, Refusal, Rng, Verdict};

use crate::departures::Departures;

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

/// Sees everything that happens, in the order in which it happens.
pub trait Observer {
    /// A request was turned away on arrival, after so many others had come.
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
struct Engine<'a, O> {
    gate: &'a Gate,
    observer: &'a mut O,
    /// The policy's draws.
    rng: Rng,
    /// How many came.
    arrived: u64,
    queue: VecDeque<Request>,
    departures: Departures,
    /// By process; empty where it is idle.
    in_service: Vec<Option<InService>>,
    idle: Vec<u32>,
    /// When the stall under way ends, or the last one did.
    thaws: Nanos,
}

/// Puts `traffic` through `gate` and `server` until the last request is done, and tells `observer`. `rng` is for
/// what the policy draws.
pub fn run<O: Observer>(
    gate: &Gate,
    server: &Server,
    mut traffic: impl Iterator<Item = Arrival>,
    rng: Rng,
    observer: &mut O,
) {
    let processes = server.processes.max(1);
    let mut engine = Engine {
        gate,
        observer,
        rng,
        arrived: 0,
        queue: VecDeque::new(),
        departures: Departures::new(processes),
        in_service: vec![None; processes as usize],
        idle: (0..processes).rev().collect(),
        thaws: Nanos::ZERO,
    };
    let mut stalls = server.stalls.iter().copied().peekable();
    let mut tick_at = Nanos::ZERO;
    let mut next = traffic.next();
    loop {
        let (departs_at, process) = engine.departures.first();
        let arrives_at = next.map_or(Nanos::MAX, |arrival| arrival.at);
        let stalls_at = stalls.peek().map_or(Nanos::MAX, |stall| stall.at);
        let alarm = tick_at.min(stalls_at);
        if departs_at <= arrives_at && departs_at <= alarm {
            if departs_at == Nanos::MAX {
                break;
            }
            engine.depart(process, departs_at);
        } else if alarm <= arrives_at {
            if arrives_at == Nanos::MAX && departs_at == Nanos::MAX {
                break;
            }
            if stalls_at <= tick_at {
                stalls.next().into_iter().for_each(|stall| engine.stall(stall));
            } else {
                tick_at = gate.tick(tick_at);
            }
        } else if let Some(arrival) = next {
            engine.arrive(arrival);
            next = traffic.next();
        }
    }
}

impl<O: Observer> Engine<'_, O> {
    #[inline]
    fn arrive(&mut self, arrival: Arrival) {
        let index = self.arrived;
        self.arrived += 1;
        let expected_wait = if self.queue.is_empty() { Nanos::ZERO } else { self.gate.expected_wait() };
        let grant = match self.gate.offer(&Ask::of(arrival.class), arrival.at, &mut self.rng) {
            Verdict::Refuse(refusal) => return self.observer.refused(index, &arrival, &refusal),
            Verdict::Admit(grant) => grant,
        };
        let request = Request { index, arrival, grant, expected_wait };
        self.observer.admitted(&request);
        // An idle process means an empty queue.
        let Some(process) = self.idle.pop() else { return self.queue.push_back(request) };
        if self.start(process, request, arrival.at) {
            self.observer.busy(self.busy(), arrival.at);
        } else {
            self.idle.push(process);
        }
    }

    /// Lets `process` work on `request`, unless the gate drops it.
    #[inline]
    fn start(&mut self, process: u32, request: Request, now: Nanos) -> bool {
        let Arrival { at, class, service } = request.arrival;
        if let Verdict::Refuse(refusal) = self.gate.start(class, now - at, now) {
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
            let Arrival { at, class, .. } = request.arrival;
            let wait = Wait { expected: request.expected_wait, actual: started - at };
            self.gate.finish(class, wait, now - started, Outcome::Measured);
            self.observer.served(&request, started, now);
        }
        while let Some(request) = self.queue.pop_front() {
            if self.start(process, request, now) {
                return;
            }
        }
        self.departures.set(process, Nanos::MAX);
        self.idle.push(process);
        self.observer.busy(self.busy(), now);
    }

    fn stall(&mut self, stall: Stall) {
        self.departures.delay(stall.lasts);
        self.thaws = stall.at + stall.lasts;
    }

    fn busy(&self) -> u32 {
        (self.in_service.len() - self.idle.len()) as u32
    }
}
