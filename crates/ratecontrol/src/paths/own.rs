//! How long services work by themselves: a serving span's time without what it waited for those that it called.
//!
//! Clocks of a fleet are apart by minutes, but a service's calls are timed by the clock of the service that made them, so its own time can be
//! told. Of a caller that sends no spans of its calls, only those of the called are there, by another clock: where they do not lie
//! within the caller's span it is not known how long it waited, and nothing is said of it.

use super::Kind;
use super::judge::{NOBODY, Place};
use super::names::NameId;
use super::open::Held;

/// What a service worked for a request: calls, and microseconds in all of them together.
pub type Worked = (NameId, u32, u64);

/// Of whose calls nothing is known.
const UNCLEAR: u32 = u32::MAX;

/// Tells own times, of one trace after the other; keeps its arrays.
#[derive(Default)]
pub struct OwnTimes {
    /// A serving span, and from when to when it waited for somebody, in microseconds since its start.
    waits: Vec<(u32, u32, u32)>,
    /// By span, how long it waited for others.
    waited_us: Vec<u32>,
}

impl OwnTimes {
    /// Finds who waited for whom, and how long, in a trace whose spans have their places.
    pub fn look(&mut self, spans: &[Held], places: &[Place]) {
        self.waited_us.clear();
        self.waited_us.resize(spans.len(), 0);
        self.waits.clear();
        for (span, place) in spans.iter().zip(places) {
            let (server, has_its_clock) = match span.kind {
                Kind::Calls => (place.server, true),
                Kind::Serves
                    if place.parent != NOBODY && spans[place.parent as usize].kind != Kind::Calls =>
                {
                    (places[place.parent as usize].server, false)
                }
                _ => continue,
            };
            let Some(of) = spans.get(server as usize).filter(|of| of.took_us > 0 && span.took_us > 0) else {
                continue;
            };
            // Of the time only the lower bits are kept.
            let from = i64::from(span.start_us.wrapping_sub(of.start_us) as i32);
            let (to, end) = (from + i64::from(span.took_us), i64::from(of.took_us));
            if !has_its_clock && (from < 0 || to > end) {
                self.waited_us[server as usize] = UNCLEAR;
            }
            self.waits.push((server, from.clamp(0, end) as u32, to.clamp(0, end) as u32));
        }
        self.waits.sort_unstable();
        for of_one in self.waits.chunk_by(|a, b| a.0 == b.0) {
            let waited = &mut self.waited_us[of_one[0].0 as usize];
            if *waited != UNCLEAR {
                // Calls at the same time are waited for together.
                let mut until = 0;
                for &(_, from, to) in of_one {
                    *waited += to.saturating_sub(from.max(until));
                    until = until.max(to);
                }
            }
        }
    }

    /// Adds what the services of some spans worked, in order, to `out`. What failed may have ended before it was done.
    pub fn add(&self, spans: &[Held], places: &[Place], members: &[(u32, u32)], out: &mut Vec<Worked>) {
        for &(_, at) in members {
            let (span, place) = (&spans[at as usize], &places[at as usize]);
            if span.took_us == 0 || span.failed {
                continue;
            }
            let waited = self.waited_us[at as usize];
            if span.kind == Kind::Serves && waited != UNCLEAR {
                out.push((span.service, 1, u64::from(span.took_us - waited)));
            }
            // Whoever sends no spans, like a database, is known by those of its callers.
            if span.peer != span.service && !place.is_answered {
                out.push((span.peer, 1, u64::from(span.took_us)));
            }
        }
        out.sort_unstable();
        out.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            if same {
                (sum.1, sum.2) = (sum.1 + next.1, sum.2 + next.2);
            }
            same
        });
    }
}
