//! When samples were taken: the times that the windows of all threads share.
//!
//! Two seconds back every step is kept, ten seconds back every second, a hundred seconds back every tenth. A thread keeps its
//! counters in the same places ([`crate::usage`]), those in which they are not what they are now.

use plimsoll_core::Nanos;

/// What one tier keeps: how many places, and how long after the last one the next is due.
const TIERS: [(usize, Nanos); 3] =
    [(24, Nanos::from_millis(90)), (10, Nanos::from_millis(950)), (11, Nanos::from_millis(9_500))];
/// All places.
pub(crate) const PLACES: usize = 45;

/// A place, and when it was filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    pub place: usize,
    pub at: Nanos,
}

/// The times of the places. Time in which nobody sampled is left out, so that it is no time at all.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    now: Nanos,
    newest: [usize; 3],
    filled: [usize; 3],
    times: [Nanos; PLACES],
}

impl Timeline {
    pub fn new() -> Timeline {
        // Time begins late enough for a thread to have begun before it.
        let now = Nanos::from_secs(1_000);
        Timeline { now, newest: [0; 3], filled: [0; 3], times: [Nanos::ZERO; PLACES] }
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Goes on by `elapsed`; the places in which what holds now is to be kept.
    pub fn advance(&mut self, elapsed: Nanos) -> [Option<usize>; 3] {
        self.now += elapsed;
        let mut first = 0;
        std::array::from_fn(|tier| {
            let (places, due) = TIERS[tier];
            let start = first;
            first += places;
            let last = self.times[start + self.newest[tier]];
            if self.filled[tier] > 0 && self.now.since(last) < due {
                return None;
            }
            self.newest[tier] = (self.newest[tier] + 1) % places;
            self.filled[tier] = (self.filled[tier] + 1).min(places);
            let place = start + self.newest[tier];
            self.times[place] = self.now;
            Some(place)
        })
    }

    /// The places of the first tier, the newest first.
    pub fn steps(&self) -> impl Iterator<Item = Mark> + '_ {
        self.of_tier(0)
    }

    /// Those of the second.
    pub fn seconds(&self) -> impl Iterator<Item = Mark> + '_ {
        self.of_tier(1)
    }

    /// The places that were filled from `from` on, but for those of now.
    pub fn filled_since(&self, from: Nanos) -> impl Iterator<Item = usize> + '_ {
        let earlier = |tier| self.of_tier(tier).skip_while(|mark| mark.at == self.now);
        (0..3)
            .flat_map(move |tier| earlier(tier).take_while(move |mark| mark.at >= from))
            .map(|mark| mark.place)
    }

    /// All of them that are at least `age` old, from the newest on, each tier where the one before ends.
    pub fn back(&self, age: Nanos) -> impl Iterator<Item = Mark> + '_ {
        let mut last = self.now.since(age) + Nanos(1);
        (0..3).flat_map(|tier| self.of_tier(tier)).filter(move |mark| {
            let earlier = mark.at < last;
            if earlier {
                last = mark.at;
            }
            earlier
        })
    }

    fn of_tier(&self, tier: usize) -> impl Iterator<Item = Mark> + '_ {
        let places = TIERS[tier].0;
        let first: usize = TIERS[..tier].iter().map(|tier| tier.0).sum();
        (0..self.filled[tier]).map(move |back| {
            let place = first + (self.newest[tier] + places - back) % places;
            Mark { place, at: self.times[place] }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_as_many_as_the_tiers_have() {
        assert_eq!(TIERS.iter().map(|tier| tier.0).sum::<usize>(), PLACES);
    }

    #[test]
    fn a_hundred_seconds_are_kept_the_newest_finely() {
        let mut timeline = Timeline::new();
        for _ in 0..2_000 {
            timeline.advance(Nanos::from_millis(100));
        }
        let age = |mark: Mark| timeline.now().since(mark.at);
        let steps: Vec<Nanos> = timeline.steps().map(age).collect();
        assert_eq!(steps.len(), TIERS[0].0);
        assert_eq!(steps[10], Nanos::from_secs(1));
        let back: Vec<Nanos> = timeline.back(Nanos::from_millis(950)).map(age).collect();
        assert_eq!(back[0], Nanos::from_secs(1));
        assert!(back.windows(2).all(|pair| pair[0] < pair[1]), "{back:?}");
        assert!(back.last().is_some_and(|&age| age >= Nanos::from_secs(90)), "{back:?}");
    }

    #[test]
    fn quick_samples_fill_no_places() {
        let mut timeline = Timeline::new();
        let filled = (0..1_000).filter(|_| timeline.advance(Nanos::from_millis(10))[0].is_some()).count();
        assert!((100..=112).contains(&filled), "{filled}");
    }
}
