//! Decides how much of each class may enter the fleet: joins, once a step, what the fleet is and how busy it is ([`telemetry`]) with what
//! comes and how it fares where it enters, and asks [`plimsoll_ratecontrol`].
//!
//! It has a task of its own and reads the sentries itself, several times a second: one that hangs holds up no decision for longer than
//! a step, and no plan at all.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use plimsoll_core::config::{Class, Config, RateDecider, Secret};
use plimsoll_core::{Nanos, Statistic};
use plimsoll_ratecontrol::aimd::Aimd;
use plimsoll_ratecontrol::mimd::Mimd;
use plimsoll_ratecontrol::{
    ApiSignal, Controller, Decision, Observation, RateControl, Settings, Topology, model,
};
use plimsoll_rlqs::fleet::Demand;
use plimsoll_sentry::clock;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::measure::Meter;
use crate::outcome::Outcome;
use crate::rates::{Decided, FleetRates};
use crate::sentries::read;
use crate::telemetry::Telemetry;
use crate::telemetry::fleet::Directory;

/// What decides, as the config says; nothing where nothing is to.
pub fn settings(decider: RateDecider) -> Option<Settings> {
    let controller = match decider {
        RateDecider::Model => Controller::Model(model::Settings::default()),
        RateDecider::Mimd => Controller::Mimd(Mimd::default()),
        RateDecider::TopfullBw => Controller::Aimd(Aimd::default()),
        RateDecider::None => return None,
    };
    Some(Settings { controller, ..Settings::default() })
}

/// Decides, step by step, from here on. `addresses` are those of the sentries' admin pages. Should it end, which it does for a defect alone,
/// what it decided last must not hold for ever: everything is open then.
pub fn start(
    decider: Decider,
    step: Nanos,
    rates: Rc<FleetRates>,
    addresses: watch::Receiver<Vec<SocketAddr>>,
) {
    let classes = decider.config.classes.len();
    let deciding = spawn_local(run(decider, step, Rc::clone(&rates), addresses));
    spawn_local(async move {
        let ended = deciding.await;
        log::error!(ended:?; "nobody decides rates any more");
        rates.decide(Decided { per_s: vec![None; classes], ..Decided::default() }, clock::now());
    });
}

async fn run(
    mut decider: Decider,
    step: Nanos,
    rates: Rc<FleetRates>,
    addresses: watch::Receiver<Vec<SocketAddr>>,
) {
    let step = Duration::from(step);
    let mut entries = Entries { token: decider.config.sentry.admin_token.clone(), meters: HashMap::new() };
    let mut ticks = interval(step);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sentries = addresses.borrow().clone();
        let seen = entries.look(&sentries, clock::now(), step).await;
        let now = clock::now();
        rates.decide(decider.step(now, rates.demand().as_deref(), &seen), now);
    }
}

/// What was counted of one class at the entries since the last step.
#[derive(Clone, Debug, Default)]
pub struct Entered {
    offered_per_s: f64,
    refused_per_s: f64,
    /// Of those sentries that say.
    outcome: Outcome,
}

/// What was seen at the entries.
#[derive(Debug, Default)]
pub struct Seen {
    classes: HashMap<String, Entered>,
    /// Whether every sentry answered, so that sums are whole.
    is_whole: bool,
}

/// The sentries' counters.
struct Entries {
    token: Option<Secret>,
    /// By sentry and pool.
    meters: HashMap<SocketAddr, HashMap<String, Meter>>,
}

impl Entries {
    /// Reads all of them; one that has not answered within `patience` has not. Whoever plans says so in the log.
    async fn look(&mut self, sentries: &[SocketAddr], now: Nanos, patience: Duration) -> Seen {
        let token = self.token.as_ref();
        let answers = join_all(sentries.iter().map(|&sentry| timeout(patience, read(sentry, token)))).await;
        self.meters.retain(|sentry, _| sentries.contains(sentry));
        let mut seen = Seen { is_whole: true, ..Seen::default() };
        for (sentry, answer) in sentries.iter().zip(answers) {
            let Ok(Ok(reading)) = answer else {
                seen.is_whole = false;
                continue;
            };
            let meters = self.meters.entry(*sentry).or_default();
            for pool in &reading.pools {
                let Some(rates) = meters.entry(pool.name.clone()).or_default().rates(now, pool) else {
                    seen.is_whole = false;
                    continue;
                };
                for rates in rates {
                    let class = seen.classes.entry(rates.name).or_default();
                    class.offered_per_s += rates.per_s;
                    class.refused_per_s += rates.refused_per_s;
                    seen.is_whole &= rates.outcome.is_some();
                    class.outcome =
                        std::mem::take(&mut class.outcome).and(&rates.outcome.unwrap_or_default());
                }
            }
        }
        seen
    }
}

/// What is known of the fleet, and what follows from it.
pub struct Decider {
    config: Config,
    telemetry: Telemetry,
    directory: Directory,
    topology: Topology,
    control: RateControl,
    /// Up to when it was taken in how busy services are.
    told: Nanos,
}

impl Decider {
    /// Knows nothing yet, and limits nobody.
    pub fn new(config: Config, telemetry: Telemetry, settings: Settings) -> Decider {
        let control = RateControl::new(settings);
        Decider {
            telemetry,
            directory: Directory::default(),
            topology: Topology::default(),
            control,
            told: Nanos::ZERO,
            config,
        }
    }

    /// One step. `demand` is what those report who are told the rates, by class; where there is nobody, it is what the sentries count.
    pub fn step(&mut self, now: Nanos, demand: Option<&[Demand]>, seen: &Seen) -> Decided {
        if self.telemetry.learnt.has_changed().unwrap_or(false) || self.topology.apis().is_empty() {
            let learnt = Arc::clone(&self.telemetry.learnt.borrow_and_update());
            self.topology = self.directory.topology(&self.config, &learnt.paths);
        }
        let usage = Arc::clone(&self.telemetry.usage.borrow());
        let mut services = self.directory.signals(&usage, self.told);
        services.truncate(self.topology.services());
        self.told = usage.services.iter().map(|known| known.at).max().unwrap_or(self.told).max(self.told);
        let class = |(at, class): (usize, &Class)| signal(class, demand.and_then(|all| all.get(at)), seen);
        let apis: Vec<ApiSignal> = self.config.classes.iter().enumerate().map(class).collect();
        let step = self.control.step(now, &self.topology, &Observation { services: &services, apis: &apis });
        let name = |service| self.directory.name(service).unwrap_or("?").to_owned();
        let mut why = vec![None; apis.len()];
        for decision in step.decisions {
            let class = &self.config.classes[decision.api.index()].name;
            let target = decision.target.map(name);
            let reason = match &target {
                Some(target) => format!("{}, for {target}", decision.why),
                None => decision.why.to_string(),
            };
            say(class, decision, &reason);
            why[decision.api.index()] = Some(reason);
        }
        Decided { per_s: step.rates.to_vec(), why, overloaded: step.overload.iter().map(name).collect() }
    }
}

/// A limit that comes or goes is news; how it changes in between is for `/plan` and the metrics.
fn say(class: &str, decision: &Decision, reason: &str) {
    match (decision.before_per_s, decision.rate_per_s) {
        (None, Some(rate)) => log::info!(class, per_s = rate.round(), reason; "entry limited"),
        (Some(_), None) => log::info!(class, reason; "entry open"),
        _ => {}
    }
}

/// What is known of one class in this step.
fn signal(class: &Class, demand: Option<&Demand>, seen: &Seen) -> ApiSignal {
    let entered = seen.classes.get(&class.name);
    let (offered, admitted) = match (demand, entered) {
        (Some(demand), _) => (Some(demand.offered_per_s), Some(demand.admitted_per_s)),
        (None, Some(entered)) => {
            (Some(entered.offered_per_s), Some((entered.offered_per_s - entered.refused_per_s).max(0.0)))
        }
        (None, None) => (None, None),
    };
    let percentile = class.slo.targets().iter().rev().find_map(|(statistic, _)| match statistic {
        Statistic::Percentile(percentile) => Some(percentile.fraction()),
        Statistic::Mean => None,
    });
    let tail_ms = entered.zip(percentile).and_then(|(entered, share)| entered.outcome.tail_ms(share));
    ApiSignal {
        offered_per_s: offered,
        admitted_per_s: admitted,
        goodput_per_s: entered.filter(|_| seen.is_whole).map(|entered| entered.outcome.goodput_per_s),
        tail_latency: tail_ms.map(|ms| Nanos::from_secs_f64(ms / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::parse;
    use plimsoll_ratecontrol::paths::{ApiPaths, PathBranch, Paths, Visit};

    use super::*;
    use crate::telemetry::Learnt;
    use crate::telemetry::usage::{Known, Usage};

    const STEP: Nanos = Nanos::from_millis(250);

    /// A fleet whose catalog does 100 requests a second; carts are of no service that is known to be busy.
    struct Shop {
        decider: Decider,
        usage: watch::Sender<Arc<Usage>>,
        _learnt: watch::Sender<Arc<Learnt>>,
        now: Nanos,
        limits: Decided,
        reasons: Vec<String>,
    }

    fn branch(services: &[&str]) -> PathBranch {
        let visit = |service: &&str| Visit { service: (*service).into(), calls: 1.0 };
        PathBranch { share: 1.0, is_rest: false, visits: services.iter().map(visit).collect() }
    }

    impl Shop {
        fn new(decider: RateDecider) -> Shop {
            let text = "[pool.shop]\nservers = [\"127.0.0.1:1\"]
                [class.browse]\nmatch = [{ path = \"/product/{id}\" }]\nslo = { p95 = \"200ms\" }
                [class.cart]\nmatch = [{ path = \"/cart\" }]\nslo = { p95 = \"200ms\" }";
            let config = parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
            let api = |operation: &str, services: &[&str]| ApiPaths {
                service: "frontend".into(),
                operation: operation.into(),
                requests: 100.0,
                failed: 0.0,
                branches: vec![branch(services)],
            };
            let apis =
                vec![api("GET /product/{id}", &["frontend", "catalog"]), api("GET /cart", &["frontend"])];
            let learnt = Learnt { paths: Paths { apis, ..Paths::default() }, ..Learnt::default() };
            let (learnt, learnt_now) = watch::channel(Arc::new(learnt));
            let (usage, usage_now) = watch::channel(Arc::default());
            let telemetry = Telemetry { learnt: learnt_now, usage: usage_now, listening: Vec::new() };
            let decider = Decider::new(config, telemetry, settings(decider).unwrap());
            let limits = Decided { per_s: vec![None; 3], ..Decided::default() };
            Shop { decider, usage, _learnt: learnt, now: Nanos::from_secs(1), limits, reasons: Vec::new() }
        }

        /// So many seconds in which so much is sent of either.
        fn run(&mut self, seconds: u64, browse_per_s: f64, cart_per_s: f64) {
            for _ in 0..seconds * 4 {
                self.now += STEP;
                let enters =
                    |at: usize, sent: f64| self.limits.per_s[at].map_or(sent, |limit| sent.min(limit));
                let (browse, cart) = (enters(0, browse_per_s), enters(1, cart_per_s));
                let known = |service: &str, utilization: f64| Known {
                    service: service.to_owned(),
                    utilization,
                    at: self.now,
                    changed: self.now,
                };
                let services = vec![
                    known("catalog", (browse / 100.0).min(1.0)),
                    known("frontend", (browse + cart) / 1e4),
                ];
                self.usage.send_replace(Arc::new(Usage { services, ..Usage::default() }));
                let demand = [(browse_per_s, browse), (cart_per_s, cart), (0.0, 0.0)];
                let demand =
                    demand.map(|(offered_per_s, admitted_per_s)| Demand { offered_per_s, admitted_per_s });
                self.limits = self.decider.step(self.now, Some(&demand), &self.seen(browse, cart));
                self.reasons.extend(self.limits.why.iter().flatten().cloned());
            }
        }

        /// Beyond what the catalog does all are late.
        fn seen(&self, browse: f64, cart: f64) -> Seen {
            let late = browse > 100.0;
            let outcome = |per_s: f64, ms: u64, good: bool| {
                let counted = |n: f64| crate::outcome::Responses {
                    good: if good { n } else { 0.0 },
                    took_us: [(ms * 1_000, n)].into(),
                };
                Outcome::between(&counted(0.0), &counted(per_s), 1.0).unwrap()
            };
            let entered = |outcome| Entered { outcome, ..Entered::default() };
            let browse = entered(outcome(browse.min(100.0), if late { 900 } else { 50 }, !late));
            let cart = entered(outcome(cart, 10, true));
            Seen {
                classes: [("browse".to_owned(), browse), ("cart".to_owned(), cart)].into(),
                is_whole: true,
            }
        }
    }

    #[test]
    fn what_the_path_can_carry_enters_and_nobody_else_is_limited() {
        for decider in [RateDecider::Model, RateDecider::Mimd, RateDecider::TopfullBw] {
            let mut shop = Shop::new(decider);
            shop.run(5, 60.0, 500.0);
            assert_eq!(shop.limits.per_s, [None; 3], "{decider}");
            shop.run(30, 300.0, 500.0);
            let limit = shop.limits.per_s[0].unwrap_or_else(|| panic!("{decider}: none"));
            assert!((60.0..=115.0).contains(&limit), "{decider}: {limit}");
            assert_eq!(shop.limits.per_s[1..], [None; 2], "{decider}");
            assert!(shop.reasons.iter().any(|reason| reason.contains("for catalog")), "{:?}", shop.reasons);
            shop.run(30, 30.0, 500.0);
            assert_eq!(
                shop.limits,
                Decided { per_s: vec![None; 3], why: vec![None; 3], overloaded: Vec::new() },
                "{decider}"
            );
        }
    }

    #[test]
    fn where_nothing_is_told_nobody_is_limited_and_what_holds_is_let_go() {
        let mut shop = Shop::new(RateDecider::Model);
        shop.run(30, 300.0, 500.0);
        assert!(shop.limits.per_s[0].is_some());
        for _ in 0..4 * 200 {
            shop.now += STEP;
            shop.limits = shop.decider.step(shop.now, None, &Seen::default());
        }
        assert_eq!(shop.limits.per_s, [None; 3], "nothing was heard for minutes");
    }

    #[test]
    fn a_service_that_was_never_seen_in_a_trace_limits_nobody_however_busy() {
        let mut shop = Shop::new(RateDecider::Model);
        for _ in 0..4 * 20 {
            shop.now += STEP;
            let (service, at) = ("unheard of".to_owned(), shop.now);
            let busy = Known { service, utilization: 1.0, at, changed: at };
            shop.usage.send_replace(Arc::new(Usage { services: vec![busy], ..Usage::default() }));
            let demand = Demand { offered_per_s: 300.0, admitted_per_s: 300.0 };
            let decided = shop.decider.step(shop.now, Some(&[demand; 3]), &shop.seen(300.0, 300.0));
            assert_eq!((decided.per_s, decided.overloaded), (vec![None; 3], Vec::new()));
        }
    }

    #[test]
    fn without_anybody_who_reports_the_sentries_counts_tell_what_comes() {
        let config = parse::<Config>(
            "[pool.shop]\nservers = [\"127.0.0.1:1\"]\n[class.cart]\nmatch = [{ path = \"/cart\" }]\nslo = { p50 = \"1ms\", p90 = \"5ms\" }",
            "",
        );
        let class = config.unwrap_or_else(|errors| panic!("{errors}")).0.classes.remove(0);
        let took = crate::outcome::Responses { good: 7.0, took_us: [(2_000, 8.0), (9_000, 2.0)].into() };
        let outcome = Outcome::between(&crate::outcome::Responses::default(), &took, 1.0).unwrap();
        let entered = Entered { offered_per_s: 30.0, refused_per_s: 20.0, outcome };
        let mut seen = Seen { classes: [("cart".to_owned(), entered)].into(), is_whole: true };
        let counted = signal(&class, None, &seen);
        let expected = ApiSignal {
            offered_per_s: Some(30.0),
            admitted_per_s: Some(10.0),
            goodput_per_s: Some(7.0),
            tail_latency: Some(Nanos::from_millis(9)),
        };
        assert_eq!(counted, expected);
        seen.is_whole = false;
        assert_eq!(signal(&class, None, &seen).goodput_per_s, None, "a part is not the sum");
        let demand = Demand { offered_per_s: 50.0, admitted_per_s: 40.0 };
        let told = signal(&class, Some(&demand), &seen);
        assert_eq!(
            (told.offered_per_s, told.admitted_per_s),
            (Some(50.0), Some(40.0)),
            "Envoys are among these"
        );
        assert_eq!(signal(&class, None, &Seen::default()), ApiSignal::default());
    }
}
