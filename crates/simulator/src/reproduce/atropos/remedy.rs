//! Who intervenes.

use plimsoll_cancellation::baseline::{Darc, Parties, Pbox, Protego};
use plimsoll_cancellation::choose::{Blame, Objective};
use plimsoll_cancellation::gain::Gain;
use plimsoll_cancellation::{Controller, Reliever, Terms};
use plimsoll_core::{Nanos, Percentile, Slo};

/// Who intervenes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Nobody.
    None,
    /// Ours.
    Atropos,
    /// Ours, but for the choice: by the most contended resource alone (section 5.4, the first ablation).
    Single,
    /// Ours, but for the gain: what a task has now, not what it will take (the second).
    Current,
    /// The paper's policy as printed: whoever gains most, and nobody asks who is to blame.
    Printed,
    /// The same by the most contended resource alone.
    PrintedSingle,
    /// The same by what a task has now.
    PrintedCurrent,
    /// The baselines.
    Protego,
    /// Likewise.
    Pbox,
    /// Likewise.
    Darc,
    /// Likewise.
    Parties,
}

impl Remedy {
    /// Those of Fig. 9.
    pub const COMPARED: [Remedy; 6] =
        [Remedy::Atropos, Remedy::Protego, Remedy::Pbox, Remedy::Darc, Remedy::Parties, Remedy::None];

    /// Those of Fig. 13 beside ours.
    pub const ABLATED: [Remedy; 5] =
        [Remedy::Single, Remedy::Current, Remedy::Printed, Remedy::PrintedSingle, Remedy::PrintedCurrent];

    /// The name in rows and figures.
    pub fn name(self) -> &'static str {
        match self {
            Remedy::None => "none",
            Remedy::Atropos => "atropos",
            Remedy::Single => "single resource",
            Remedy::Current => "current use",
            Remedy::Printed => "the printed policy",
            Remedy::PrintedSingle => "the printed policy, single resource",
            Remedy::PrintedCurrent => "the printed policy, current use",
            Remedy::Protego => "protego",
            Remedy::Pbox => "pbox",
            Remedy::Darc => "darc",
            Remedy::Parties => "parties",
        }
    }

    /// One that has seen nothing yet; requests may take `limit` in 99 of 100 cases.
    pub fn controller(self, limit: Nanos) -> Result<Option<Box<dyn Controller>>, String> {
        let ours = |change: fn(&mut Terms)| -> Result<Box<dyn Controller>, String> {
            let mut terms = Terms::new(Slo::new([(Percentile::P99, limit)])?);
            change(&mut terms);
            Ok(Box::new(Reliever::new(terms)))
        };
        Ok(Some(match self {
            Remedy::None => return Ok(None),
            Remedy::Atropos => ours(|_| ())?,
            Remedy::Single => ours(|terms| terms.objective = Objective::MostContended)?,
            Remedy::Current => ours(|terms| terms.gain = Gain::Current)?,
            Remedy::Printed => ours(|terms| terms.blame = Blame::Anyone)?,
            Remedy::PrintedSingle => ours(|terms| {
                terms.blame = Blame::Anyone;
                terms.objective = Objective::MostContended;
            })?,
            Remedy::PrintedCurrent => ours(|terms| {
                terms.blame = Blame::Anyone;
                terms.gain = Gain::Current;
            })?,
            Remedy::Protego => Box::new(Protego::new(limit)),
            Remedy::Pbox => Box::new(Pbox::new()),
            Remedy::Darc => Box::new(Darc::new()),
            Remedy::Parties => Box::new(Parties::new(limit)),
        }))
    }
}
