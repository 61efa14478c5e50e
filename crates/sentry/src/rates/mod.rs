//! Rate control at the entry: how many requests of each class a controller lets into the fleet ([`plimsoll_rlqs`]).
//!
//! It stands before the police and the gate. What a fleet behind the servers can carry they cannot know; what gets in is theirs to judge.
//! The controller is followed beside the data path, which reads what was said last in a few atomics.

pub mod limit;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::config::{Class, Mode, SentryRates};
use plimsoll_core::{ClassId, Mechanism, Nanos, Refusal, Verdict};
use plimsoll_rlqs::STEP;
use plimsoll_rlqs::assignment::Assignment;
use plimsoll_rlqs::client::{self, Quotas, Settings, Usage};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::clock;
use crate::decisions::Stage;
use crate::state::{ClassRoute, Shared};
use crate::thread::View;

/// How often the config is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// What the last step weighs in what is said to arrive: half of it is from the last second.
const WEIGHT: f64 = 0.16;

impl View {
    /// Why a request of this class may not enter the fleet, where that is enforced. Counts and logs it in any case.
    #[inline]
    pub fn beyond_rate(&self, class: ClassId, now: Nanos) -> Option<Refusal> {
        let refusal = self.class(class).limit.offer(now)?;
        let rates = &self.routing.config.sentry.rates;
        let enforced = rates.as_ref().is_some_and(|rates| rates.mode == Mode::Enforce);
        self.log_as(class, now, Stage::Entry, Verdict::Refuse(refusal), enforced);
        enforced.then_some(refusal)
    }
}

/// Follows the controllers that the config names, for ever; without any, lifts all limits.
pub async fn follow(shared: Arc<Shared>) {
    loop {
        let settings = shared.routing().load().config.sentry.rates.clone();
        let reports = Reports { shared: &shared, counted: Mutex::default() };
        tokio::select! {
            () = listen(&shared, settings.as_ref(), &reports) => {}
            () = steps(&shared) => {}
            () = changed(&shared, settings.as_ref()) => {}
        }
    }
}

async fn listen(shared: &Shared, rates: Option<&SentryRates>, reports: &Reports<'_>) {
    shared.rates.connected.store(false, Relaxed);
    let Some(rates) = rates.filter(|rates| rates.mode != Mode::Off) else {
        for_classes(shared, |_, route| route.limit.lift());
        return std::future::pending().await;
    };
    let settings = Settings {
        controllers: rates.controllers.iter().map(ToString::to_string).collect(),
        token: rates.token.as_ref().map(|token| token.reveal().to_owned()),
        clock: clock::now,
    };
    // Whom other controllers, or the same with another state, call the leader is another question.
    shared.rates.revision.store(0, Relaxed);
    client::follow(&settings, reports, &shared.rates).await;
}

/// Step by step: notes what arrives, and relaxes what nobody has renewed.
async fn steps(shared: &Shared) {
    let mut ticks = interval(STEP.into());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut meters: HashMap<String, (u64, f64)> = HashMap::new();
    let mut before = clock::now();
    loop {
        ticks.tick().await;
        let now = clock::now();
        let span_s = now.since(std::mem::replace(&mut before, now)).as_secs_f64();
        let (mut seen, sentries) = (HashMap::new(), shared.share().of());
        for_classes(shared, |class, route| {
            route.limit.relax(promised(class, sentries), now);
            let offered = route.stats.sum(|shard| &shard.offered);
            let per_s = match meters.get(&class.name) {
                Some((counted, per_s)) if span_s > 0.0 => {
                    per_s + WEIGHT * (offered.saturating_sub(*counted) as f64 / span_s - per_s)
                }
                _ => 0.0,
            };
            route.limit.note_offered(per_s);
            seen.insert(class.name.clone(), (offered, per_s));
        });
        meters = seen;
    }
}

async fn changed(shared: &Shared, rates: Option<&SentryRates>) {
    while shared.routing().load().config.sentry.rates.as_ref() == rates {
        sleep(LOOK).await;
    }
}

fn for_classes(shared: &Shared, mut act: impl FnMut(&Class, &ClassRoute)) {
    let routing = shared.routing().load();
    routing.config.classes.iter().zip(&routing.classes).for_each(|(class, route)| act(class, route));
}

/// What a class is promised here: promises are divided among sentries that share their servers, as the police does.
fn promised(class: &Class, sentries: u32) -> f64 {
    class.min_rate.map_or(0.0, |rate| rate.per_s) / f64::from(sentries)
}

/// What is counted, to the controller; what it assigns, to the limits.
struct Reports<'a> {
    shared: &'a Shared,
    /// Up to the last report, by class: what arrived, and what was turned away.
    counted: Mutex<HashMap<String, [u64; 2]>>,
}

impl Quotas for Reports<'_> {
    fn usage(&self) -> Vec<Usage> {
        let mut counted = self.counted.lock();
        let (mut now, mut usages) = (HashMap::new(), Vec::new());
        for_classes(self.shared, |class, route| {
            // What was turned away first: what is counted meanwhile must not seem to have been let in without having come. The police and
            // the gate turn away, too, and what they did never entered the fleet.
            let of = |mechanism: &Mechanism| route.stats.sum(|shard| shard.refused(*mechanism));
            let turned_away: u64 = Mechanism::ALL.iter().map(of).sum();
            let arrived = route.stats.sum(|shard| &shard.offered);
            let [arrived_before, told] = counted.get(&class.name).copied().unwrap_or_default();
            let offered = arrived.saturating_sub(arrived_before);
            // Who waited in a queue may have come before the last report. What is too much for this one is left to the next.
            let denied = turned_away.saturating_sub(told).min(offered);
            usages.push(Usage { class: class.name.clone(), allowed: offered - denied, denied });
            let counts = [arrived, told + denied];
            now.insert(class.name.clone(), counts);
        });
        *counted = now;
        usages
    }

    fn assign(&self, name: &str, assignment: Assignment) {
        let sentries = self.shared.share().of();
        for_classes(self.shared, |class, route| {
            if class.name == name {
                route.limit.assign(assignment, promised(class, sentries), clock::now());
            }
        });
    }
}
