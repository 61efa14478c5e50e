//! What entered of late: what is told of services may be of then.
//!
//! A Prometheus that looks once a second tells of a second that ended up to a second ago, and does not say when it did. Held against what
//! enters now, it would say after a surge that calls cost a tenth of what they do, and after a limit that they cost twice as much.

use std::collections::VecDeque;

use plimsoll_core::Nanos;

use crate::topology::ApiId;

/// Steps that are remembered.
pub(super) const STEPS: usize = 64;
/// Times that are tried, spread evenly over those that it may be.
const TRIED: u32 = 5;
/// What is told more seldom than steps are, by this factor, is not of the last step.
const SELDOM: f64 = 1.5;

/// What has entered of each API by the end of each step, the last steps only.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    steps: VecDeque<(Nanos, Vec<f64>)>,
}

impl Past {
    /// Takes in what entered a second in the step that ends now.
    pub fn take(&mut self, now: Nanos, seconds: f64, admitted: impl ExactSizeIterator<Item = f64>) {
        let mut sums = if self.steps.len() >= STEPS {
            self.steps.pop_front().map(|(_, sums)| sums).unwrap_or_default()
        } else {
            Vec::new()
        };
        let before = self.steps.back().map(|(_, sums)| sums.as_slice()).unwrap_or_default();
        // One that is new has entered nothing.
        let before = before.iter().copied().chain(std::iter::repeat(0.0));
        sums.clear();
        sums.extend(admitted.zip(before).map(|(per_s, before)| before + per_s * seconds));
        self.steps.push_back((now, sums));
    }

    /// The times of which it may be what is told now and was last told so long ago, by the steps at whose ends they begin and end; none where
    /// that is the last step.
    pub fn may_be(&self, now: Nanos, since: Nanos, step: Nanos) -> impl Iterator<Item = (usize, usize)> {
        let tried = if is_late(since, step) && self.steps.len() > 1 { TRIED } else { 0 };
        let time = move |nth: u32| {
            let end = now.since(Nanos(since.0 / u64::from(TRIED - 1) * u64::from(nth)));
            self.last(end, since)
        };
        (0..tried).map(time).filter(|(begin, end)| begin < end)
    }

    /// The time since something was told last, so long ago; nothing where that is the last step.
    pub fn missed(&self, now: Nanos, since: Nanos, step: Nanos) -> Option<(usize, usize)> {
        if !is_late(since, step) {
            return None;
        }
        Some(self.last(now, since)).filter(|(begin, end)| begin < end)
    }

    /// The time that ends now and is so long.
    pub fn last(&self, now: Nanos, since: Nanos) -> (usize, usize) {
        (self.at(now.since(since)), self.at(now))
    }

    /// The step at whose end it was this time, or the last one.
    fn at(&self, time: Nanos) -> usize {
        self.steps.partition_point(|&(at, _)| at < time).min(self.steps.len().saturating_sub(1))
    }

    /// When a time begins and ends.
    pub fn between(&self, (begin, end): (usize, usize)) -> (Nanos, Nanos) {
        (self.steps[begin].0, self.steps[end].0)
    }

    /// What entered of an API a second in a time.
    pub fn per_s(&self, (begin, end): (usize, usize), api: ApiId) -> f64 {
        let sum = |step: usize| self.steps[step].1.get(api.index()).copied().unwrap_or(0.0);
        let seconds = self.steps[end].0.since(self.steps[begin].0).as_secs_f64();
        if seconds > 0.0 { (sum(end) - sum(begin)) / seconds } else { 0.0 }
    }
}

/// Whether what was told last so long ago was not told in the last step.
fn is_late(since: Nanos, step: Nanos) -> bool {
    since.0 as f64 > SELDOM * step.0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_once_a_second_is_of_some_second_of_the_last_two() {
        let (mut past, step) = (Past::default(), Nanos::from_millis(250));
        let per_s = |past: &Past, now: Nanos, since: Nanos| {
            let times = past.may_be(now, since, step);
            times.map(|time| past.per_s(time, ApiId(0)).round() as u32).collect::<Vec<_>>()
        };
        let mut now = Nanos::ZERO;
        for nth in 0..200 {
            now += step;
            let entered = if nth < 196 { 100.0 } else { 500.0 };
            past.take(now, 0.25, [entered, 1.0].into_iter());
        }
        let second = Nanos::from_secs(1);
        assert_eq!(per_s(&past, now, second), [500, 400, 300, 200, 100]);
        assert_eq!(per_s(&past, now, step), [0; 0], "four times a second it is of the last step");
        // Of more than is remembered, as much as that is.
        assert_eq!(per_s(&past, now, Nanos::from_secs(40)).len(), 2);
        assert_eq!((past.steps.len(), past.per_s((0, 1), ApiId(7))), (STEPS, 0.0));
    }

    #[test]
    fn what_was_not_told_in_a_step_is_told_of_it_in_the_next() {
        let (mut past, step) = (Past::default(), Nanos::from_millis(250));
        for (nth, entered) in [100.0, 100.0, 500.0, 20.0].into_iter().enumerate() {
            past.take(Nanos(step.0 * (nth as u64 + 1)), 0.25, [entered].into_iter());
        }
        let now = Nanos(4 * step.0);
        assert_eq!(past.missed(now, step, step), None);
        let both = past.missed(now, Nanos(2 * step.0), step).unwrap();
        assert_eq!(past.per_s(both, ApiId(0)), 260.0);
        assert_eq!(Past::default().missed(now, now, step), None);
    }
}
