//! Never slower than so many times, and no more than is needed for that (section 5.2): by the job's weight.
//!
//! The paper searches the share. Here others are seen to weigh something, by what came of the weights before, and what weight the job needs
//! beside them follows (Eq. 5). A search takes what is chance for what a step did, and its steps up cost more than its steps down save; beside
//! a busy server it gave away a third of what the limit allows.

use std::ops::RangeInclusive;

use plimsoll_core::Nanos;

use super::Seen;
use super::account::{Account, others_wait};
use super::rivals::Rivals;

/// The controller, where the job's share can be set.
#[derive(Clone, Debug)]
pub struct MaxSlowdown {
    levels: RangeInclusive<i64>,
    /// Levels for a doubling of the job's weight.
    doubling: f64,
    account: Account,
    rivals: Rivals,
}

impl MaxSlowdown {
    /// One that keeps the slowdown below `limit`, above 1, by levels of the job's weight, of which `doubling` double it. It begins with
    /// `start`, which is believed to be right.
    pub fn new(limit: f64, levels: RangeInclusive<i64>, start: i64, doubling: f64) -> MaxSlowdown {
        let account = Account::new(limit);
        let weight = (start as f64 / doubling).exp2();
        let rivals = Rivals::new(weight * (account.aim() - 1.0));
        MaxSlowdown { levels, doubling, account, rivals }
    }

    /// The level to use until the next look, after one that was `in_force` since the last. To the first look, which has no length, it
    /// answers with the start.
    pub fn level(&mut self, in_force: i64, seen: &Seen) -> i64 {
        self.account.enter(seen);
        self.rivals.saw(seen, (in_force as f64 / self.doubling).exp2());
        let weight = self.rivals.weight() / (self.account.next() - 1.0);
        let level = (self.doubling * weight.log2()).round() as i64;
        let is_first = seen.length == Nanos::ZERO;
        let helps = level > in_force || others_wait(seen) || is_first;
        if helps { level.clamp(*self.levels.start(), *self.levels.end()) } else { in_force }
    }

    /// How many times slower the job was over the worst ten seconds, or over all if it ran no longer.
    pub fn worst(&self) -> f64 {
        self.account.worst()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::rng;
    use rand::RngExt;

    use super::*;

    const TICK: Nanos = Nanos::from_millis(100);

    /// Of five and a half milliseconds on two CPUs: the noise that was measured beside a busy server.
    const SLICES_A_TICK: u32 = 36;

    /// One CPU, shared by weight: the job has that of its level, the others what `others` says of a tick. Returns the share that the
    /// job got in each tick.
    fn shares(
        control: &mut MaxSlowdown,
        ticks: u64,
        weight: impl Fn(i64) -> f64,
        others: impl Fn(u64) -> f64,
    ) -> Vec<f64> {
        sliced(control, ticks, weight, others, |share| share)
    }

    /// The same where what is had of a share is told by `had`.
    fn sliced(
        control: &mut MaxSlowdown,
        ticks: u64,
        weight: impl Fn(i64) -> f64,
        others: impl Fn(u64) -> f64,
        mut had: impl FnMut(f64) -> f64,
    ) -> Vec<f64> {
        let mut level = control.level(72, &Seen::default());
        (0..ticks)
            .map(|tick| {
                let (ours, theirs) = (weight(level), others(tick));
                let share = had(ours / (ours + theirs));
                let part = |share: f64| Nanos((TICK.0 as f64 * share) as u64);
                let seen = Seen {
                    length: TICK,
                    job_ran: part(share),
                    job_waited: part(1.0 - share),
                    job_desired_ms_per_s: 1e3,
                    others_ran: part(1.0 - share),
                    others_waited: if theirs > 0.0 { part(share) } else { Nanos::ZERO },
                    ..Seen::default()
                };
                level = control.level(level, &seen);
                share
            })
            .collect()
    }

    /// What comes of a share where a tick has so many slices, each of which the job has by chance.
    fn by_chance(seed: u64, stream: u64, slices_a_tick: u32) -> impl FnMut(f64) -> f64 {
        let mut rng = rng::seeded(seed, stream);
        move |share| {
            let slices = (0..slices_a_tick).filter(|_| rng.random_bool(share)).count();
            slices as f64 / f64::from(slices_a_tick)
        }
    }

    /// The least and the greatest slowdown over any ten seconds.
    fn slowdowns(shares: &[f64]) -> (f64, f64) {
        let windows = shares.windows(100).map(|window| 100.0 / window.iter().sum::<f64>());
        windows.fold((f64::INFINITY, 0.0), |(least, most), now| (now.min(least), now.max(most)))
    }

    fn by_group(level: i64) -> f64 {
        2.0 * (level as f64 / 8.0).exp2()
    }

    #[test]
    fn limits_are_kept_from_both_sides() {
        for limit in [2.0, 5.0, 10.0, 20.0] {
            for others in [60.0, 1024.0, 40.0 * 1024.0] {
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, 8.0);
                let shares = shares(&mut control, 1_000, by_group, |_| others);
                let (_, most) = slowdowns(&shares);
                assert!(most <= limit, "limit {limit} beside {others}: {most}");
                let (least, _) = slowdowns(&shares[150..]);
                assert!(least >= 0.8 * limit, "limit {limit} beside {others}: {least}");
                assert!((control.worst() - most).abs() < 0.01 * most, "{} {most}", control.worst());
            }
        }
    }

    #[test]
    fn a_job_that_runs_in_slices_gets_no_more_than_it_must() {
        for limit in [2.0, 5.0, 10.0, 20.0] {
            for seed in 0..16_u64 {
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, 8.0);
                let had = by_chance(seed, 1, SLICES_A_TICK);
                let shares = sliced(&mut control, 2_000, by_group, |_| 36.0 * 1024.0, had);
                let (_, most) = slowdowns(&shares);
                assert!(most <= limit, "limit {limit}, seed {seed}: {most}");
                let over_all = shares.len() as f64 / shares.iter().sum::<f64>();
                assert!(over_all >= 0.82 * limit, "limit {limit}, seed {seed}: {over_all}");
            }
        }
    }

    /// Where what comes of a share is mostly chance, and what the others weigh sways: as was measured beside a busy server.
    #[test]
    fn what_chance_took_is_had_before_ten_seconds_are_over() {
        for limit in [5.0, 10.0, 20.0] {
            for seed in 0..32_u64 {
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, 8.0);
                let had = by_chance(seed, 2, SLICES_A_TICK / 2);
                let (mut rng, mut sway) = (rng::seeded(seed, 3), 0.0_f64);
                let others: Vec<f64> = (0..2_000)
                    .map(|_| {
                        sway = 0.9 * sway + rng.random_range(-0.23..0.23);
                        3.0 * 1024.0 * sway.exp()
                    })
                    .collect();
                let shares = sliced(&mut control, 2_000, by_group, |tick| others[tick as usize], had);
                let (_, most) = slowdowns(&shares);
                let over_all = shares.len() as f64 / shares.iter().sum::<f64>();
                assert!(most <= limit, "limit {limit}, seed {seed}: {most}");
                assert!(over_all >= 0.82 * limit, "limit {limit}, seed {seed}: {over_all}");
            }
        }
    }

    #[test]
    fn half_a_second_without_a_slice_is_no_reason_to_let_it_have_all() {
        for limit in [2.0, 5.0, 10.0, 20.0] {
            for period in [70, 90] {
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, 8.0);
                // What it does not get in half a second comes later.
                let (mut tick, mut owed) = (0, 0.0);
                let had = |share: f64| {
                    tick += 1;
                    if tick % period < 5 {
                        owed += share;
                        return 0.0;
                    }
                    let again = owed / 5.0;
                    owed -= again;
                    (share + again).min(1.0)
                };
                let shares = sliced(&mut control, 2_000, by_group, |_| 36.0 * 1024.0, had);
                let (_, most) = slowdowns(&shares);
                assert!(most <= limit, "limit {limit}, every {period} ticks: {most}");
                let over_all = shares.len() as f64 / shares.iter().sum::<f64>();
                assert!(over_all >= 0.82 * limit, "limit {limit}, every {period} ticks: {over_all}");
            }
        }
    }

    #[test]
    fn they_are_kept_when_others_come_and_go() {
        for limit in [2.0, 5.0, 10.0, 20.0] {
            for period in [30, 170, 400] {
                // From nobody to forty at once, at whatever level the job has come to.
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, 8.0);
                let others =
                    |tick: u64| if (tick / period).is_multiple_of(2) { 512.0 } else { 40.0 * 1024.0 };
                let shares = shares(&mut control, 3_000, by_group, others);
                let (_, most) = slowdowns(&shares);
                assert!(most <= limit, "limit {limit}, period {period}: {most}");
            }
        }
    }

    #[test]
    fn nice_levels_are_coarse_but_the_limit_is_kept() {
        let by_nice = |level: i64| 1024.0 * 1.25f64.powi(level as i32);
        for limit in [2.0, 5.0, 10.0, 20.0] {
            let mut control = MaxSlowdown::new(limit, -19..=20, 0, 3.1);
            let shares = shares(&mut control, 1_000, by_nice, |_| 12.0 * 1024.0);
            let (least, _) = slowdowns(&shares[150..]);
            let (_, most) = slowdowns(&shares);
            assert!(most <= limit, "limit {limit}: {most}");
            assert!(least >= 0.7 * limit, "limit {limit}: {least}");
        }
    }

    #[test]
    fn whoever_slows_nobody_is_left_alone() {
        let mut control = MaxSlowdown::new(5.0, 0..=136, 72, 8.0);
        let weight = |level| {
            assert_eq!(level, 72);
            by_group(level)
        };
        shares(&mut control, 200, weight, |_| 0.0);
        assert_eq!(control.worst(), 1.0);
    }
}
