//! What is done twice a second: from what arrived, what found no room and how long the queue is follow the rung of the ladder, the
//! threshold, the room that is left to those above, the delays, and which policer is at work.

use plimsoll_core::Nanos;
use plimsoll_core::sync::{Ordering::Relaxed, try_lock};

use super::{Choice, Counted, Police};
use crate::batch::{Load, MOST_LEFT};
use crate::delays::{Contender, delays};
use crate::rates::{Flow, PERIOD, Rates};
use crate::sizes::BUCKETS;
use crate::switch::{Policer, Switch};

/// The threshold fills the servers: what it lets in too much comes back as a queue, and in so long a time it works that off. A queue
/// of a tenth of it leaves nine tenths of the servers to those who come.
const WORK_OFF: Nanos = Nanos::from_secs(1);
/// Whether it fills them its sizes alone cannot tell: they may all be a little too great or too small. A queue of this share of what is
/// owed says that it does,
const QUEUE: f64 = 0.125;
/// and while there is a shorter or a longer one, it aims higher or lower by so much a period, up to so many times.
const FILL_STEP: f64 = 0.03;
const MOST_FILL: f64 = 2.0;
/// A ladder's response time is only tightened once the rate is this much lower than where that was owed.
const RUNG: f64 = 1.1;
/// Bigger requests above, for which room is left, are expected less with every tick in which none came.
const STILL_EXPECTED: f64 = 0.9;
/// Whoever comes more rarely than this has nobody wait for it: some seconds after the last of many.
const STILL_COME_PER_S: f64 = 0.1;
/// What the last period weighs in the share of requests that found no room.
const WEIGHT: f64 = 0.5;

/// What [`Police::tick`] is told about the pool.
pub struct Scene {
    /// How busy the servers are.
    pub load: Load,
    /// How busy the sentry itself is: the share of the CPU time that it may have, in 0..1.
    pub sentry_busy: f64,
}

#[derive(Default)]
pub(super) struct Learning {
    pub(super) switch: Switch,
    /// What the threshold is to fill, in times the servers that there are.
    pub(super) fill: f64,
    /// The share of tested requests that found no room: the paper's p_drop.
    pub(super) refused: f64,
    /// By rank: what the biggest requests take that are to be expected, in seconds.
    pub(super) biggest_s: Vec<f64>,
}

/// Of a kind, smoothed or newest.
type FlowOf = fn(&Rates, usize) -> Flow;

impl Police {
    /// Prepares what decisions read; returns when it wants to be called next.
    pub fn tick(&self, scene: &Scene, now: Nanos) -> Nanos {
        let Some(mut learning) = try_lock(&self.learning) else { return now + PERIOD };
        let (renewed, next) = self.untested.tick(now);
        if !renewed {
            return next;
        }
        self.promises.tick(now);
        self.climb();
        self.aim(scene, &mut learning);
        self.leave_room(&mut learning);
        self.stagger(scene, &mut learning);
        let policer = match self.choice {
            Choice::Always(policer) => policer,
            Choice::Never => Policer::Batch,
            Choice::Auto => learning.switch.turn(scene.sentry_busy, self.arrive_per_s(), now),
        };
        self.cheap.store(policer == Policer::Threshold, Relaxed);
        next
    }

    /// The rung of the ladder for what arrives.
    fn climb(&self) {
        if let Some(ladder) = &self.ladder {
            let per_s = self.arrive_per_s();
            let owed =
                Nanos(self.owed_ns.load(Relaxed)).clamp(ladder.owed_at(per_s), ladder.owed_at(per_s * RUNG));
            self.owed_ns.store(owed.0, Relaxed);
        }
    }

    fn arrive_per_s(&self) -> f64 {
        let untested =
            (0..self.targets.len()).map(|rank| self.of_rank(rank, Rates::smoothed).per_s).sum::<f64>();
        untested + self.promised().per_s
    }

    /// What arrives of a rank and is not within a promise.
    fn of_rank(&self, rank: usize, flow: FlowOf) -> Flow {
        (0..BUCKETS).map(|bucket| flow(&self.untested, rank * BUCKETS + bucket)).sum()
    }

    /// What arrives within the promises.
    fn promised(&self) -> Flow {
        (0..self.ranks.len()).map(|class| self.promises.smoothed(class)).sum()
    }

    /// The threshold for what arrives and what it takes. Of each rank that is what it was in the last period, if that is more than
    /// before.
    fn aim(&self, scene: &Scene, learning: &mut Learning) {
        let queue_s = scene.load.queue_delay.as_secs_f64();
        // What nobody is turned away by can be neither too high nor too low.
        let cheap = self.cheap.load(Relaxed) && scene.load.servers > 0;
        learning.fill = if cheap && self.threshold.first_cut() < self.targets.len() * BUCKETS {
            let wanted_s = (self.least_owed().as_secs_f64() * QUEUE).clamp(1e-3, 0.1);
            let missing = (1.0 - queue_s / wanted_s).clamp(-1.0, 1.0);
            (learning.fill + FILL_STEP * missing).clamp(1.0 / MOST_FILL, MOST_FILL)
        } else {
            1.0
        };
        let wanted = (0..self.targets.len()).flat_map(|rank| {
            let servers = |flow: FlowOf| self.of_rank(rank, flow).servers;
            let more = servers(Rates::newest) > servers(Rates::smoothed);
            let flow: FlowOf = if more { Rates::newest } else { Rates::smoothed };
            (0..BUCKETS).map(move |bucket| flow(&self.untested, rank * BUCKETS + bucket).servers)
        });
        // A batch looks at the queue itself.
        let share = if cheap { learning.fill - queue_s / WORK_OFF.as_secs_f64() } else { 1.0 };
        self.threshold.set(wanted, f64::from(scene.load.servers) * share - self.promised().servers);
    }

    /// What each rank has to leave to the ranks above it of which requests come.
    fn leave_room(&self, learning: &mut Learning) {
        learning.biggest_s.resize(self.targets.len(), 0.0);
        let (mut bound, mut above) = (Nanos::MAX, Nanos::ZERO);
        for (rank, known) in learning.biggest_s.iter_mut().enumerate() {
            self.bound_ns[rank].store(bound.0, Relaxed);
            let aim = self.aim_of(rank);
            self.above_ns[rank].store(above.0.min((aim.0 as f64 * MOST_LEFT) as u64), Relaxed);
            let sizes = (0..BUCKETS).map(|bucket| self.untested.newest(rank * BUCKETS + bucket).size_s());
            *known = sizes.fold(*known * STILL_EXPECTED, f64::max);
            above = above.max(Nanos::from_secs_f64(*known));
            let flow = self.of_rank(rank, Rates::smoothed);
            // Whose target is beyond reach gains nothing by a short queue.
            if flow.per_s >= STILL_COME_PER_S && flow.size_s() < aim.as_secs_f64() {
                bound = bound.min(self.owed(rank));
            }
        }
    }

    /// The delays for what arrives and how much of it found no room.
    fn stagger(&self, scene: &Scene, learning: &mut Learning) {
        let Counted { asked, misfits } = &self.counted;
        let (asked, misfits) = (asked.swap(0, Relaxed), misfits.swap(0, Relaxed));
        // Read one after the other: between the two somebody may have found no room.
        let newest = if asked > 0 { (misfits as f64 / asked as f64).min(1.0) } else { 0.0 };
        self.had_room.store(misfits == 0, Relaxed);
        learning.refused += WEIGHT * (newest - learning.refused);
        // Less than one in a thousand is room for all.
        let refused = if learning.refused < 1e-3 { 0.0 } else { learning.refused };
        if self.fixed_delays {
            return;
        }
        let queue_s = scene.load.queue_delay.as_secs_f64();
        let contender = |rank| {
            let flow = self.of_rank(rank, Rates::smoothed);
            Contender { per_s: flow.per_s, stay_s: flow.size_s() + queue_s }
        };
        let contenders: Vec<Contender> = (0..self.targets.len()).map(contender).collect();
        let longest = self.longest_delay();
        for (stored, delay) in self.delays_ns.iter().zip(delays(&contenders, refused, longest)) {
            stored.store(delay.0, Relaxed);
        }
    }
}
