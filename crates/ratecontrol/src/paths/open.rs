//! Traces that wait for their pieces: spans of many services come in pieces, in any order, over seconds.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

use plimsoll_core::Nanos;

use super::names::{NameId, Seeded};
use super::{Kind, Span};

/// Places in which closed traces are remembered; the next one there takes the place.
const CLOSED: usize = 1 << 18;
/// No more than every 65,536th trace is left out.
const MOST_HALVINGS: u32 = 16;
/// Fewer traces are taken when more than this part of the room would be needed, and more again when less than that.
const FULL: f64 = 0.75;
const ROOMY: f64 = 0.6;
const NOBODY: u32 = u32::MAX;

/// A span that waits.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub id: u64,
    pub parent: u64,
    pub service: NameId,
    pub operation: NameId,
    /// Who was called; `peer == service` where nobody said.
    pub peer: NameId,
    pub kind: Kind,
    pub failed: bool,
    /// The lower bits of when it began, and how long it took; zero where that is not known. In microseconds by its sender's clock.
    pub start_us: u32,
    pub took_us: u32,
    /// The next span of its trace, or the next free place.
    next: u32,
}

struct Trace {
    first: u32,
    spans: u32,
}

/// What became of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits.
    Taken,
    /// Its trace was judged before it came.
    Late,
    /// Its trace is one of those that are left out while there are too many.
    LeftOut,
    /// There is no room for it, or its trace has too many.
    NoRoom,
}

/// All of them. Spans are in one array, those of a trace linked: the memory is what it is made with, whatever comes.
pub struct Open {
    spans: Vec<Held>,
    free: u32,
    held: usize,
    traces: HashMap<u128, Trace, Seeded>,
    /// The traces, in the order in which they close.
    queue: VecDeque<(Nanos, u128)>,
    /// Hashes of closed traces, each at its place.
    closed: Box<[u64]>,
    /// How often the share of traces that are taken has been halved.
    halvings: u32,
    /// Spans that came since that was last considered, and a second.
    offered: u64,
    offered_per_s: f64,
    hash: Seeded,
    most: usize,
    most_of_one: usize,
}

impl Open {
    /// None yet.
    pub fn new(most: usize, most_of_one: usize, hash: Seeded) -> Open {
        Open {
            spans: Vec::new(),
            free: NOBODY,
            held: 0,
            traces: HashMap::with_hasher(hash),
            queue: VecDeque::new(),
            closed: vec![0; CLOSED].into_boxed_slice(),
            halvings: 0,
            offered: 0,
            offered_per_s: 0.0,
            hash,
            most: most.clamp(1, NOBODY as usize),
            most_of_one,
        }
    }

    /// Takes in a span of a trace.
    pub fn take(&mut self, now: Nanos, trace: u128, span: Held) -> Fate {
        self.offered += 1;
        if let Some(open) = self.traces.get_mut(&trace) {
            if open.spans as usize >= self.most_of_one {
                return Fate::NoRoom;
            }
            let Some(place) =
                place(&mut self.spans, &mut self.free, self.most, Held { next: open.first, ..span })
            else {
                return Fate::NoRoom;
            };
            (open.first, open.spans) = (place, open.spans + 1);
            self.held += 1;
            return Fate::Taken;
        }
        let hash = self.hash.hash_one(trace) | 1;
        if self.closed[self.at(hash)] == hash {
            return Fate::Late;
        }
        // The same for all pieces of a trace, wherever they come from.
        if hash.leading_zeros() < self.halvings {
            return Fate::LeftOut;
        }
        let Some(place) = place(&mut self.spans, &mut self.free, self.most, Held { next: NOBODY, ..span })
        else {
            return Fate::NoRoom;
        };
        self.held += 1;
        self.traces.insert(trace, Trace { first: place, spans: 1 });
        self.queue.push_back((now, trace));
        Fate::Taken
    }

    /// The spans of the next trace that was opened before `until`, in any order, into `out`; `false` where there is none.
    pub fn close(&mut self, until: Nanos, out: &mut Vec<Held>) -> bool {
        out.clear();
        let Some((_, trace)) = self.queue.pop_front_if(|(opened, _)| *opened < until) else { return false };
        let Some(closed) = self.traces.remove(&trace) else { return true };
        let mut next = closed.first;
        while next != NOBODY {
            let span = self.spans[next as usize];
            out.push(span);
            self.spans[next as usize].next = self.free;
            self.free = next;
            next = span.next;
        }
        self.held -= out.len();
        let hash = self.hash.hash_one(trace) | 1;
        let at = self.at(hash);
        self.closed[at] = hash;
        true
    }

    /// Takes fewer traces where all that arrive would not fit, and more where they would. `passed` is the time since the last call, `wait`
    /// how long a trace stays. It goes by what arrives rather than by what is held: that shows what was decided only when `wait` is over.
    pub fn adapt(&mut self, passed: Nanos, wait: Nanos) {
        if passed == Nanos::ZERO {
            return;
        }
        let per_s = std::mem::take(&mut self.offered) as f64 / passed.as_secs_f64();
        self.offered_per_s += (per_s - self.offered_per_s) * passed.as_secs_f64().min(1.0);
        let most = self.most as f64;
        let held = |halvings: u32| self.offered_per_s * wait.as_secs_f64() * 0.5f64.powi(halvings as i32);
        while held(self.halvings) > FULL * most && self.halvings < MOST_HALVINGS {
            self.halvings += 1;
        }
        while self.halvings > 0 && held(self.halvings - 1) < ROOMY * most {
            self.halvings -= 1;
        }
    }

    /// The share of traces that are taken, in 0..1.
    pub fn share(&self) -> f64 {
        0.5f64.powi(self.halvings as i32)
    }

    /// Spans that wait.
    pub fn len(&self) -> usize {
        self.held
    }

    /// Traces that wait.
    pub fn traces(&self) -> usize {
        self.traces.len()
    }

    /// Marks every name that a span refers to.
    pub fn mark(&self, is_used: &mut [bool]) {
        for trace in self.traces.values() {
            let mut next = trace.first;
            while let Some(span) = self.spans.get(next as usize) {
                [span.service, span.operation, span.peer]
                    .into_iter()
                    .for_each(|name| is_used[name as usize] = true);
                next = span.next;
            }
        }
    }

    /// The lower bits choose the place of a closed trace, the upper ones who is left out.
    fn at(&self, hash: u64) -> usize {
        (hash >> 1) as usize % CLOSED
    }
}

/// Puts a span into a free place, or a new one.
fn place(spans: &mut Vec<Held>, free: &mut u32, most: usize, span: Held) -> Option<u32> {
    if let Some(held) = spans.get_mut(*free as usize) {
        let place = std::mem::replace(free, held.next);
        *held = span;
        return Some(place);
    }
    if spans.len() >= most {
        return None;
    }
    spans.push(span);
    Some((spans.len() - 1) as u32)
}

impl Held {
    /// Not in any trace yet.
    pub fn new(span: &Span<'_>, service: NameId, operation: NameId, peer: NameId) -> Held {
        let Span { id, parent, kind, failed, began_ns, ended_ns, .. } = *span;
        // What took longer than half an hour is no request.
        let took_us = ended_ns.saturating_sub(began_ns).div_ceil(1_000);
        let took_us = if began_ns > 0 && took_us <= i32::MAX as u64 { took_us as u32 } else { 0 };
        let start_us = (began_ns / 1_000) as u32;
        Held { id, parent, service, operation, peer, kind, failed, start_us, took_us, next: NOBODY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u64) -> Held {
        Held::new(&Span { id, kind: Kind::Serves, ..Span::default() }, 0, 0, 0)
    }

    fn ids(spans: &[Held]) -> Vec<u64> {
        let mut ids: Vec<u64> = spans.iter().map(|span| span.id).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn pieces_of_a_trace_come_together_and_late_ones_are_known() {
        let (mut open, mut out) = (Open::new(100, 100, Seeded(7)), Vec::new());
        for (at, trace, id) in [(0, 1, 10), (1, 2, 20), (2, 1, 11), (3, 2, 21), (4, 1, 12)] {
            assert_eq!(open.take(Nanos(at), trace, span(id)), Fate::Taken);
        }
        assert_eq!((open.traces(), open.len()), (2, 5));
        assert!(!open.close(Nanos(0), &mut out));
        assert!(open.close(Nanos(1), &mut out));
        assert_eq!(ids(&out), [10, 11, 12]);
        assert!(!open.close(Nanos(1), &mut out));
        assert_eq!(open.take(Nanos(9), 1, span(13)), Fate::Late);
        assert!(open.close(Nanos(2), &mut out));
        assert_eq!((ids(&out), open.len()), (vec![20, 21], 0));
    }

    #[test]
    fn memory_is_what_it_was_made_with_and_places_are_used_again() {
        let (mut open, mut out) = (Open::new(10, 4, Seeded(7)), Vec::new());
        for round in 0..1_000u64 {
            let fates: Vec<Fate> = (0..20)
                .map(|i| open.take(Nanos(round), u128::from(round * 100 + i / 5), span(1 + i)))
                .collect();
            assert_eq!(fates.iter().filter(|&&fate| fate == Fate::Taken).count(), 10, "{fates:?}");
            while open.close(Nanos::MAX, &mut out) {
                assert!(out.len() <= 4);
            }
            assert_eq!((open.len(), open.traces(), open.spans.len()), (0, 0, 10));
        }
    }

    #[test]
    fn when_there_are_too_many_whole_traces_are_left_out() {
        let (mut open, wait) = (Open::new(1_000, 100, Seeded(7)), Nanos::from_secs(10));
        let second = |open: &mut Open, at: u64, spans: u64| -> usize {
            let mut whole = 0;
            for trace in 0..spans / 2 {
                let trace = u128::from(at * 1_000_000 + trace);
                let fates = [1, 2].map(|id| open.take(Nanos::from_secs(at), trace, span(id)));
                assert!(fates[0] == fates[1], "{fates:?}");
                whole += usize::from(fates[0] == Fate::Taken);
            }
            while open.close(Nanos::from_secs(at) - wait, &mut Vec::new()) {}
            open.adapt(Nanos::from_secs(1), wait);
            whole
        };
        // 400 a second for 10 s are 4,000, of which an eighth is 500.
        let taken: Vec<usize> = (1..60).map(|at| second(&mut open, at, 400)).collect();
        assert_eq!((open.share(), taken[0]), (0.125, 200));
        assert!(taken[30..].iter().all(|taken| (10..=45).contains(taken)), "{taken:?}");
        assert!((60..80).all(|at| second(&mut open, at, 20) <= 10) && open.share() == 1.0);
    }
}
