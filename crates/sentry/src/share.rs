//! How several sentries in front of the same servers share their workers.
//!
//! The workers of all servers of a pool are numbered through, server by server in the order of their addresses, so that all
//! sentries agree; of `of` sentries the one with part `part` has those whose number leaves `part` when divided by `of`.
//! Shares are disjoint, together they are everything, and of each server every sentry has as much as any other, give or take
//! one worker.
//!
//! Sentries hear of a new division one after the other. Until all have, one that already goes by the new one may only
//! use what is its own by both: that overlaps with nobody, whoever goes by the old one still.

use std::fmt;
use std::str::FromStr;

use plimsoll_core::Nanos;
use serde::{Deserialize, Serialize};

/// Most sentries that share servers.
pub const MOST: u32 = 64;
/// How long what a new division adds is left alone: whoever tells the sentries must have told all of them by then.
pub const SETTLES_AFTER: Nanos = Nanos::from_secs(1);

/// One of so many equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Plain")]
pub struct Share {
    part: u64,
    of: u64,
}

/// As it is written, before it is looked at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    part: u32,
    of: u32,
}

impl TryFrom<Plain> for Share {
    type Error = String;
    fn try_from(Plain { part, of }: Plain) -> Result<Share, String> {
        Share::new(part, of)
    }
}

impl Share {
    /// Everything: there is no other sentry.
    pub const ALL: Share = Share { part: 0, of: 1 };

    /// Part `part`, from 0, of `of`.
    ///
    /// # Errors
    /// Where there is no such part, or more than [`MOST`].
    pub fn new(part: u32, of: u32) -> Result<Share, String> {
        if of == 0 || of > MOST {
            return Err(format!("`of` is {of}; write a number from 1 to {MOST}"));
        }
        if part >= of {
            return Err(format!("`part` is {part}; with `of` {of}, write a number from 0 to {}", of - 1));
        }
        Ok(Share { part: part.into(), of: of.into() })
    }

    /// Which part, from 0.
    pub fn part(self) -> u32 {
        self.part as u32
    }

    /// Of how many.
    pub fn of(self) -> u32 {
        self.of as u32
    }

    /// How many of the `n` workers from number `first` on are in it.
    pub fn count(self, first: u64, n: u32) -> u32 {
        let below = |number: u64| (number + self.of - 1 - self.part) / self.of;
        (below(first + u64::from(n)) - below(first)) as u32
    }

    /// What is in both; nothing where that is none, or next to none.
    fn and(self, other: Share) -> Option<Share> {
        const FINEST: u64 = 1 << 32;
        let (mut a, mut b) = (self.of, other.of);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        let of = self.of / a * other.of;
        let part =
            (0..other.of).map(|i| self.part + i * self.of).find(|part| part % other.of == other.part)?;
        (of <= FINEST).then_some(Share { part: part % of, of })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

impl FromStr for Share {
    type Err = String;
    fn from_str(text: &str) -> Result<Share, String> {
        let parsed = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
        let (part, of) = parsed.ok_or("write PART/OF, for example 0/2")?;
        Share::new(part, of)
    }
}

/// What a sentry was told and what it goes by.
#[derive(Clone, Debug)]
pub struct Holding {
    told: Share,
    used: Option<Share>,
    settles: Nanos,
}

impl Holding {
    /// From the start.
    pub fn new(share: Share) -> Holding {
        Holding { told: share, used: Some(share), settles: Nanos::ZERO }
    }

    /// There is a new division. Whether it differs from the last.
    pub fn tell(&mut self, share: Share, now: Nanos) -> bool {
        if share == self.told {
            return false;
        }
        self.told = share;
        self.used = self.used.and_then(|used| used.and(share));
        self.settles = now + SETTLES_AFTER;
        true
    }

    /// Goes over to what it was told once everybody must have heard. Whether it just has.
    pub fn settle(&mut self, now: Nanos) -> bool {
        let settles = now >= self.settles && self.used != Some(self.told);
        if settles {
            self.used = Some(self.told);
        }
        settles
    }

    /// The last that it was told.
    pub fn told(&self) -> Share {
        self.told
    }

    /// What it may use now, if anything.
    pub fn used(&self) -> Option<Share> {
        self.used
    }

    /// Whether what it may use is what it was told.
    pub fn is_settled(&self) -> bool {
        self.used == Some(self.told)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rng::seeded;
    use rand::RngExt;

    use super::*;

    fn share(part: u32, of: u32) -> Share {
        Share::new(part, of).unwrap()
    }

    #[test]
    fn parts_are_disjoint_and_together_everything() {
        for of in 1..=MOST {
            for workers in [1, 2, 3, 7, 50, 64, 1_000] {
                let mut sums = vec![0; of as usize];
                for server in 0..70 {
                    let counts: Vec<u32> = (0..of)
                        .map(|part| share(part, of).count(server * u64::from(workers), workers))
                        .collect();
                    assert_eq!(counts.iter().sum::<u32>(), workers, "of {of}: {counts:?}");
                    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                    assert!(most - least <= 1, "of {of}: {counts:?}");
                    sums.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
                }
                let (least, most) = (sums.iter().min().unwrap(), sums.iter().max().unwrap());
                assert!(most - least <= 1, "no sentry has more of the whole pool: {sums:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_a_share_is_not_one() {
        for (part, of) in [(0, 0), (1, 1), (64, 64), (0, 65), (u32::MAX, u32::MAX)] {
            Share::new(part, of).unwrap_err();
            serde_json::from_str::<Share>(&format!("{{\"part\":{part},\"of\":{of}}}")).unwrap_err();
        }
        assert_eq!("1/3".parse::<Share>(), Ok(share(1, 3)));
        assert_eq!(share(1, 3).to_string(), "1/3");
        for text in ["", "1", "1/", "/2", "2/2", "-1/2", "1/2/3"] {
            text.parse::<Share>().unwrap_err();
        }
        assert_eq!(serde_json::from_str::<Share>("{\"part\":1,\"of\":3}").unwrap(), share(1, 3));
    }

    /// Sentries that hear of one division after the other, each in its own time, but all of each before it settles.
    #[test]
    fn at_no_moment_do_two_sentries_use_the_same_worker() {
        const WORKERS: u32 = 24;
        for seed in 0..200 {
            let mut rng = seeded(seed, 0);
            let mut now = Nanos::from_secs(1);
            let mut sentries = vec![Holding::new(Share::ALL)];
            for _ in 0..12 {
                let of = rng.random_range(1..=6);
                let mut order: Vec<usize> = (0..sentries.len()).collect();
                order.sort_by_key(|_| rng.random::<u64>());
                let check = |sentries: &[Holding], what: &str| {
                    for number in 0..u64::from(WORKERS) {
                        let users = sentries.iter().filter_map(Holding::used);
                        let users = users.filter(|used| used.count(number, 1) == 1).count();
                        assert!(users <= 1, "seed {seed}: {what}: {number} is used by {users}");
                    }
                };
                for &i in &order {
                    // Who is too many has been drained before.
                    let told = if i < of as usize { share(i as u32, of) } else { continue };
                    sentries[i].tell(told, now);
                    now += Nanos(rng.random_range(0..SETTLES_AFTER.0 / 10));
                    sentries.truncate(of as usize);
                    sentries.iter_mut().for_each(|sentry| _ = sentry.settle(now));
                    check(&sentries, "while they hear");
                }
                // Who is new begins when everybody else knows.
                (sentries.len() as u32..of).for_each(|part| sentries.push(Holding::new(share(part, of))));
                check(&sentries, "when the new are there");
                if rng.random() {
                    now += SETTLES_AFTER;
                    sentries.iter_mut().for_each(|sentry| _ = sentry.settle(now));
                    check(&sentries, "when it has settled");
                    let used = sentries.iter().filter_map(Holding::used).map(|used| used.count(0, WORKERS));
                    assert_eq!(used.sum::<u32>(), WORKERS, "seed {seed}: all of it is used");
                }
            }
        }
    }
}
