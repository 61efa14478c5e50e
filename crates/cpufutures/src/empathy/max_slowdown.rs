//! Never slower than so many times, and no more than is needed for that (section 5.2): the search of section 5.1 over the job's
//! share.
//!
//! A share that is clearly wrong is not searched from: the next is where it should be if all share by weight (Eq. 5), and the
//! search goes on from there.
//!
//! What the job is slowed by is what it desires over what it gets, since the share was last set. A job runs in slices, so that is as
//! often too much as too little, and a limit that must not be exceeded makes more of the one than of the other. So what it is held to follows
//! what came of it over the seconds before: what was lost is made up for, and what was had too much is given back.

use std::ops::RangeInclusive;

use super::Seen;
use super::window::{Got, WINDOW, Window};
use crate::search::{Search, Verdict};
use plimsoll_core::Nanos;

/// Of the time over which the limit holds, this much is looked back on: what comes next is the rest.
const LOOK_BACK: Nanos = Nanos::from_secs(9);
/// The slowdown is kept within these parts of the limit,
const BAND: RangeInclusive<f64> = 0.84..=0.92;
/// moved by what it was over the look back: never beyond this part of the limit over both,
const MOST: f64 = 0.92;
/// but up by no more than this part,
const MOST_UP: f64 = 1.2;
/// and down by no more than this part of what is beyond 1: others that have next to nothing of the CPU are whoever holds the job back, too.
const MOST_DOWN: f64 = 0.5;
/// Beyond so many times the band a share is wrong whatever chance there was in it.
const CLEARLY: f64 = 1.5;
/// A share is believed to be what it was set for until it was seen for longer than this, in milliseconds of the job's CPU time: slices come in
/// bursts, and half a second without any does not make a share nothing.
const BELIEVED_MS: f64 = 15.0;
/// How long a share is tried that is not clearly wrong,
const TRIAL: Nanos = Nanos::from_millis(400);
/// and how much of the CPU the job must be due in that time: it comes in slices of some milliseconds.
const TRIAL_DUE_MS: f64 = 60.0;
/// As much, due or had, for one that is clearly wrong,
const CLEARLY_DUE_MS: f64 = 30.0;
/// in so long at least: the counters of a look are not all of the same moment.
const CLEARLY_TRIAL: Nanos = Nanos::from_millis(180);
/// The most levels that the share falls at once; it may rise by all: to err on the job's side is to err on the right one.
const MOST_FALL: i64 = 24;
/// Levels that are no weights take so many times longer to tell: they are whole ticks.
const COARSE: u64 = 5;
/// Where ten seconds that end with the next look would be beyond this part of the limit, the job has what is missing at once,
const SAFE: f64 = 0.94;
/// but no more than so many times its share,
const MOST_URGENT: f64 = 4.0;
/// once it was looked at for so long: of less, little can be told.
const TELLING: Nanos = Nanos::from_secs(5);
/// Others that wait less, in milliseconds a second, are not helped by a smaller share.
const BEARABLE_MS_PER_S: f64 = 10.0;

/// The controller.
#[derive(Clone, Debug)]
pub struct MaxSlowdown {
    limit: f64,
    levels: RangeInclusive<i64>,
    /// Levels for a doubling of the job's weight; none where they are not weights.
    doubling: Option<f64>,
    search: Search,
    trial: Nanos,
    /// What the share before was found to be, clearly: this one is believed less for it.
    clearly: Option<Verdict>,
    since_set: Got,
    /// How many times the share that is searched the job has had since the last look.
    urgency: f64,
    window: Window,
}

impl MaxSlowdown {
    /// One that keeps the slowdown below `limit`, above 1, by levels of which the greater ones give the job more; `start` is the
    /// first. `doubling` levels double the job's weight; where they are no weights, they need a longer trial too.
    pub fn new(limit: f64, levels: RangeInclusive<i64>, start: i64, doubling: Option<f64>) -> MaxSlowdown {
        MaxSlowdown {
            limit,
            search: Search::new(levels.clone(), start),
            levels,
            doubling,
            clearly: None,
            trial: if doubling.is_some() { TRIAL } else { Nanos(TRIAL.0 * COARSE) },
            since_set: Got::default(),
            urgency: 1.0,
            window: Window::default(),
        }
    }

    /// The level to use until the next look.
    pub fn level(&mut self, now: Nanos, seen: &Seen) -> i64 {
        let got = Got::of(seen);
        self.window.remember(got);
        // What it would have had of the share that is searched.
        self.since_set.add(Got { ran_ms: got.ran_ms / self.urgency, ..got });
        let level = self.searched(now);
        self.urgency = self.urgency(got);
        let more = self.doubling.map_or(0.0, |doubling| doubling * self.urgency.log2());
        (level + more.ceil() as i64).min(*self.levels.end())
    }

    /// How many times its share the job is to have in one more look, as long as the last, to be within the limit over the ten seconds that end with that.
    fn urgency(&self, last: Got) -> f64 {
        let before = self.window.over(WINDOW.since(last.length));
        if self.doubling.is_none() || before.length < TELLING || last.desired_ms <= 0.0 {
            return 1.0;
        }
        let lacks_ms = (before.desired_ms + last.desired_ms) / (self.limit * SAFE) - before.ran_ms;
        let (least, most) = self.band();
        let share = 2.0 / (least + most);
        (lacks_ms / last.desired_ms / share).clamp(1.0, MOST_URGENT)
    }

    /// What the search is at.
    fn searched(&mut self, now: Nanos) -> i64 {
        let Some((verdict, slowdown)) = self.verdict() else { return self.search.value() };
        let before = self.search.value();
        let estimated = self.estimated(verdict);
        self.clearly = estimated.map(|_| verdict);
        let level = match estimated {
            Some(level) => {
                self.search = Search::new(self.levels.clone(), level);
                self.search.value()
            }
            None => {
                // Of two neighbours the one that is nearer to the limit is better, and none that is above.
                let off = self.band().1 - slowdown;
                self.search.measured(now, verdict, if off < 0.0 { self.limit - off } else { off })
            }
        };
        if level != before || self.is_tried() {
            self.since_set = Got::default();
        }
        level
    }

    /// The level at which the job would be slowed as it may be, if that is far from here.
    fn estimated(&self, verdict: Verdict) -> Option<i64> {
        let (least, most) = self.band();
        let slowdown = self.believed(verdict);
        let far = slowdown > most * CLEARLY || slowdown < least / CLEARLY;
        let doubling = self.doubling.filter(|_| far && verdict != Verdict::Right)?;
        // Others weigh as much as the job times what it is slowed beyond 1.
        let beyond = (slowdown - 1.0).clamp(0.01, 100.0 * self.limit);
        let by = (doubling * (beyond / ((least + most) / 2.0 - 1.0).max(0.05)).log2()).round() as i64;
        Some(self.search.value() + by.max(-MOST_FALL))
    }

    /// The least and the most that the job is to be slowed for now, so that what it was slowed before and this are what it may be.
    fn band(&self) -> (f64, f64) {
        let middle = (BAND.start() + BAND.end()) / 2.0;
        let aim = self.limit * middle;
        let before = self.window.over(LOOK_BACK).slowdown();
        // What is had too much is given back slowly: at once, it would be too little ten seconds later, and so on in circles.
        let given_back = (aim / before).clamp(1.0, MOST_UP) * aim;
        // What was too little is made up for as soon as the limit is near, in what is left of its time.
        let before_part = LOOK_BACK.0 as f64 / WINDOW.0 as f64;
        let most = self.limit * MOST;
        let left = 1.0 - before_part * most / before;
        let made_up = if left > 0.0 { most * (1.0 - before_part) / left } else { f64::INFINITY };
        let next = given_back.min(made_up).max(1.0 + MOST_DOWN * (aim - 1.0)) / middle;
        (next * BAND.start(), next * BAND.end())
    }

    /// Whether the share was in force long enough to tell how large it is.
    fn is_tried(&self) -> bool {
        self.since_set.length >= self.trial && self.due_ms() >= TRIAL_DUE_MS
    }

    /// What the job is due since its share was set.
    fn due_ms(&self) -> f64 {
        self.since_set.desired_ms / self.limit
    }

    /// How many times slower the job is with its share, by what that was set for and by what was seen since; by this alone where it would be
    /// the second to be wrong in the same way.
    fn believed(&self, verdict: Verdict) -> f64 {
        if self.clearly == Some(verdict) {
            return self.since_set.slowdown();
        }
        let (least, most) = self.band();
        let aim = (least + most) / 2.0;
        let believed = Got { desired_ms: BELIEVED_MS * aim, ran_ms: BELIEVED_MS, ..Got::default() };
        let mut seen = self.since_set;
        seen.add(believed);
        seen.slowdown()
    }

    /// What the share since it was set is to be called, where that can be said yet.
    fn verdict(&self) -> Option<(Verdict, f64)> {
        let (least, most) = self.band();
        let slowdown = self.since_set.slowdown();
        let length = self.since_set.length;
        if length == Nanos::ZERO || self.since_set.desired_ms <= 0.0 {
            return None;
        }
        let tried = self.is_tried();
        let clear = length >= CLEARLY_TRIAL && self.due_ms().max(self.since_set.ran_ms) >= CLEARLY_DUE_MS;
        if slowdown > most && (tried || (clear && self.believed(Verdict::TooLow) > most * CLEARLY)) {
            return Some((Verdict::TooLow, slowdown));
        }
        let wait_per_s = self.since_set.others_waited_ms * 1e9 / length.0 as f64;
        if slowdown < least && (tried || (clear && self.believed(Verdict::TooHigh) < least / CLEARLY)) {
            let helps = wait_per_s > BEARABLE_MS_PER_S;
            return Some((if helps { Verdict::TooHigh } else { Verdict::Right }, slowdown));
        }
        tried.then_some((Verdict::Right, slowdown))
    }

    /// How many times slower the job was over the worst ten seconds, or over all if it ran no longer.
    pub fn worst(&self) -> f64 {
        self.window.worst()
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
        let mut level = control.search.value();
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
                level = control.level(Nanos(TICK.0 * (tick + 1)), &seen);
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
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, Some(8.0));
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
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, Some(8.0));
                let had = by_chance(seed, 1, SLICES_A_TICK);
                let shares = sliced(&mut control, 2_000, by_group, |_| 36.0 * 1024.0, had);
                let (_, most) = slowdowns(&shares);
                assert!(most <= limit, "limit {limit}, seed {seed}: {most}");
                let over_all = shares.len() as f64 / shares.iter().sum::<f64>();
                assert!(over_all >= 0.82 * limit, "limit {limit}, seed {seed}: {over_all}");
            }
        }
    }

    /// Where what comes of a share is mostly chance, as beside a server whose slices are long.
    #[test]
    fn what_chance_took_is_had_before_ten_seconds_are_over() {
        for limit in [5.0, 10.0, 20.0] {
            for seed in 0..32_u64 {
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, Some(8.0));
                let had = by_chance(seed, 2, SLICES_A_TICK / 2);
                let shares = sliced(&mut control, 2_000, by_group, |_| 36.0 * 1024.0, had);
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
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, Some(8.0));
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
                let mut control = MaxSlowdown::new(limit, 0..=136, 72, Some(8.0));
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
            let mut control = MaxSlowdown::new(limit, -19..=20, 0, Some(3.1));
            let shares = shares(&mut control, 1_000, by_nice, |_| 12.0 * 1024.0);
            let (least, _) = slowdowns(&shares[150..]);
            let (_, most) = slowdowns(&shares);
            assert!(most <= limit, "limit {limit}: {most}");
            assert!(least >= 0.7 * limit, "limit {limit}: {least}");
        }
    }

    #[test]
    fn whoever_slows_nobody_is_left_alone() {
        let mut control = MaxSlowdown::new(5.0, 0..=136, 72, Some(8.0));
        shares(&mut control, 200, by_group, |_| 0.0);
        assert_eq!(control.search.value(), 72);
        assert_eq!(control.worst(), 1.0);
    }
}
