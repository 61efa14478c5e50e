//! DAGOR (Zhou et al., "Overload control for scaling WeChat microservices", SoCC 2018; as TopFull, section 5, measures it).
//!
//! Every request has a business priority, by what it is for, and a user priority, drawn where it enters; all that is called on its behalf
//! inherits both. Each instance has a level: whose priority is worse is refused. An instance is overloaded where its requests waited for
//! more than 20 ms in the mean of a window. Then it lowers its level such that 5 % less than was let in in the last window would be, else
//! it raises it such that 1 % more would be. As all instances draw the line through the same order, what one lets in the next mostly does.

use plimsoll_core::Nanos;

/// How many user priorities there are (TopFull, section 6.1).
pub const USERS: usize = 128;
/// How many business priorities there are; worse ones count as the worst.
pub const BUSINESSES: usize = 101;

/// The compound priority of a request: 0 is the most important. All users of one business come before all of a worse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority(u16);

impl Priority {
    /// Of a business priority, 1 being the most important, and a user priority from 0, the most important.
    pub fn new(business: u32, user: u8) -> Priority {
        let business = (business as usize).min(BUSINESSES - 1);
        Priority((business * USERS + (user as usize).min(USERS - 1)) as u16)
    }
}

/// What may be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The mean wait in the queue from which on an instance is overloaded: 20 ms (SoCC 2018, section 4.1).
    pub target: Nanos,
    /// The longest a window lasts: one second,
    pub window: Nanos,
    /// or so many requests: 2,000, whichever comes first.
    pub window_requests: u32,
    /// By what part less is let in after a window with overload: 0.05,
    pub decrease: f64,
    /// and by what part more after one without: 0.01 (both also TopFull, section 6.2).
    pub increase: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            target: Nanos::from_millis(20),
            window: Nanos::from_secs(1),
            window_requests: 2_000,
            decrease: 0.05,
            increase: 0.01,
        }
    }
}

/// One instance's admission.
#[derive(Clone, Debug)]
pub struct Dagor {
    settings: Settings,
    /// How many priorities are let in, from the most important on.
    level: usize,
    ends: Nanos,
    /// By priority, what came in this window, let in or not.
    came: Box<[u32]>,
    arrived: u32,
    admitted: u32,
    waited_ns: f64,
    started: u32,
}

impl Dagor {
    /// Lets all in.
    pub fn new(settings: Settings, now: Nanos) -> Dagor {
        let priorities = BUSINESSES * USERS;
        Dagor {
            settings,
            level: priorities,
            ends: now + settings.window,
            came: vec![0; priorities].into(),
            arrived: 0,
            admitted: 0,
            waited_ns: 0.0,
            started: 0,
        }
    }

    /// Whether a request of this priority may enter the queue.
    pub fn admits(&mut self, priority: Priority, now: Nanos) -> bool {
        if now >= self.ends || self.arrived >= self.settings.window_requests {
            self.end_window(now);
        }
        let place = usize::from(priority.0);
        let admits = place < self.level;
        self.came[place] += 1;
        self.arrived += 1;
        self.admitted += u32::from(admits);
        admits
    }

    /// A request left the queue for a worker after this wait.
    pub fn started(&mut self, waited: Nanos) {
        self.waited_ns += waited.0 as f64;
        self.started += 1;
    }

    /// How many priorities are let in, from the most important on; all `BUSINESSES * USERS` where nobody is refused.
    pub fn level(&self) -> usize {
        self.level
    }

    fn end_window(&mut self, now: Nanos) {
        let overloaded = self.waited_ns > self.settings.target.0 as f64 * f64::from(self.started.max(1));
        let admitted = f64::from(self.admitted);
        if overloaded {
            self.level = self.holding(admitted * (1.0 - self.settings.decrease));
        } else if self.level < self.came.len() {
            // One priority more at least: a part of nothing would be nothing for ever.
            self.level = self.holding(admitted * (1.0 + self.settings.increase)).max(self.level + 1);
        }
        self.came.fill(0);
        (self.arrived, self.admitted, self.waited_ns, self.started) = (0, 0, 0.0, 0);
        self.ends = now + self.settings.window;
    }

    /// The level that would have let in at most so many of this window's requests.
    fn holding(&self, wanted: f64) -> usize {
        let mut held = 0.0;
        for (place, &came) in self.came.iter().enumerate() {
            held += f64::from(came);
            if held > wanted {
                return place;
            }
        }
        self.came.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = Nanos::from_secs(1);

    /// A window of a thousand requests, evenly over the users of a business, that waited so long. How many were let in.
    fn window(dagor: &mut Dagor, nth: u64, waited: Nanos) -> usize {
        let start = Nanos(S.0 * nth + 1);
        let admitted = (0..1_000u32).filter(|i| {
            let user = (u64::from(*i) * 77 % 128) as u8;
            dagor.admits(Priority::new(5, user), start + Nanos(u64::from(*i)))
        });
        let admitted = admitted.count();
        (0..admitted).for_each(|_| dagor.started(waited));
        admitted
    }

    #[test]
    fn waits_above_twenty_milliseconds_cost_a_twentieth_and_calm_gives_a_hundredth_back() {
        let mut dagor = Dagor::new(Settings::default(), Nanos::ZERO);
        let mut admitted = window(&mut dagor, 0, Nanos::from_millis(21));
        assert_eq!(admitted, 1_000);
        for nth in 1..10 {
            let next = window(&mut dagor, nth, Nanos::from_millis(21));
            // A level is worth about eight of a thousand requests.
            let expected = admitted as f64 * 0.95;
            assert!((expected - 16.0..=expected).contains(&(next as f64)), "{next} after {admitted}");
            admitted = next;
        }
        for nth in 10..14 {
            let next = window(&mut dagor, nth, Nanos::from_millis(if nth == 10 { 21 } else { 19 }));
            let expected = admitted as f64 * if nth <= 11 { 0.95 } else { 1.01 };
            assert!((next as f64 - expected).abs() <= 16.0, "window {nth}: {next} after {admitted}");
            admitted = next;
        }
    }

    #[test]
    fn who_is_more_important_is_never_refused_before_who_is_less() {
        let mut dagor = Dagor::new(Settings::default(), Nanos::ZERO);
        (0..30).for_each(|nth| _ = window(&mut dagor, nth, S));
        let level = dagor.level();
        assert!(level < BUSINESSES * USERS);
        let now = Nanos(S.0 * 30);
        for (business, user) in [(1, 127), (4, 127), (5, 0), (5, 100), (5, 127), (6, 0), (100, 127)] {
            let priority = Priority::new(business, user);
            assert_eq!(
                dagor.admits(priority, now),
                usize::from(priority.0) < dagor.level(),
                "{business} {user}"
            );
        }
        assert!(Priority::new(1, 127) < Priority::new(2, 0), "any user of a better business comes first");
    }

    #[test]
    fn a_window_ends_after_two_thousand_requests_too() {
        let mut dagor = Dagor::new(Settings::default(), Nanos::ZERO);
        for i in 0..2_001u64 {
            dagor.admits(Priority::new(5, (i % 128) as u8), Nanos(i));
            dagor.started(S);
        }
        assert!(dagor.level() < BUSINESSES * USERS, "a microsecond was window enough");
    }

    #[test]
    fn who_was_shut_out_altogether_comes_back() {
        let mut dagor = Dagor::new(Settings::default(), Nanos::ZERO);
        (0..400).for_each(|nth| _ = window(&mut dagor, nth, S));
        let least = window(&mut dagor, 400, Nanos::ZERO);
        assert!(least <= 8, "{least} of a thousand are more than one priority");
        let mut nth = 401;
        while window(&mut dagor, nth, Nanos::ZERO) < 1_000 {
            nth += 1;
            assert!(nth < 2_000, "stuck at {} of a thousand", dagor.level());
        }
    }
}
