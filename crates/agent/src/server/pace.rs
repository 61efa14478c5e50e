//! How often a server is asked.

use std::time::Duration;

use plimsoll_cancellation::decision::State;

/// Where nobody has been to blame for so long, a server that is overloaded is no longer asked as often as in trouble that somebody makes: all
/// that comes of it is less of the processors for those who wait for them. Whoever is to blame next is found by looks as seldom as in calm.
const LASTING: Duration = Duration::from_secs(2);

/// From look to look.
#[derive(Debug, Default)]
pub struct Pace {
    /// For how long nobody has been to blame for too much work.
    blameless: Duration,
}

impl Pace {
    /// How long it is to the next look, where it is `interval` in trouble and `calm` times as long in calm. `suspicious` where something is
    /// wrong.
    pub fn next(&mut self, state: State, suspicious: bool, interval: Duration, calm: u32) -> Duration {
        let closely = suspicious && self.blameless < LASTING;
        let wait = if closely { interval } else { interval * calm };
        match state {
            State::Regular => self.blameless = self.blameless.saturating_add(wait),
            State::Calm | State::Resource => self.blameless = Duration::ZERO,
            State::Suspected => {}
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_work_that_lasts_is_looked_at_as_seldom_as_calm() {
        let mut pace = Pace::default();
        let interval = Duration::from_millis(50);
        let mut next = |state| pace.next(state, state != State::Calm, interval, 3).as_millis();
        assert_eq!((next(State::Calm), next(State::Suspected)), (150, 50));
        let closely = (0..100).take_while(|_| next(State::Regular) == 50).count();
        assert_eq!(closely, 40, "two seconds of looks");
        assert_eq!((next(State::Suspected), next(State::Regular)), (150, 150));
        assert_eq!(
            (next(State::Resource), next(State::Resource)),
            (150, 50),
            "somebody is to blame after all"
        );
        assert_eq!((next(State::Regular), next(State::Calm), next(State::Regular)), (50, 150, 50));
    }
}
