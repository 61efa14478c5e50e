//! Puts a [record](crate::record) to fresh gates. They are the very objects that the simulator drives.

use std::path::Path;

use plimsoll_admission::{self as admission, Ask};
use plimsoll_core::config::{self, Config};
use plimsoll_core::estimator::Wait;
use plimsoll_core::rng::{Rng, seeded};
use plimsoll_core::{ClassId, Nanos, Verdict};
use plimsoll_engine::tape;
use serde::Serialize;

mod police;

use self::police::Police;
use crate::pool::gate_of;
use crate::record::{Event, exact};

/// What a record held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplaySummary {
    /// Gates that were made.
    pub gates: u32,
    /// Events that were put to them.
    pub events: u64,
    /// Verdicts that were the same, admitting.
    pub admitted: u64,
    /// Verdicts that were the same, refusing.
    pub refused: u64,
}

/// Puts a record to fresh gates.
///
/// # Errors
/// Where the record cannot be read, or at the first verdict that differs: its line, what was recorded and what was
/// decided now.
pub fn replay(path: &Path) -> Result<ReplaySummary, String> {
    let mut replay = Replay { config: None, gates: Vec::new(), summary: ReplaySummary::default() };
    tape::read(path, |event| replay.put(event))?;
    Ok(replay.summary)
}

struct Replay {
    config: Option<Config>,
    gates: Vec<Replayed>,
    summary: ReplaySummary,
}

/// A gate, and who stands in front of it.
struct Replayed {
    gate: admission::Gate,
    police: Police,
    rng: Rng,
}

impl Replay {
    fn put(&mut self, event: Event) -> Result<(), String> {
        self.summary.events += 1;
        let judged = match event {
            Event::Config { text } => {
                self.config = Some(config::parse(&text, "config").map_err(|e| e.to_string())?.0);
                None
            }
            Event::Gate { gate, pool, start, seed } => {
                if gate as usize != self.gates.len() {
                    return Err(format!("gate {gate} comes as number {}", self.gates.len()));
                }
                let config = self.config.as_ref().ok_or("a gate before any config")?;
                let (made, police) = gate_of(config, &pool, Nanos(start))?;
                let rng = seeded(seed, u64::from(gate));
                self.gates.push(Replayed { gate: made, police: Police::new(police), rng });
                self.summary.gates += 1;
                None
            }
            Event::Offer { gate, class, deadline, client, promised, now, verdict } => {
                let Replayed { gate, rng, .. } = self.at(gate)?;
                let ask = Ask { class: ClassId(class), deadline: deadline.map(Nanos), client, promised };
                Some((gate.offer(&ask, Nanos(now), rng), verdict))
            }
            Event::Start { gate, class, waited, now, verdict } => {
                Some((self.at(gate)?.gate.start(ClassId(class), Nanos(waited), Nanos(now)), verdict))
            }
            Event::Finish { gate, class, expected, waited, served, outcome } => {
                let wait = Wait { expected: Nanos(expected), actual: Nanos(waited) };
                self.at(gate)?.gate.finish(ClassId(class), wait, Nanos(served), outcome);
                None
            }
            Event::Tick { gate, now } => {
                self.at(gate)?.gate.tick(Nanos(now));
                None
            }
            Event::Slots { gate, slots } => {
                self.at(gate)?.gate.set_slots(slots);
                None
            }
            Event::Scale { gate, from, to, max, scaled } => {
                if scaled {
                    self.at(gate)?.gate.scale_slots(from, to, max);
                }
                None
            }
            Event::Told { gate, slots, taken } => {
                if taken {
                    self.at(gate)?.gate.tell_slots(slots);
                }
                None
            }
            Event::AdmitUnjudged { gate, class } => {
                self.at(gate)?.gate.admit_unjudged(ClassId(class));
                None
            }
            Event::Abandon { gate, class } => {
                self.at(gate)?.gate.abandon(ClassId(class));
                None
            }
            policing => {
                let Replayed { police, rng, .. } = self.at(policing.gate())?;
                police.put(policing, rng)?.inspect(|verdict| self.count(verdict));
                return Ok(());
            }
        };
        let Some((verdict, recorded)) = judged else { return Ok(()) };
        let decided = exact(&verdict);
        if decided != recorded {
            return Err(format!("recorded `{recorded}`, decided now `{decided}`"));
        }
        self.count(&verdict);
        Ok(())
    }

    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Admit(_) => self.summary.admitted += 1,
            Verdict::Refuse(_) => self.summary.refused += 1,
        }
    }

    fn at(&mut self, number: u32) -> Result<&mut Replayed, String> {
        self.gates.get_mut(number as usize).ok_or_else(|| format!("there is no gate {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Gate, Recorder};
    use plimsoll_admission::Outcome;

    /// A limit that backs off from failures decides otherwise than one that does not hear of them.
    #[test]
    fn how_requests_ended_is_part_of_the_record() {
        let path = std::env::temp_dir().join(format!("plimsoll-replay-{}.jsonl", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let text = "[sentry]\nlisten = \"127.0.0.1:0\"\n\
            [pool.shop]\nservers = [\"127.0.0.1:1\"]\nworkers = 4\nadmission = { policy = \"aimd\" }\n\
            [class.default]\nslo = { p50 = \"30ms\" }\n";
        let config = config::parse(text, "config").unwrap().0;
        let recorder = Recorder::create(&path, 1).unwrap();
        recorder.config(text);
        let (gate, _) = gate_of(&config, "shop", Nanos::ZERO).unwrap();
        let gate = Gate::new(gate, "shop", Nanos::ZERO, Some(&recorder));
        let (class, now, mut rng) = (ClassId(0), Nanos::ZERO, seeded(1, 0));
        let mut offer = || gate.offer(&Ask::of(class), now, &mut rng).is_admit();
        for outcome in [Outcome::Measured, Outcome::Unmeasured, Outcome::Failed, Outcome::Failed] {
            assert!(offer());
            assert!(gate.start(class, now, now).is_admit());
            gate.finish(class, Wait::default(), Nanos::from_millis(1), outcome);
        }
        // From 20: two failures take a tenth each.
        assert_eq!((0..20).filter(|_| offer()).count(), 16);
        drop((gate, recorder));
        let summary = replay(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(summary.unwrap(), ReplaySummary { gates: 1, events: 34, admitted: 24, refused: 4 });
    }
}
