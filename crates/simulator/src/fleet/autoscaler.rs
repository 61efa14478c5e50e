//! The horizontal pod autoscaler of Kubernetes, as its documentation describes the algorithm.
//!
//! Every `every` it takes the mean utilisation since it last looked and wants as many instances as would be used to the target if the work
//! were the same: `ceil(ready * utilisation / target)`. Within a tenth of the target it does nothing. It at most doubles, or adds four,
//! at a time. It takes away no more than all it has wanted in the last `calm` would leave. Instances that start count as wanted already.

use std::collections::VecDeque;

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Autoscale, Sees};

use super::account::{Account, Counts};
use super::plan::Plan;
use super::service::Did;

/// How far from the target is near enough.
const TOLERANCE: f64 = 0.1;
/// At most so many times as many instances, or so many more, at a time.
const FASTEST: (u32, u32) = (2, 4);

/// The autoscaler of one service.
#[derive(Clone)]
pub struct Autoscaler {
    settings: Autoscale,
    /// Instances that are about to start.
    starting: u32,
    before: Did,
    counts_before: Vec<Counts>,
    /// What it has wanted lately, and when.
    wanted: VecDeque<(Nanos, u32)>,
}

/// API by API, how much work a request is at a service, and what became of them so far.
pub type Asked = Vec<(f64, Counts)>;

/// What an autoscaler that sees refused work goes by.
pub fn asked_of(plan: &Plan, service: usize, accounts: &[Account]) -> Asked {
    let load = |api: usize| {
        let paths = &plan.paths[plan.apis[api].paths.clone()];
        let visits = paths.iter().flat_map(|path| path.visits.iter().map(move |visit| (path.share, visit)));
        let here = visits.filter(|(_, visit)| visit.service as usize == service);
        here.map(|(share, visit)| share * f64::from(visit.cost)).sum()
    };
    accounts.iter().enumerate().map(|(api, account)| (load(api), account.counts)).collect()
}

impl Autoscaler {
    /// Has seen nothing yet.
    pub fn new(settings: Autoscale) -> Autoscaler {
        let before = Did::default();
        Autoscaler { settings, starting: 0, before, counts_before: Vec::new(), wanted: VecDeque::new() }
    }

    /// As the scenario has it.
    pub fn settings(&self) -> &Autoscale {
        &self.settings
    }

    /// An instance has started.
    pub fn started(&mut self) {
        self.starting = self.starting.saturating_sub(1);
    }

    /// How many instances to start, or to take away where that is negative.
    pub fn look(&mut self, now: Nanos, did: &Did, asked: &Asked, ready: u32) -> i64 {
        let (busy, there) = (did.busy_ns - self.before.busy_ns, did.worker_ns - self.before.worker_ns);
        self.before = *did;
        let mut used = if there > 0.0 { busy / there } else { 0.0 };
        if self.settings.sees == Sees::Offered {
            used *= self.offered_over_admitted(asked);
        }
        let Autoscale { target, min, max, calm, .. } = self.settings;
        let have = ready + self.starting;
        let ratio = used / target;
        let near = (ratio - 1.0).abs() <= TOLERANCE;
        let wanted = if near { have } else { (f64::from(ready) * ratio).ceil() as u32 };
        let fastest = (have * FASTEST.0).max(have + FASTEST.1);
        let wanted = wanted.min(fastest).clamp(min, max);
        self.wanted.push_back((now, wanted));
        while self.wanted.front().is_some_and(|&(at, _)| now.since(at) > calm) {
            self.wanted.pop_front();
        }
        let most = self.wanted.iter().map(|&(_, wanted)| wanted).max().unwrap_or(wanted);
        let change =
            if wanted > have { i64::from(wanted - have) } else { -i64::from(have.saturating_sub(most)) };
        self.starting += change.max(0) as u32;
        // Those that start cannot be taken away.
        change.max(-i64::from(ready.saturating_sub(1)))
    }

    /// How many times the work that was let in was sent, since the last look.
    fn offered_over_admitted(&mut self, asked: &Asked) -> f64 {
        self.counts_before.resize(asked.len(), Counts::default());
        let (mut offered, mut admitted) = (0.0, 0.0);
        for ((load, counts), before) in asked.iter().zip(&mut self.counts_before) {
            let since = counts.since(before);
            *before = *counts;
            // Retries are not demand: who was served at once would not have come again.
            let let_in = since.admitted() as f64;
            offered += load * (since.sent as f64).max(let_in);
            admitted += load * let_in;
        }
        if admitted > 0.0 { offered / admitted } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Nanos = Nanos::from_secs(15);

    fn scaler(sees: Sees) -> Autoscaler {
        let (start, calm) = (Nanos::from_secs(40), Nanos::from_secs(60));
        Autoscaler::new(Autoscale { target: 0.5, min: 1, max: 20, start, every: EVERY, calm, sees })
    }

    /// Looks after a period with this utilisation of `ready` instances of one worker.
    fn look(scaler: &mut Autoscaler, period: u64, used: f64, ready: u32) -> i64 {
        let ns = EVERY.0 as f64 * f64::from(ready);
        let did = Did {
            busy_ns: scaler.before.busy_ns + used * ns,
            worker_ns: scaler.before.worker_ns + ns,
            ..Did::default()
        };
        scaler.look(Nanos(EVERY.0 * period), &did, &Vec::new(), ready)
    }

    #[test]
    fn it_wants_what_would_be_used_to_the_target() {
        let mut scaler = scaler(Sees::Admitted);
        assert_eq!(look(&mut scaler, 1, 0.54, 4), 0, "near enough");
        assert_eq!(look(&mut scaler, 2, 1.0, 4), 4);
        assert_eq!(look(&mut scaler, 3, 1.0, 4), 0, "four are about to start");
        (0..4).for_each(|_| scaler.started());
        assert_eq!(look(&mut scaler, 4, 0.9, 8), 7);
        (0..7).for_each(|_| scaler.started());
        assert_eq!(look(&mut scaler, 5, 1.0, 15), 5, "no more than it may");
    }

    #[test]
    fn it_takes_away_only_what_it_has_long_not_wanted() {
        let mut scaler = scaler(Sees::Admitted);
        assert_eq!(look(&mut scaler, 1, 0.5, 10), 0);
        let changes: Vec<i64> = (2..=6).map(|period| look(&mut scaler, period, 0.1, 10)).collect();
        assert_eq!(changes, [0, 0, 0, 0, -8], "a minute after it last wanted ten");
    }

    #[test]
    fn refused_work_counts_where_it_is_seen() {
        let counts = Counts { sent: 3_000, attempts: 3_000, limited: 2_000, ..Counts::default() };
        let asked =
            vec![(1.0, counts), (0.0, Counts { sent: 99_999, attempts: 99_999, ..Counts::default() })];
        let did = Did { busy_ns: 0.5, worker_ns: 1.0, ..Did::default() };
        assert_eq!(scaler(Sees::Admitted).look(EVERY, &did, &asked, 4), 0);
        assert_eq!(
            scaler(Sees::Offered).look(EVERY, &did, &asked, 4),
            4,
            "as fast as it may, towards twelve"
        );
    }
}
