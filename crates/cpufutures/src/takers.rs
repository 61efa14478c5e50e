//! Who took the CPU from whom.

use crate::census::Member;
use crate::predict::Outlook;
use crate::task::{CpuSet, TaskId};
use crate::timeline::{Mark, Timeline};
use crate::usage::ALMOST_WINDOW;

/// Who took CPU from a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taker {
    /// Who ran,
    pub id: TaskId,
    /// for how long while the other waited, in milliseconds a second.
    pub ms_per_s: f64,
}

/// The waited time of a thread in the last second, apportioned moment by moment over those that ran on CPUs that it may use, by their
/// run times. All of it, as far as anybody ran; the greatest first.
pub(crate) fn of(
    members: &[Member<Outlook>],
    victim: usize,
    timeline: &Timeline,
    online: &CpuSet,
    sets: &[CpuSet],
) -> Vec<Taker> {
    let waiting = &members[victim];
    let waited = 1e3 * waiting.window.waited();
    if waited <= 0.0 {
        return Vec::new();
    }
    // The part of the CPUs of each set that the victim may use.
    let own = sets.get(waiting.known.terms.cpus as usize);
    let common: Vec<f64> = sets
        .iter()
        .map(|set| {
            let both = |cpu: &usize| set.contains(*cpu) && own.is_none_or(|own| own.contains(*cpu));
            let all = online.iter().filter(|&cpu| set.contains(cpu)).count();
            online.iter().filter(both).count() as f64 / all.max(1) as f64
        })
        .collect();
    let others: Vec<(&Member<Outlook>, f64)> = members
        .iter()
        .enumerate()
        .filter(|&(at, other)| at != victim && other.window.run > 0.0)
        .map(|(_, other)| (other, common.get(other.known.terms.cpus as usize).copied().unwrap_or(1.0)))
        .filter(|&(_, common)| common > 0.0)
        .collect();
    let mut taken = vec![0.0; others.len()];
    let mut ran = vec![0.0; others.len()];
    let mut later: Option<Mark> = None;
    for mark in timeline.steps().filter(|mark| mark.at < timeline.now()) {
        let spent = |member: &Member<Outlook>| {
            let since = member.usage.since(timeline, mark.place, mark.at);
            let later = later.map(|mark| member.usage.since(timeline, mark.place, mark.at));
            (since.run - later.map_or(0.0, |l| l.run), since.wait - later.map_or(0.0, |l| l.wait))
        };
        for (ran, &(other, common)) in ran.iter_mut().zip(&others) {
            *ran = spent(other).0.max(0.0) * common;
        }
        let (wait, all): (f64, f64) = (spent(waiting).1.max(0.0), ran.iter().sum());
        if all > 0.0 {
            taken.iter_mut().zip(&ran).for_each(|(taken, ran)| *taken += wait * ran / all);
        }
        later = Some(mark);
        if timeline.now().since(mark.at) >= ALMOST_WINDOW || mark.at <= waiting.usage.born() {
            break;
        }
    }
    // Moments in which nobody else is known to have run are apportioned as the others are.
    let all: f64 = taken.iter().sum();
    let mut takers: Vec<Taker> = others
        .iter()
        .zip(&taken)
        .filter(|&(_, &taken)| taken > 0.0)
        .map(|(&(other, _), taken)| Taker { id: other.id, ms_per_s: waited * taken / all })
        .collect();
    takers.sort_unstable_by(|a, b| b.ms_per_s.total_cmp(&a.ms_per_s).then(a.id.cmp(&b.id)));
    takers
}
