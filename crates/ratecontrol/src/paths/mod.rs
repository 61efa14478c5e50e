//! Which services each API's requests visit, and how long those work for them, learnt from the traces that the fleet sends anyway (TopFull, sections 4.1 and 4.2).
//!
//! ```text
//!  spans, in any order, from whoever has some  -->  open (a trace waits for its pieces)  -->  judge (where did it enter, what did it visit?)
//!                                                                                                  |
//!  Paths, as of now  <--  view  <--  operations (each API's branches, with shares and calls; what is seen no more fades)  <--'
//! ```
//!
//! **What a trace tells.** Where its request entered is the topmost server span; the API is that span's operation at its service. All
//! services of the trace were visited by that request, also those whose spans lost their parents: so a span that is missing costs a
//! call in a count, and no service of a path.
//!
//! **Times.** Clocks of a fleet are apart by minutes, so what spans say of when they were is held against spans of the same service only:
//! that tells how long it worked by itself (`own`). When something arrived is known without that.
//!
//! **Everything is bounded** by [`Limits`], hostile senders included: names, operations, open spans, branches. What does not fit counts
//! to `other`, and what is used stays while what is not makes room.

mod api;
mod judge;
mod learner;
mod names;
mod open;
mod operations;
mod own;
#[cfg(test)]
mod tests;
mod view;

pub use learner::{Learner, Service};
pub use view::{ApiPaths, Figures, PathBranch, Paths, Visit};

use plimsoll_core::Nanos;

/// What names, operations and services beyond the limits are called.
pub const OTHER: &str = "other";

/// What a span was doing, as far as paths go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// It worked on a request of another process: a server, or the consumer of a message.
    Serves,
    /// It called another process.
    Calls,
    /// Anything else, or nobody said.
    #[default]
    Internal,
}

/// What is read of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span<'a> {
    /// The trace that it belongs to; zero is none.
    pub trace: u128,
    /// Its own number in that trace; zero is none.
    pub id: u64,
    /// The span that caused it; zero where it is the first.
    pub parent: u64,
    /// What it was doing.
    pub kind: Kind,
    /// What was asked of a service, for a span that serves: `GET /cart/{id}`, `shop.Cart/Add`.
    pub operation: Option<&'a str>,
    /// Who was called, for a span that calls, where its sender knows the name: such a service may send no spans itself.
    pub peer: Option<&'a str>,
    /// Whether it ended in an error.
    pub failed: bool,
    /// When it began and ended by the clock of its sender, in nanoseconds since whenever; both zero where that is not said.
    pub began_ns: u64,
    /// See above.
    pub ended_ns: u64,
}

/// How much is remembered, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Spans of open traces, 48 bytes each, and at most 100 more for each trace. Where all that arrive would take three quarters of them,
    /// only every other trace is taken in, or every fourth, and so on: shares stay what they are, and no trace is torn.
    pub open_spans: usize,
    /// Spans of one trace; more are left out.
    pub spans_per_trace: usize,
    /// Names of services and operations, up to 0.5 KB each.
    pub names: usize,
    /// Operations of services, those that are no APIs among them.
    pub operations: usize,
    /// Different sets of services that one API's requests visit; rarer ones are added up as one.
    pub branches: usize,
    /// Services in all branches of all APIs together, 12 bytes each, and for each API once more 24.
    pub visits: usize,
    /// How long a trace waits for its pieces, from its first span on. Exporters send every 5 s unless told otherwise, collectors add a
    /// little.
    pub wait: Nanos,
    /// After so long the past counts half beside the present, for an API that has many requests; one that has few goes by its last ones.
    pub half_life: Nanos,
    /// An operation that was not seen for so long is forgotten. While no spans arrive at all, time stands still.
    pub forget: Nanos,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            open_spans: 1 << 20,
            spans_per_trace: 2_048,
            names: 1 << 16,
            operations: 1 << 14,
            branches: 16,
            visits: 1 << 20,
            wait: Nanos::from_secs(10),
            half_life: Nanos::from_secs(60),
            forget: Nanos::from_secs(3_600),
        }
    }
}
