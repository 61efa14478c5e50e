//! The proof that what decides in production is what the simulator drives: a running sentry can write down every
//! event of its gates with the verdict, and [`replay`](crate::replay) puts the same events to fresh gates and demands
//! the same verdicts.
//!
//! A gate that is recorded is used by one thread at a time, since the order in which threads reach it is part of what
//! must be repeated, and draws from a generator of its own, since the threads' are used for other things too. So
//! recording is for finding out, not for production. One JSON object a line; times are nanoseconds.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll_admission::{self as admission, Ask, Outcome};
use plimsoll_core::estimator::{ClassEstimate, Wait};
use plimsoll_core::rng::{Rng, seeded};
use plimsoll_core::{ClassId, Nanos, Quantity, Refusal, Verdict};
use plimsoll_engine::tape::Tape;
use serde::{Deserialize, Serialize};

pub(crate) mod police;

pub use police::{Batch, Police};
use police::{Fate, LoadLine};

/// One line of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The config from here on.
    Config {
        text: String,
    },
    /// A new gate.
    Gate {
        gate: u32,
        pool: String,
        start: u64,
        seed: u64,
    },
    /// The events of a gate, by its number.
    Tick {
        gate: u32,
        now: u64,
    },
    Slots {
        gate: u32,
        slots: u32,
    },
    Scale {
        gate: u32,
        from: u32,
        to: u32,
        max: u32,
        scaled: bool,
    },
    Told {
        gate: u32,
        slots: Option<u32>,
        taken: bool,
    },
    Offer {
        gate: u32,
        class: u16,
        deadline: Option<u64>,
        client: Option<u64>,
        promised: bool,
        now: u64,
        verdict: String,
    },
    AdmitUnjudged {
        gate: u32,
        class: u16,
    },
    Start {
        gate: u32,
        class: u16,
        waited: u64,
        now: u64,
        verdict: String,
    },
    Finish {
        gate: u32,
        class: u16,
        expected: u64,
        waited: u64,
        served: u64,
        #[serde(with = "Ended")]
        outcome: Outcome,
    },
    Abandon {
        gate: u32,
        class: u16,
    },
    /// The events of the police in front of it, and of the batches of its threads.
    PoliceOffer {
        gate: u32,
        class: u16,
        size: u64,
        load: LoadLine,
        now: u64,
        answer: String,
    },
    PoliceJudge {
        gate: u32,
        rank: usize,
        size: u64,
        load: LoadLine,
        verdict: String,
    },
    Processed {
        gate: u32,
        misfit: Option<(u64, u64)>,
    },
    Promise {
        gate: u32,
        class: u16,
        per_s_bits: u64,
        now: u64,
    },
    PoliceTick {
        gate: u32,
        load: LoadLine,
        busy_bits: u64,
        now: u64,
    },
    Batch {
        gate: u32,
        thread: usize,
        classes: usize,
        most: usize,
    },
    Push {
        gate: u32,
        thread: usize,
        rank: usize,
        size: u64,
        delay: u64,
        now: u64,
        displaced: Option<u64>,
    },
    Process {
        gate: u32,
        thread: usize,
        load: LoadLine,
        now: u64,
        fates: Vec<Fate>,
        /// Who had left by then.
        gone: Vec<u64>,
    },
}

impl Event {
    /// The number of the gate that a pool's event belongs to; the text of a config belongs to none.
    pub fn gate(&self) -> u32 {
        match self {
            Event::Config { .. } => u32::MAX,
            Event::Gate { gate, .. }
            | Event::Tick { gate, .. }
            | Event::Slots { gate, .. }
            | Event::Scale { gate, .. }
            | Event::Told { gate, .. }
            | Event::Offer { gate, .. }
            | Event::AdmitUnjudged { gate, .. }
            | Event::Start { gate, .. }
            | Event::Finish { gate, .. }
            | Event::Abandon { gate, .. }
            | Event::PoliceOffer { gate, .. }
            | Event::PoliceJudge { gate, .. }
            | Event::Processed { gate, .. }
            | Event::Promise { gate, .. }
            | Event::PoliceTick { gate, .. }
            | Event::Batch { gate, .. }
            | Event::Push { gate, .. }
            | Event::Process { gate, .. } => *gate,
        }
    }
}

/// How an [`Outcome`] is written down.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Outcome", rename_all = "snake_case")]
enum Ended {
    Measured,
    Unmeasured,
    Failed,
}

/// Writes the record of all gates of a worker.
pub struct Recorder {
    seed: u64,
    record: Mutex<Record>,
}

struct Record {
    tape: Tape,
    gates: u32,
}

impl Recorder {
    /// Records to a new file, with generators from this seed.
    ///
    /// # Errors
    /// Where the file cannot be written or is there already: the record of the worker before this one stays whole.
    pub fn create(path: &Path, seed: u64) -> Result<Arc<Recorder>, String> {
        let record = Record { tape: Tape::create(path)?, gates: 0 };
        Ok(Arc::new(Recorder { seed, record: Mutex::new(record) }))
    }

    /// From here on gates are made from this config.
    pub fn config(&self, text: &str) {
        self.record.lock().tape.write(&Event::Config { text: text.to_owned() });
    }
}

/// A gate whose events may be recorded. Its methods are those of [`admission::Gate`].
pub struct Gate {
    gate: admission::Gate,
    recorded: Option<Arc<Recorded>>,
}

/// Where the events of a pool go.
pub struct Recorded {
    recorder: Arc<Recorder>,
    id: u32,
    /// Drawn from under the record's lock, like everything else.
    rng: Mutex<Rng>,
}

impl Gate {
    /// The gate of a pool, which began at `start`; its events go to the recorder if there is one.
    pub fn new(gate: admission::Gate, pool: &str, start: Nanos, recorder: Option<&Arc<Recorder>>) -> Gate {
        let recorded = recorder.map(|recorder| {
            let mut record = recorder.record.lock();
            let id = record.gates;
            record.gates += 1;
            record.tape.write(&Event::Gate {
                gate: id,
                pool: pool.to_owned(),
                start: start.0,
                seed: recorder.seed,
            });
            let rng = Mutex::new(seeded(recorder.seed, u64::from(id)));
            Arc::new(Recorded { recorder: Arc::clone(recorder), id, rng })
        });
        Gate { gate, recorded }
    }

    /// Where its events go, if anywhere: there go those of whoever stands in front of it.
    pub fn recorded(&self) -> Option<Arc<Recorded>> {
        self.recorded.clone()
    }

    /// As [`admission::Gate::offer`].
    #[inline]
    pub fn offer(&self, ask: &Ask, now: Nanos, rng: &mut Rng) -> Verdict {
        let Some(recorded) = &self.recorded else { return self.gate.offer(ask, now, rng) };
        recorded.write(|gate| {
            let verdict = self.gate.offer(ask, now, &mut recorded.rng.lock());
            let event = Event::Offer {
                gate,
                class: ask.class.0,
                deadline: ask.deadline.map(|d| d.0),
                client: ask.client,
                promised: ask.promised,
                now: now.0,
                verdict: exact(&verdict),
            };
            (verdict, event)
        })
    }

    /// As [`admission::Gate::admit_unjudged`].
    pub fn admit_unjudged(&self, class: ClassId) {
        let Some(recorded) = &self.recorded else { return self.gate.admit_unjudged(class) };
        recorded
            .write(|gate| (self.gate.admit_unjudged(class), Event::AdmitUnjudged { gate, class: class.0 }));
    }

    /// As [`admission::Gate::start`].
    #[inline]
    pub fn start(&self, class: ClassId, waited: Nanos, now: Nanos) -> Verdict {
        let Some(recorded) = &self.recorded else { return self.gate.start(class, waited, now) };
        recorded.write(|gate| {
            let verdict = self.gate.start(class, waited, now);
            let (class, waited, now) = (class.0, waited.0, now.0);
            (verdict, Event::Start { gate, class, waited, now, verdict: exact(&verdict) })
        })
    }

    /// As [`admission::Gate::finish`].
    #[inline]
    pub fn finish(&self, class: ClassId, wait: Wait, served: Nanos, outcome: Outcome) {
        let Some(recorded) = &self.recorded else { return self.gate.finish(class, wait, served, outcome) };
        recorded.write(|gate| {
            self.gate.finish(class, wait, served, outcome);
            let (class, expected, waited, served) = (class.0, wait.expected.0, wait.actual.0, served.0);
            ((), Event::Finish { gate, class, expected, waited, served, outcome })
        });
    }

    /// As [`admission::Gate::abandon`].
    pub fn abandon(&self, class: ClassId) {
        let Some(recorded) = &self.recorded else { return self.gate.abandon(class) };
        recorded.write(|gate| (self.gate.abandon(class), Event::Abandon { gate, class: class.0 }));
    }

    /// As [`admission::Gate::tick`].
    pub fn tick(&self, now: Nanos) -> Nanos {
        let Some(recorded) = &self.recorded else { return self.gate.tick(now) };
        recorded.write(|gate| (self.gate.tick(now), Event::Tick { gate, now: now.0 }))
    }

    /// As [`admission::Gate::set_slots`].
    pub fn set_slots(&self, slots: u32) {
        let Some(recorded) = &self.recorded else { return self.gate.set_slots(slots) };
        recorded.write(|gate| (self.gate.set_slots(slots), Event::Slots { gate, slots }));
    }

    /// As [`admission::Gate::scale_slots`].
    pub fn scale_slots(&self, from: u32, to: u32, max: u32) -> bool {
        let Some(recorded) = &self.recorded else { return self.gate.scale_slots(from, to, max) };
        recorded.write(|gate| {
            let scaled = self.gate.scale_slots(from, to, max);
            (scaled, Event::Scale { gate, from, to, max, scaled })
        })
    }

    /// As [`admission::Gate::tell_slots`].
    pub fn tell_slots(&self, slots: Option<u32>) -> bool {
        let Some(recorded) = &self.recorded else { return self.gate.tell_slots(slots) };
        recorded.write(|gate| {
            let taken = self.gate.tell_slots(slots);
            (taken, Event::Told { gate, slots, taken })
        })
    }

    /// As [`admission::Gate::expired`].
    pub fn expired(&self, waited: Nanos, allowed: Nanos) -> Refusal {
        self.gate.expired(waited, allowed)
    }

    /// As [`admission::Gate::slots`].
    pub fn slots(&self) -> u32 {
        self.gate.slots()
    }

    /// As [`admission::Gate::recommended_slots`].
    pub fn recommended_slots(&self) -> Option<u32> {
        self.gate.recommended_slots()
    }

    /// As [`admission::Gate::queued`].
    pub fn queued(&self) -> u32 {
        self.gate.queued()
    }

    /// As [`admission::Gate::expected_wait`].
    pub fn expected_wait(&self) -> Nanos {
        self.gate.expected_wait()
    }

    /// As [`admission::Gate::mean`].
    pub fn mean(&self, class: ClassId) -> Nanos {
        self.gate.mean(class)
    }

    /// As [`admission::Gate::report`].
    pub fn report(&self) -> Vec<ClassEstimate> {
        self.gate.report()
    }
}

impl Recorded {
    /// Does something to the gate and writes it down, before anybody else does anything to it.
    fn write<T>(&self, act: impl FnOnce(u32) -> (T, Event)) -> T {
        let mut record = self.recorder.record.lock();
        let (result, event) = act(self.id);
        record.tape.write(&event);
        result
    }
}

/// A verdict in full, so that no rounding hides a difference.
pub(crate) fn exact(verdict: &Verdict) -> String {
    let number = |quantity: Quantity| match quantity {
        Quantity::Time(time) => format!("{}ns", time.0),
        Quantity::Count(count) => count.to_string(),
        Quantity::Rate(per_s) => format!("{:016x}", per_s.to_bits()),
        Quantity::Share(share) => format!("{:016x}", share.to_bits()),
    };
    match verdict {
        Verdict::Admit(grant) => format!("admit {}", grant.as_str()),
        Verdict::Refuse(Refusal { mechanism, limit, estimate, objective, retry_after }) => {
            let (estimate, objective) = (number(*estimate), number(*objective));
            format!("refuse {mechanism} {limit} {estimate} {objective} {}ns", retry_after.0)
        }
    }
}
