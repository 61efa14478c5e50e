//! The events of policing, put to a fresh police and fresh batches.

use std::collections::{HashMap, HashSet};

use plimsoll_core::rng::Rng;
use plimsoll_core::{ClassId, Nanos, Verdict};
use plimsoll_policing::batch::{self, Misfit};
use plimsoll_policing::police::{self, Answer, Scene};

use crate::record::police::{answer_line, fate};
use crate::record::{Event, exact};

/// Who stands in front of a gate.
pub struct Police {
    police: Option<police::Police>,
    /// By thread; each request is its number, and the next one's.
    batches: HashMap<usize, (batch::Batch<u64>, u64)>,
}

impl Police {
    /// Fresh, where the pool has one.
    pub fn new(police: Option<police::Police>) -> Police {
        Police { police, batches: HashMap::new() }
    }

    /// Puts an event. Returns the verdict where it has one, or what was decided now where that differs.
    ///
    /// # Errors
    /// What was recorded and what was decided now, or why the event cannot be.
    pub fn put(&mut self, event: Event, rng: &mut Rng) -> Result<Option<Verdict>, String> {
        let police = self.police.as_ref().ok_or("the pool has no police")?;
        let misfit =
            |(estimate, objective)| Misfit { estimate: Nanos(estimate), objective: Nanos(objective) };
        match event {
            Event::PoliceOffer { class, size, load, now, answer, .. } => {
                let answered = police.offer(ClassId(class), Nanos(size), &load.into(), Nanos(now), rng);
                same(&answer, &answer_line(&answered))?;
                Ok(match answered {
                    Answer::Now(verdict) => Some(verdict),
                    Answer::Waits { .. } => None,
                })
            }
            Event::PoliceJudge { rank, size, load, verdict, .. } => {
                let judged = police.judge(rank, Nanos(size), &load.into());
                same(&verdict, &exact(&judged))?;
                Ok(Some(judged))
            }
            Event::Processed { misfit: misfitted, .. } => {
                Ok(Some(police.processed(misfitted.map_or(Ok(()), |of| Err(misfit(of))))))
            }
            Event::Promise { class, per_s_bits, now, .. } => {
                police.promise(ClassId(class), f64::from_bits(per_s_bits), Nanos(now));
                Ok(None)
            }
            Event::PoliceTick { load, busy_bits, now, .. } => {
                let scene = Scene { load: load.into(), sentry_busy: f64::from_bits(busy_bits) };
                police.tick(&scene, Nanos(now));
                Ok(None)
            }
            Event::Batch { thread, classes, most, .. } => {
                self.batches.insert(thread, (batch::Batch::new(classes, most), 0));
                Ok(None)
            }
            Event::Push { thread, rank, size, delay, now, displaced, .. } => {
                let (batch, pushed) = self.batches.get_mut(&thread).ok_or("a push to no batch")?;
                let number = *pushed;
                *pushed += 1;
                let left = batch.push(rank, Nanos(size), Nanos(delay), Nanos(now), number);
                let left = left.map(|(_, number)| number);
                same(&format!("{displaced:?} leaves"), &format!("{left:?} leaves"))?;
                Ok(None)
            }
            Event::Process { thread, load, now, fates, gone, .. } => {
                let (batch, _) = self.batches.get_mut(&thread).ok_or("a batch that is none is processed")?;
                let gone: HashSet<u64> = gone.into_iter().collect();
                let mut found = Vec::with_capacity(fates.len());
                batch.process(
                    Nanos(now),
                    &load.into(),
                    |rank| police.terms(rank),
                    |number, _, outcome| {
                        found.push(fate(number, outcome));
                        !gone.contains(&number)
                    },
                );
                same(&format!("{fates:?}"), &format!("{found:?}"))?;
                Ok(None)
            }
            other => Err(format!("{other:?} is no event of policing")),
        }
    }
}

fn same(recorded: &str, decided: &str) -> Result<(), String> {
    match recorded == decided {
        true => Ok(()),
        false => Err(format!("recorded `{recorded}`, decided now `{decided}`")),
    }
}
