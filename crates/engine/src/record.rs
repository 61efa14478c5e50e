//! The proof that what decides in production is what the simulator drives: the agent can write down every scene that it showed to a
//! reliever and what came of it, and `plimsoll verify` shows the same scenes to fresh ones and demands the same decisions.
//!
//! One JSON object a line; times are nanoseconds. Scenes hold whole numbers only, so they are read as they were written.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;

use plimsoll_cancellation::Scene;
use plimsoll_cancellation::decision::{Again, Decision, Outcome};
use plimsoll_core::config::CancelBudget;
use plimsoll_core::{Nanos, Slo};
use serde::{Deserialize, Serialize};

use crate::tape::Tape;

/// What the first line says.
pub const FORMAT: &str = "plimsoll agent 1";

/// One line of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// The first.
    Record {
        /// [`FORMAT`].
        format: String,
    },
    /// A new reliever.
    Watch {
        /// Its number.
        watch: u32,
        /// What it watches.
        name: String,
        /// Its objective, as the config writes it: `p99`, in ns.
        slo: Vec<(String, u64)>,
        /// From one cancellation to the next.
        interval_ns: u64,
        /// Cancellations a second, as the bits of the number.
        rate_per_s: u64,
        /// Cancellations a request, likewise.
        ratio: u64,
        /// Cancellations that may be saved up.
        burst: u32,
    },
    /// It was shown a scene.
    Look {
        /// Which one.
        watch: u32,
        /// When.
        now: u64,
        /// What.
        scene: Scene,
        /// What it came to.
        decision: String,
    },
    /// It was told what became of a cancellation.
    Outcome {
        /// Which one.
        watch: u32,
        /// Whose.
        task: u64,
        /// `cancelled`, `finished`, `failed`.
        outcome: String,
    },
}

/// Writes the record of all relievers.
#[derive(Clone)]
pub struct Recorder(Rc<RefCell<Record>>);

struct Record {
    tape: Tape,
    watches: u32,
}

impl Recorder {
    /// Records to a new file.
    ///
    /// # Errors
    /// Where it cannot be written, or is there already.
    pub fn create(path: &Path) -> Result<Recorder, String> {
        let record = Record { tape: Tape::create(path)?, watches: 0 };
        let recorder = Recorder(Rc::new(RefCell::new(record)));
        recorder.write(&Line::Record { format: FORMAT.to_owned() });
        Ok(recorder)
    }

    /// A new reliever on these terms; its number.
    pub fn watch(&self, name: &str, slo: &Slo, budget: &CancelBudget) -> u32 {
        let watch = self.0.borrow().watches;
        self.0.borrow_mut().watches += 1;
        self.write(&Line::Watch {
            watch,
            name: name.to_owned(),
            slo: slo.targets().iter().map(|(statistic, limit)| (statistic.to_string(), limit.0)).collect(),
            interval_ns: budget.interval.0,
            rate_per_s: budget.rate.per_s.to_bits(),
            ratio: budget.ratio.to_bits(),
            burst: budget.burst,
        });
        watch
    }

    /// A scene that was shown, and what came of it.
    pub fn look(&self, watch: u32, now: Nanos, scene: &Scene, decision: &Decision) {
        let (now, scene, decision) = (now.0, scene.clone(), exact(decision));
        self.write(&Line::Look { watch, now, scene, decision });
    }

    /// What became of a cancellation.
    pub fn outcome(&self, watch: u32, task: u64, outcome: Outcome) {
        self.write(&Line::Outcome { watch, task, outcome: word(outcome).to_owned() });
    }

    fn write(&self, line: &Line) {
        self.0.borrow_mut().tape.write(line);
    }
}

/// An outcome in a word.
pub fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Cancelled => "cancelled",
        Outcome::Finished => "finished",
        Outcome::Failed => "failed",
    }
}

/// A decision in full, so that no rounding hides a difference.
pub fn exact(decision: &Decision) -> String {
    let Decision { state, late, contention, candidates, cancel, restraint, again } = decision;
    let bits = |number: f64| format!("{:x}", number.to_bits());
    let mut text = state.as_str().to_owned();
    // Writing to a string cannot fail.
    if let Some(late) = late {
        let _ = write!(text, " late {} {} {}", late.limit.0, bits(late.allowed), bits(late.share));
    }
    for (index, level) in contention.iter().enumerate().filter(|(_, level)| **level > 0.0) {
        let _ = write!(text, " c{index}={}", bits(*level));
    }
    for candidate in candidates {
        let _ = write!(
            text,
            " t{}{}={}",
            candidate.task,
            if candidate.cancellable { "" } else { "!" },
            bits(candidate.score)
        );
        for (resource, gain) in &candidate.gains {
            let _ = write!(text, "/{resource}:{}", bits(*gain));
        }
    }
    if let Some((task, resource)) = cancel {
        let _ = write!(text, " cancel {task} {resource}");
    }
    if let Some(restraint) = restraint {
        let _ = write!(text, " {}", restraint.as_str());
    }
    for again in again {
        let _ = match again {
            Again::Rerun(task) => write!(text, " rerun {task}"),
            Again::Abandon(task) => write!(text, " abandon {task}"),
        };
    }
    text
}
