//! Whether a thread has lately begun to want more or less than before.

use plimsoll_core::Nanos;

use crate::timeline::{Mark, Timeline};
use crate::usage::{Spent, Usage};

/// Less is no step.
const LEAST: f64 = 0.15;
/// So many steps of time must show it,
const SHOWN: usize = 2;
/// and what was before must have held for a second.
const BEFORE: usize = 10;

/// A change of what a thread wants, as parts of a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    pub at: Nanos,
    pub before: f64,
    pub after: f64,
}

impl Step {
    /// The last step within a second: every moment since is nearer to what it wants now, and every moment of the second before was nearer to what it wanted
    /// then. A thread that works by fits and starts has no such second.
    pub fn of(usage: &Usage, timeline: &Timeline) -> Option<Step> {
        let mut marks = timeline.steps().skip_while(|mark| mark.at == timeline.now());
        let newest = marks.by_ref().nth(SHOWN - 1)?;
        // Almost all threads go on as they did.
        let second = marks.nth(BEFORE - 1).filter(|second| second.at >= usage.born())?;
        let recent = usage.since(timeline, newest.place, newest.at);
        let longer = usage.since(timeline, second.place, second.at);
        if (recent.demand() - longer.demand()).abs() < LEAST / 2.0 {
            return None;
        }
        let marks: Vec<Mark> = timeline.steps().skip_while(|mark| mark.at == timeline.now()).collect();
        let since: Vec<Spent> = marks.iter().map(|mark| usage.since(timeline, mark.place, mark.at)).collect();
        // Between the marks `newer` and `older`, counted from the newest; -1 is now.
        let between = |older: usize, newer: Option<usize>| {
            let newer = newer.map_or(Spent::default(), |newer| since[newer]);
            let Spent { run, wait, span } = since[older];
            Spent { run: run - newer.run, wait: wait - newer.wait, span: span - newer.span }
        };
        // `shown` moments since the step, one in which it was, and the second before.
        (SHOWN..BEFORE).find_map(|shown| {
            let old = shown + BEFORE;
            if old >= marks.len() || marks[old].at < usage.born() {
                return None;
            }
            let (after, before) = (since[shown - 1].demand(), between(old, Some(shown)).demand());
            let gap = after - before;
            let near = |moment: Spent, level: f64| (moment.demand() - level).abs() < gap.abs() / 2.0;
            let steady = gap.abs() >= LEAST
                && (0..shown).all(|at| near(between(at, at.checked_sub(1)), after))
                && (shown + 1..=old).all(|at| near(between(at, Some(at - 1)), before));
            let mixed = between(shown, Some(shown - 1));
            let part = ((mixed.demand() - before) / gap).clamp(0.0, 1.0);
            let at = marks[shown - 1].at.since(Nanos((part * mixed.span) as u64));
            steady.then_some(Step { at, before, after })
        })
    }
}
