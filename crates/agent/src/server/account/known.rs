//! A task from look to look: what it takes to find it again, and to know that it is the same.

use crate::host::Counters;

use super::super::backend::{Backend, State, Waits};
use super::super::chains::Pid;
use super::super::stamp::Stamp;
use super::held::Held;
use super::{Look, part};

use std::collections::HashSet;

use plimsoll_core::Nanos;

/// A task as it was last seen.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its number in scenes.
    pub id: u64,
    /// Its process.
    pub backend: Backend,
    /// Who waits for whom because of it: the longest such chain.
    pub chain: Vec<Pid>,
    /// How many wait because of it.
    pub holds_up: usize,
    /// Whether it only queues for what it holds up.
    pub queues: bool,
    /// How far it is, where that is known: done, of how much.
    pub progress: Option<(u64, u64)>,
    /// When it began.
    pub started: Stamp,
    /// What its processes did, as far as the kernel was asked.
    pub(super) used: Counters,
    /// For how long its statement has run: on a processor, where the kernel says so; else while it waited for nothing.
    pub(super) ran_ns: u64,
    pub(super) data_ns: u64,
    pub(super) wal_ns: u64,
    /// For how long it has waited for locks, and whether it did at the last look.
    pub(super) waited_ns: u64,
    waits: bool,
    /// The look at which it was last seen.
    pub(super) look: u64,
}

impl Known {
    /// One that is seen for the first time, at `now`.
    pub(super) fn new(id: u64, backend: &Backend, now: Stamp) -> Known {
        Known {
            id,
            backend: backend.clone(),
            chain: Vec::new(),
            holds_up: 0,
            queues: false,
            progress: None,
            started: backend.xact.or(backend.query).unwrap_or(now),
            used: Counters::default(),
            ran_ns: 0,
            data_ns: 0,
            wal_ns: 0,
            waited_ns: 0,
            waits: false,
            look: 0,
        }
    }

    /// Whether this process still does the same. A transaction is one task, however many statements it has; so is a statement, however many
    /// transactions it has (VACUUM).
    pub(super) fn is(&self, backend: &Backend) -> bool {
        let before = &self.backend;
        let xact = before.xact.is_some() && before.xact == backend.xact;
        let query = before.query == backend.query && before.state == backend.state;
        before.began == backend.began && (xact || query)
    }

    /// Takes in what a look shows of it.
    pub(super) fn seen(&mut self, look: &Look<'_>, backend: &Backend, held: &[Held], elapsed: Nanos) {
        if self.backend.query != backend.query {
            self.ran_ns = 0;
        }
        self.ran_ns = self.ran_ns.saturating_add(ran_ns(look, backend, elapsed));
        let waits = backend.waits == Some(Waits::Lock);
        let waited_ns = match (self.waits, waits) {
            (false, false) => 0,
            (false, true) => waits_ns(look, backend).unwrap_or(elapsed.0),
            // It may have got it just now: nobody is blamed for what he may not have had.
            (true, _) => elapsed.0,
        };
        self.waited_ns = self.waited_ns.saturating_add(waited_ns);
        self.waits = waits;
        self.backend = backend.clone();
        let says = look.progress.get(&backend.pid).copied();
        self.progress = says.or_else(|| self.expected(look));
        let longest = held.iter().max_by_key(|held| held.victims.len());
        self.chain = longest.map(|held| held.chain.clone()).unwrap_or_default();
        self.queues = longest.is_some_and(|held| held.queues.is_some());
        self.holds_up = held.iter().flat_map(|held| &held.victims).collect::<HashSet<_>>().len();
    }

    /// How far it is by what was expected of it. One that takes longer was misjudged, and might take any time.
    fn expected(&self, look: &Look<'_>) -> Option<(u64, u64)> {
        let active = self.backend.state == State::Active;
        let expected_ns = (look.expected_ns)(&self.backend).filter(|_| active)?;
        (self.ran_ns < expected_ns).then_some((self.ran_ns, expected_ns))
    }
}

/// For how long it has waited for a lock by now, where it is known who has that.
fn waits_ns(look: &Look<'_>, backend: &Backend) -> Option<u64> {
    let blame = look.blames.iter().find(|blame| blame.victim == backend.pid)?;
    Some(look.server.since_ns(blame.since?))
}

/// For how long a statement ran since the last look. A plan says how long a leader takes; its workers do their part beside it.
fn ran_ns(look: &Look<'_>, backend: &Backend, elapsed: Nanos) -> u64 {
    let age_ns = look.server.since_ns(backend.since());
    if look.on_host {
        let did = backend.process.and_then(|process| look.did.get(&process));
        did.map_or(0, |did| did.counters.part(part(did, age_ns)).ran_ns)
    } else if backend.state == State::Active && backend.waits.is_none() {
        elapsed.0.min(age_ns)
    } else {
        0
    }
}
