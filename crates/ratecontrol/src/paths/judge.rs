//! What one trace says: where its requests entered, and which services each of them visited.

use super::Kind;
use super::names::NameId;
use super::open::Held;
use super::own::{OwnTimes, Worked};

/// No span.
pub const NOBODY: u32 = u32::MAX;

/// An operation of a service: `GET /cart` of `frontend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation {
    pub service: NameId,
    pub name: NameId,
}

/// How sure it is that a request entered the fleet there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing is above it, or nothing that serves; or the operator says that requests enter at this service.
    Known,
    /// Another process is above it that sent no span: a client that is traced elsewhere, or a server whose span is lost.
    Remote,
}

/// A service that a request visited, and how often.
pub type Visited = (NameId, u32);

/// A request, as its trace shows it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where it entered,
    pub operation: Operation,
    /// and how sure that is.
    pub entry: Entry,
    /// Whether it ended in an error.
    pub failed: bool,
    /// The services that it visited, in order of their numbers, each once.
    pub visited: &'a [Visited],
    /// Those of them of which it is known how long they worked for it, likewise.
    pub worked: &'a [Worked],
}

/// What a trace is asked for.
pub trait Verdict {
    /// Where requests enter, if the operator says so.
    fn is_entry(&self, service: NameId) -> Option<bool>;
    /// Somebody in the fleet called this operation.
    fn inner(&mut self, operation: Operation);
    /// A request.
    fn request(&mut self, request: &Request<'_>);
    /// So many spans of nobody's request: where it entered is not known.
    fn unplaced(&mut self, spans: usize);
    /// So many spans came twice.
    fn duplicates(&mut self, spans: usize);
}

/// How the walk from a span upwards ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// It was not begun yet.
    Unknown,
    /// The walk has been here and has not ended.
    Walking,
    /// At a span without a parent.
    Root,
    /// At a span whose parent is missing, or in a circle.
    Torn,
}

/// Where a span belongs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The span that caused it.
    pub parent: u32,
    /// How far one gets from here.
    pub top: Top,
    /// The topmost span above it, or itself, at which a request can have entered.
    pub entry: u32,
    /// The next span above it, or itself, by which the same service served.
    pub server: u32,
    /// It called somebody whose span is here.
    pub is_answered: bool,
}

/// Judges one trace after the other; keeps its arrays. A trace of n spans takes n log n, whatever they are.
#[derive(Default)]
pub struct Judge {
    places: Vec<Place>,
    way: Vec<u32>,
    /// In order.
    entries: Vec<(u32, Entry)>,
    /// Entry and span.
    members: Vec<(u32, u32)>,
    /// Service, and whether it is a call rather than a sign of one.
    calls: Vec<(NameId, bool)>,
    visited: Vec<Visited>,
    own_times: OwnTimes,
    worked: Vec<Worked>,
}

impl Judge {
    /// Judges one trace. The order of `spans` is lost.
    pub fn judge(&mut self, spans: &mut Vec<Held>, verdict: &mut impl Verdict) {
        let all = spans.len();
        // Exporters that were not answered send again.
        spans.sort_unstable_by_key(|span| span.id);
        spans.dedup_by_key(|span| span.id);
        verdict.duplicates(all - spans.len());
        self.link(spans);
        (0..spans.len() as u32).for_each(|at| self.climb(spans, at, verdict));
        self.find_entries(spans, verdict);
        self.own_times.look(spans, &self.places);
        self.gather();
        let members = std::mem::take(&mut self.members);
        let mut unplaced = 0;
        for of_one in members.chunk_by(|a, b| a.0 == b.0) {
            match self.entries.binary_search_by_key(&of_one[0].0, |(entry, _)| *entry) {
                Ok(at) => self.report(spans, self.entries[at], of_one, verdict),
                Err(_) => unplaced += of_one.len(),
            }
        }
        verdict.unplaced(unplaced);
        self.members = members;
    }

    /// Finds each span's parent.
    fn link(&mut self, spans: &[Held]) {
        self.places.clear();
        self.places.extend(spans.iter().map(|span| {
            let parent = match span.parent {
                0 => None,
                id => spans.binary_search_by_key(&id, |span| span.id).ok(),
            };
            let parent = parent.map_or(NOBODY, |at| at as u32);
            Place { parent, top: Top::Unknown, entry: NOBODY, server: NOBODY, is_answered: false }
        }));
        for (at, span) in spans.iter().enumerate() {
            let parent = self.places[at].parent;
            if span.kind == Kind::Serves && parent != NOBODY {
                self.places[parent as usize].is_answered = true;
            }
        }
    }

    /// Finds where a span belongs: up to what is known, and down again.
    fn climb(&mut self, spans: &[Held], from: u32, verdict: &mut impl Verdict) {
        let (mut at, mut entry, mut server, mut is_circle) = (from, NOBODY, NOBODY, false);
        let top = loop {
            let place = &mut self.places[at as usize];
            match place.top {
                Top::Unknown => place.top = Top::Walking,
                Top::Walking => {
                    is_circle = true;
                    break Top::Torn;
                }
                top => {
                    (entry, server) = (place.entry, place.server);
                    break top;
                }
            }
            self.way.push(at);
            match place.parent {
                NOBODY if spans[at as usize].parent == 0 => break Top::Root,
                NOBODY => break Top::Torn,
                parent => at = parent,
            }
        };
        while let Some(at) = self.way.pop() {
            let span = &spans[at as usize];
            if span.kind == Kind::Serves && !is_circle {
                if entry != NOBODY {
                    verdict.inner(Operation { service: span.service, name: span.operation });
                } else if verdict.is_entry(span.service).unwrap_or(true) {
                    entry = at;
                }
            }
            server = match span.kind {
                Kind::Serves => at,
                _ if spans.get(server as usize).is_some_and(|above| above.service == span.service) => server,
                _ => NOBODY,
            };
            let place = &mut self.places[at as usize];
            (place.top, place.entry, place.server) = (top, entry, server);
        }
    }

    /// Where requests entered: those that are known, or else those that may be.
    fn find_entries(&mut self, spans: &[Held], verdict: &impl Verdict) {
        self.entries.clear();
        let mut knows_any = false;
        for (at, place) in (0..).zip(&self.places).filter(|(at, place)| place.entry == *at) {
            let entry = match place.top {
                Top::Root => Entry::Known,
                _ if verdict.is_entry(spans[at as usize].service) == Some(true) => Entry::Known,
                _ if place.parent == NOBODY => Entry::Remote,
                // Between it and what is missing there are spans of its caller: that is where it entered, and it is what is missing.
                _ => continue,
            };
            knows_any |= entry == Entry::Known;
            self.entries.push((at, entry));
        }
        if knows_any {
            self.entries.retain(|(_, entry)| *entry == Entry::Known);
        }
    }

    /// Puts the spans of each entry together. What is torn off belongs to the only request there is, if there is only one.
    fn gather(&mut self) {
        let alone = match self.entries.as_slice() {
            [(only, _)] => Some(*only),
            _ => None,
        };
        self.members.clear();
        self.members.extend((0..).zip(&self.places).map(|(at, place)| match alone {
            Some(only) if place.top == Top::Torn => (only, at),
            _ => (place.entry, at),
        }));
        self.members.sort_unstable();
    }

    /// What the request that entered there visited.
    fn report(
        &mut self,
        spans: &[Held],
        (entry, how): (u32, Entry),
        members: &[(u32, u32)],
        verdict: &mut impl Verdict,
    ) {
        self.calls.clear();
        for &(_, at) in members {
            let (span, place) = (&spans[at as usize], &self.places[at as usize]);
            self.calls.push((span.service, span.kind == Kind::Serves));
            if span.peer != span.service && !place.is_answered {
                self.calls.push((span.peer, true));
            }
        }
        self.calls.sort_unstable();
        self.visited.clear();
        self.visited.extend(self.calls.chunk_by(|a, b| a.0 == b.0).map(|of_one| {
            // Of one whose serving spans are missing it is known that it was called.
            (of_one[0].0, of_one.iter().filter(|(_, is_call)| *is_call).count().max(1) as u32)
        }));
        self.worked.clear();
        self.own_times.add(spans, &self.places, members, &mut self.worked);
        let span = &spans[entry as usize];
        verdict.request(&Request {
            operation: Operation { service: span.service, name: span.operation },
            entry: how,
            failed: span.failed,
            visited: &self.visited,
            worked: &self.worked,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::Span;
    use super::*;
    use Kind::{Calls, Internal, Serves};

    /// What was said, and the services where requests enter, if that is said.
    #[derive(Default)]
    struct Heard {
        entries: Option<Vec<NameId>>,
        requests: Vec<(NameId, Entry, bool, Vec<Visited>)>,
        worked: Vec<Worked>,
        inner: Vec<NameId>,
        unplaced: usize,
        duplicates: usize,
    }

    impl Verdict for Heard {
        fn is_entry(&self, service: NameId) -> Option<bool> {
            self.entries.as_ref().map(|entries| entries.contains(&service))
        }
        fn inner(&mut self, operation: Operation) {
            self.inner.push(operation.service);
        }
        fn request(&mut self, request: &Request<'_>) {
            let Request { operation, entry, failed, visited, worked } = *request;
            self.worked.extend(worked);
            self.requests.push((operation.service, entry, failed, visited.to_vec()));
        }
        fn unplaced(&mut self, spans: usize) {
            self.unplaced += spans;
        }
        fn duplicates(&mut self, spans: usize) {
            self.duplicates += spans;
        }
    }

    fn judge(entries: Option<Vec<NameId>>, spans: &[(u64, u64, NameId, Kind)]) -> Heard {
        let held = |&(id, parent, service, kind): &(u64, u64, NameId, Kind)| {
            Held::new(&Span { id, parent, kind, ..Span::default() }, service, 100 + service, service)
        };
        let mut heard = Heard { entries, ..Heard::default() };
        Judge::default().judge(&mut spans.iter().map(held).collect(), &mut heard);
        heard
    }

    /// A frontend (1) that calls a cart (2) twice and a catalogue (3), which calls a database (4).
    const SHOP: [(u64, u64, NameId, Kind); 9] = [
        (1, 0, 1, Serves),
        (2, 1, 1, Calls),
        (3, 2, 2, Serves),
        (4, 1, 1, Calls),
        (5, 4, 2, Serves),
        (6, 1, 1, Calls),
        (7, 6, 3, Serves),
        (8, 7, 3, Calls),
        (9, 8, 4, Serves),
    ];
    const ALL: [Visited; 4] = [(1, 1), (2, 2), (3, 1), (4, 1)];

    #[test]
    fn a_whole_trace_is_one_request_in_whatever_order() {
        for shift in 0..SHOP.len() {
            let mut spans = SHOP;
            spans.rotate_left(shift);
            let heard = judge(None, &spans);
            assert_eq!(heard.requests, [(1, Entry::Known, false, ALL.to_vec())]);
            assert_eq!((heard.inner.len(), heard.unplaced, heard.duplicates), (4, 0, 0));
        }
    }

    #[test]
    fn a_missing_span_costs_a_call_and_no_service_that_sent_another() {
        for missing in 1..SHOP.len() {
            let mut spans = SHOP.to_vec();
            let gone = spans.remove(missing);
            let heard = judge(None, &spans);
            let [(1, Entry::Known, false, visited)] = heard.requests.as_slice() else {
                panic!("{heard:?}", heard = heard.requests)
            };
            let expected = ALL.map(|(service, calls)| match (service == gone.2, gone.3) {
                (true, Serves) if [2, 3].contains(&service) => (service, calls.max(2) - 1),
                _ => (service, calls),
            });
            let expected: Vec<Visited> =
                expected.into_iter().filter(|(service, _)| gone.0 != 9 || *service != 4).collect();
            assert_eq!(*visited, expected, "without {gone:?}");
        }
    }

    #[test]
    fn without_the_span_it_entered_by_a_trace_says_nothing_of_an_api() {
        let heard = judge(None, &SHOP[1..]);
        assert!(heard.requests.is_empty(), "{:?}", heard.requests);
        assert_eq!(heard.unplaced, 8);
    }

    #[test]
    fn a_client_that_is_traced_is_no_part_of_the_path() {
        let mut spans = SHOP.to_vec();
        spans[0].1 = 50;
        spans.extend([(50, 51, 9, Calls), (51, 0, 9, Internal)]);
        assert_eq!(judge(None, &spans).requests, [(1, Entry::Known, false, ALL.to_vec())]);
    }

    #[test]
    fn a_client_that_is_traced_elsewhere_makes_the_entry_remote_unless_somebody_knows() {
        let mut spans = SHOP.to_vec();
        spans[0].1 = 50;
        assert_eq!(judge(None, &spans).requests, [(1, Entry::Remote, false, ALL.to_vec())]);
        assert_eq!(judge(Some(vec![1]), &spans).requests, [(1, Entry::Known, false, ALL.to_vec())]);
        let heard = judge(Some(vec![3]), &spans);
        assert_eq!(heard.requests[0].0, 3);
    }

    #[test]
    fn several_requests_in_one_trace_are_told_apart() {
        let page = [
            (1, 0, 9, Internal),
            (2, 1, 1, Serves),
            (3, 2, 2, Serves),
            (4, 1, 1, Serves),
            (5, 4, 3, Serves),
            (6, 77, 4, Serves),
        ];
        let heard = judge(None, &page);
        let expected =
            [(1, Entry::Known, false, vec![(1, 1), (2, 1)]), (1, Entry::Known, false, vec![(1, 1), (3, 1)])];
        assert_eq!(heard.requests, expected);
        assert_eq!(heard.unplaced, 2);
    }

    #[test]
    fn circles_end_and_what_came_twice_counts_once() {
        let mut spans = SHOP.to_vec();
        spans.extend(SHOP);
        let heard = judge(None, &spans);
        assert_eq!((heard.requests[0].3.as_slice(), heard.duplicates), (ALL.as_slice(), 9));

        let circle =
            [(1, 2, 1, Serves), (2, 3, 2, Serves), (3, 1, 3, Calls), (4, 1, 4, Serves), (5, 5, 5, Serves)];
        let heard = judge(None, &circle);
        assert_eq!((heard.requests.len(), heard.unplaced), (0, 5));
        let beside = [&circle[..], &[(6, 0, 6, Serves)]].concat();
        assert_eq!(judge(None, &beside).requests[0].3.len(), 6);
    }

    /// Spans with their times in milliseconds, and the service that each calls.
    fn own_times(spans: &[(u64, u64, NameId, NameId, Kind, u64, u64)]) -> Vec<Worked> {
        let held =
            |&(id, parent, service, peer, kind, from, to): &(u64, u64, NameId, NameId, Kind, u64, u64)| {
                let (began_ns, ended_ns) = (from * 1_000_000, to * 1_000_000);
                let span = Span { id, parent, kind, began_ns, ended_ns, ..Span::default() };
                Held::new(&span, service, 100 + service, peer)
            };
        let mut heard = Heard::default();
        Judge::default().judge(&mut spans.iter().map(held).collect(), &mut heard);
        heard.worked
    }

    #[test]
    fn own_time_is_what_is_not_waited_for_others() {
        // A frontend (1) that calls a cart (2) and, before that answers, a catalogue (3), whose clock is a day fast and which calls a
        // database (4).
        const DAY: u64 = 86_400_000;
        let shop = [
            (1, 0, 1, 1, Serves, 1_000, 1_100),
            (2, 1, 1, 1, Calls, 1_010, 1_030),
            (3, 2, 2, 2, Serves, 1_012, 1_028),
            (4, 1, 1, 1, Internal, 1_015, 1_070),
            (5, 4, 1, 1, Calls, 1_020, 1_060),
            (6, 5, 3, 3, Serves, DAY + 1_021, DAY + 1_059),
            (7, 6, 3, 4, Calls, DAY + 1_030, DAY + 1_040),
        ];
        let all = [(1, 1, 50_000), (2, 1, 16_000), (3, 1, 28_000), (4, 1, 10_000)];
        for shift in 0..shop.len() {
            let mut spans = shop;
            spans.rotate_left(shift);
            assert_eq!(own_times(&spans), all);
        }
        // What goes on afterwards is not waited for, and of who says nothing of times nothing is said.
        let mut spans = shop;
        (spans[4].6, spans[2].5, spans[2].6) = (1_500, 0, 0);
        assert_eq!(own_times(&spans), [(1, 1, 10_000), (3, 1, 28_000), (4, 1, 10_000)]);
    }

    #[test]
    fn who_sends_no_spans_of_calls_is_known_by_those_of_the_called_as_far_as_clocks_agree() {
        let shop = |off: u64| {
            own_times(&[
                (1, 0, 1, 1, Serves, 1_000, 1_100),
                (2, 1, 2, 2, Serves, off + 1_010, off + 1_030),
                (3, 1, 2, 2, Serves, off + 1_020, off + 1_040),
            ])
        };
        assert_eq!(shop(0), [(1, 1, 70_000), (2, 2, 40_000)]);
        assert_eq!(shop(500), [(2, 2, 40_000)]);
    }

    #[test]
    fn who_is_called_and_sends_no_spans_is_known_by_its_name() {
        let held = |id, parent, service, peer, kind| {
            Held::new(&Span { id, parent, kind, ..Span::default() }, service, 0, peer)
        };
        let mut spans = vec![
            held(1, 0, 1, 1, Serves),
            held(2, 1, 1, 7, Calls),
            held(3, 1, 1, 8, Calls),
            held(4, 3, 2, 2, Serves),
        ];
        let mut heard = Heard::default();
        Judge::default().judge(&mut spans, &mut heard);
        assert_eq!(heard.requests[0].3, [(1, 1), (2, 1), (7, 1)]);
    }
}
