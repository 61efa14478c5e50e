//! The learner: spans in, paths out.

use plimsoll_core::Nanos;

use super::api::Room;
use super::judge::{Entry, Judge, Operation, Request, Verdict};
use super::names::{NameId, Names, REST, Seeded};
use super::open::{Fate, Held, Open};
use super::operations::Operations;
use super::view::{Figures, Paths, view};
use super::{Limits, Span};

/// A service, until the next [`tick`](Learner::tick).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service(NameId);

/// Learns which services each API's requests visit.
pub struct Learner {
    open: Open,
    known: Known,
    judge: Judge,
    closing: Vec<Held>,
    limits: Limits,
    /// Whether anything arrived since the last tick.
    heard: bool,
    ticked: Option<Nanos>,
}

/// What has been learnt.
struct Known {
    names: Names,
    operations: Operations,
    /// Services that may still be added to branches.
    room: usize,
    branches: usize,
    /// Where requests enter, if the operator says so.
    entries: Option<Vec<NameId>>,
    figures: Figures,
    /// Time as it passes while something arrives: whoever hears nothing forgets nothing.
    clock: Nanos,
}

impl Learner {
    /// Knows nothing yet. `entries` are the services at which requests enter the fleet; none where the traces shall tell. `seed` is a
    /// secret, so that nobody can choose names that are slow to find.
    pub fn new(limits: Limits, entries: &[String], seed: u64) -> Learner {
        let hash = Seeded(seed);
        let mut names = Names::new(limits.names, hash);
        let entries =
            (!entries.is_empty()).then(|| entries.iter().map(|entry| names.intern(entry)).collect());
        Learner {
            open: Open::new(limits.open_spans, limits.spans_per_trace, hash),
            known: Known {
                names,
                operations: Operations::new(limits.operations, hash),
                room: limits.visits,
                branches: limits.branches,
                entries,
                figures: Figures::default(),
                clock: Nanos::ZERO,
            },
            judge: Judge::default(),
            closing: Vec::new(),
            limits,
            heard: false,
            ticked: None,
        }
    }

    /// A service by its name: asked once for all spans that come from it together.
    pub fn service(&mut self, name: &str) -> Service {
        Service(self.known.names.intern(name))
    }

    /// Takes in a span of a service.
    pub fn hear(&mut self, now: Nanos, Service(service): Service, span: &Span<'_>) {
        self.heard = true;
        let names = &mut self.known.names;
        let operation = span.operation.map_or(REST, |operation| names.intern(operation));
        let peer = span.peer.map_or(service, |peer| names.intern(peer));
        let held = Held::new(span, service, operation, peer);
        let figures = &mut self.known.figures;
        let counted = match self.open.take(now, span.trace, held) {
            Fate::Taken => &mut figures.spans,
            Fate::Late => &mut figures.late,
            Fate::LeftOut => &mut figures.left_out,
            Fate::NoRoom => &mut figures.no_room,
        };
        *counted += 1;
    }

    /// Judges the traces that have waited long enough, and lets what is seen no more fade. A few times a second.
    pub fn tick(&mut self, now: Nanos) {
        let since = now.since(self.ticked.replace(now).unwrap_or(now));
        // Where no ticks came for long, nobody knows when in that time something arrived.
        let passed = if std::mem::take(&mut self.heard) { since.min(self.limits.wait) } else { Nanos::ZERO };
        self.known.clock += passed;
        while self.open.close(now - self.limits.wait, &mut self.closing) {
            self.judge.judge(&mut self.closing, &mut self.known);
        }
        self.open.adapt(since, self.limits.wait);
        let Known { operations, room, clock, .. } = &mut self.known;
        operations.fade(*clock, passed, self.limits.half_life, self.limits.forget, room);
        if self.known.names.has_overflowed() {
            self.known.sweep(&self.open);
        }
    }

    /// What is known now.
    pub fn paths(&self) -> Paths {
        view(&self.known.operations, &self.known.names, self.figures())
    }

    /// What became of what arrived.
    pub fn figures(&self) -> Figures {
        Figures {
            turned_away: self.known.operations.turned_away,
            open_spans: self.open.len(),
            open_traces: self.open.traces(),
            taken_share: self.open.share(),
            names: self.known.names.len(),
            operations: self.known.operations.len(),
            ..self.known.figures
        }
    }
}

impl Known {
    /// Forgets the names that nothing refers to.
    fn sweep(&mut self, open: &Open) {
        let mut marks = self.names.marks();
        open.mark(&mut marks);
        for usage in self.operations.iter() {
            let own = [usage.operation.service, usage.operation.name].into_iter();
            own.chain(usage.api.names()).for_each(|name| marks[name as usize] = true);
        }
        self.entries.iter().flatten().for_each(|&entry| marks[entry as usize] = true);
        self.names.sweep(&marks);
    }
}

impl Verdict for Known {
    fn is_entry(&self, service: NameId) -> Option<bool> {
        self.entries.as_ref().map(|entries| entries.contains(&service))
    }

    fn inner(&mut self, operation: Operation) {
        let place = self.operations.place(operation, self.clock, &mut self.room);
        let usage = self.operations.at(place);
        (usage.inner, usage.seen) = (usage.inner + 1.0, self.clock);
    }

    fn request(&mut self, request: &Request<'_>) {
        let Request { operation, entry, failed, visited, worked } = *request;
        let place = self.operations.place(operation, self.clock, &mut self.room);
        let usage = self.operations.at(place);
        usage.seen = self.clock;
        match entry {
            Entry::Known => usage.known += 1.0,
            Entry::Remote => usage.remote += 1.0,
        }
        // Mostly it is called by somebody in the fleet, and so most likely was this time.
        if entry == Entry::Remote && !usage.is_entry() {
            self.figures.doubtful += 1;
            return;
        }
        self.figures.requests += 1;
        usage.recent += 1.0;
        let room = Room { branches: self.branches, visits: &mut self.room };
        usage.api.count(visited, worked, failed, room);
    }

    fn unplaced(&mut self, spans: usize) {
        self.figures.unplaced += spans as u64;
    }

    fn duplicates(&mut self, spans: usize) {
        self.figures.duplicates += spans as u64;
    }
}
