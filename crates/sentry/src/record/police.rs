//! Policing, recorded: its methods are those of [`plimsoll_policing`].

use std::sync::Arc;

use plimsoll_core::{ClassId, Nanos, Rng, Verdict};
use plimsoll_policing::batch::{self, Load, Misfit, Terms};
use plimsoll_policing::police::{self, Answer, Scene};
use plimsoll_policing::switch::Policer;
use serde::{Deserialize, Serialize};

use super::{Event, Recorded, exact};

/// A [`Load`] as it is written down.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LoadLine {
    queue_delay: u64,
    in_service_bits: u64,
    servers: u32,
    idle: bool,
}

impl From<&Load> for LoadLine {
    fn from(load: &Load) -> LoadLine {
        let Load { queue_delay, in_service, servers, idle } = *load;
        LoadLine { queue_delay: queue_delay.0, in_service_bits: in_service.to_bits(), servers, idle }
    }
}

impl From<LoadLine> for Load {
    fn from(line: LoadLine) -> Load {
        let LoadLine { queue_delay, in_service_bits, servers, idle } = line;
        Load { queue_delay: Nanos(queue_delay), in_service: f64::from_bits(in_service_bits), servers, idle }
    }
}

/// What became of one request of a batch: its number, and what it was expected to take and allowed to where it did not fit.
pub(crate) type Fate = (u64, Option<(u64, u64)>);

pub(crate) fn fate(number: u64, outcome: Result<(), Misfit>) -> Fate {
    (number, outcome.err().map(|misfit| (misfit.estimate.0, misfit.objective.0)))
}

/// The police of a pool, whose events may be recorded.
pub struct Police {
    police: police::Police,
    recorded: Option<Arc<Recorded>>,
}

impl Police {
    /// The police of the pool whose gate is `recorded` so.
    pub fn new(police: police::Police, recorded: Option<Arc<Recorded>>) -> Police {
        Police { police, recorded }
    }

    /// As [`police::Police::offer`].
    #[inline]
    pub fn offer(&self, class: ClassId, size: Nanos, load: &Load, now: Nanos, rng: &mut Rng) -> Answer {
        let Some(recorded) = &self.recorded else { return self.police.offer(class, size, load, now, rng) };
        recorded.write(|gate| {
            let answer = self.police.offer(class, size, load, now, &mut recorded.rng.lock());
            let (class, size, load, now) = (class.0, size.0, load.into(), now.0);
            (answer, Event::PoliceOffer { gate, class, size, load, now, answer: answer_line(&answer) })
        })
    }

    /// As [`police::Police::judge`].
    pub fn judge(&self, rank: usize, size: Nanos, load: &Load) -> Verdict {
        let Some(recorded) = &self.recorded else { return self.police.judge(rank, size, load) };
        recorded.write(|gate| {
            let verdict = self.police.judge(rank, size, load);
            let (size, load) = (size.0, load.into());
            (verdict, Event::PoliceJudge { gate, rank, size, load, verdict: exact(&verdict) })
        })
    }

    /// As [`police::Police::processed`].
    pub fn processed(&self, outcome: Result<(), Misfit>) -> Verdict {
        let Some(recorded) = &self.recorded else { return self.police.processed(outcome) };
        recorded.write(|gate| {
            let (_, misfit) = fate(0, outcome);
            (self.police.processed(outcome), Event::Processed { gate, misfit })
        })
    }

    /// Why somebody of this rank had to leave the line for others.
    pub fn displaced(&self, rank: usize, load: &Load) -> Verdict {
        self.processed(Err(self.police.crowded_out(rank, load)))
    }

    /// As [`police::Police::promise`].
    pub fn promise(&self, class: ClassId, per_s: f64, now: Nanos) {
        let Some(recorded) = &self.recorded else { return self.police.promise(class, per_s, now) };
        recorded.write(|gate| {
            self.police.promise(class, per_s, now);
            let (class, per_s_bits, now) = (class.0, per_s.to_bits(), now.0);
            ((), Event::Promise { gate, class, per_s_bits, now })
        });
    }

    /// As [`police::Police::tick`].
    pub fn tick(&self, load: Load, busy: f64, now: Nanos) -> Nanos {
        let scene = Scene { load, sentry_busy: busy };
        let Some(recorded) = &self.recorded else { return self.police.tick(&scene, now) };
        recorded.write(|gate| {
            let next = self.police.tick(&scene, now);
            let (load, busy_bits, now) = ((&load).into(), busy.to_bits(), now.0);
            (next, Event::PoliceTick { gate, load, busy_bits, now })
        })
    }

    /// As [`police::Police::policer`].
    pub fn policer(&self) -> Policer {
        self.police.policer()
    }

    /// As [`police::Police::terms`].
    pub fn terms(&self, rank: usize) -> Terms {
        self.police.terms(rank)
    }
}

/// An answer in full, so that no rounding hides a difference.
pub(crate) fn answer_line(answer: &Answer) -> String {
    match answer {
        Answer::Now(verdict) => exact(verdict),
        Answer::Waits { rank, delay } => format!("wait {rank} {}ns", delay.0),
    }
}

/// A batch of one thread, whose events may be recorded.
pub struct Batch<T> {
    batch: batch::Batch<(u64, T)>,
    recorded: Option<Arc<Recorded>>,
    thread: usize,
    /// Requests so far: the number of the next.
    pushed: u64,
}

impl<T> Batch<T> {
    /// Of the thread with this number, for so many classes, and so many requests at most.
    pub fn new(recorded: Option<Arc<Recorded>>, thread: usize, classes: usize, most: usize) -> Batch<T> {
        if let Some(recorded) = &recorded {
            recorded.write(|gate| ((), Event::Batch { gate, thread, classes, most }));
        }
        Batch { batch: batch::Batch::new(classes, most), recorded, thread, pushed: 0 }
    }

    /// The thread that it belongs to.
    pub fn thread(&self) -> usize {
        self.thread
    }

    /// As [`batch::Batch::waiting`].
    pub fn waiting(&self) -> usize {
        self.batch.waiting()
    }

    /// As [`batch::Batch::due`].
    pub fn due(&self) -> Nanos {
        self.batch.due()
    }

    /// As [`batch::Batch::push`].
    pub fn push(
        &mut self,
        rank: usize,
        size: Nanos,
        delay: Nanos,
        now: Nanos,
        request: T,
    ) -> Option<(usize, T)> {
        let number = self.pushed;
        self.pushed += 1;
        let Batch { batch, recorded, thread, .. } = self;
        let push = || batch.push(rank, size, delay, now, (number, request));
        let displaced = match recorded {
            None => push(),
            Some(recorded) => recorded.write(|gate| {
                let displaced = push();
                let (thread, size, delay, now) = (*thread, size.0, delay.0, now.0);
                let left = displaced.as_ref().map(|(_, (number, _))| *number);
                (displaced, Event::Push { gate, thread, rank, size, delay, now, displaced: left })
            }),
        };
        displaced.map(|(rank, (_, request))| (rank, request))
    }
}

impl<T> Batch<tokio::sync::oneshot::Sender<T>> {
    /// As [`batch::Batch::process`], with the terms of this police. Who is not waited for any more is left out.
    pub fn process(
        &mut self,
        police: &Police,
        now: Nanos,
        load: &Load,
        mut answer: impl FnMut(tokio::sync::oneshot::Sender<T>, Result<(), Misfit>),
    ) {
        let Batch { batch, recorded, thread, .. } = self;
        let mut process = || {
            let (mut answers, mut fates, mut gone) = (Vec::new(), Vec::new(), Vec::new());
            batch.process(
                now,
                load,
                |rank| police.terms(rank),
                |(number, request), _, outcome| {
                    let waits = !request.is_closed();
                    if recorded.is_some() {
                        fates.push(fate(number, outcome));
                        gone.extend((!waits).then_some(number));
                    }
                    if waits {
                        answers.push((request, outcome));
                    }
                    waits
                },
            );
            (answers, fates, gone)
        };
        let answers = match &*recorded {
            None => process().0,
            Some(recorded) => recorded.write(|gate| {
                let (answers, fates, gone) = process();
                let (thread, load, now) = (*thread, load.into(), now.0);
                (answers, Event::Process { gate, thread, load, now, fates, gone })
            }),
        };
        // Not before: an answer is an event of its own.
        answers.into_iter().for_each(|(request, outcome)| answer(request, outcome));
    }
}
