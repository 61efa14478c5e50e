//! Decides how much of each class may enter the fleet: joins, once a step, what the fleet is and how busy it is ([`telemetry`]) with what
//! comes and how it fares where it enters, and asks [`plimsoll_ratecontrol`].
//!
//! It has a task of its own and reads the sentries itself, several times a second: one that hangs holds up no decision for longer than
//! a step, and no plan at all.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::config::{Class, Config, ControllerRates, RateDecider};
use plimsoll_core::{Nanos, Statistic};
use plimsoll_ratecontrol::learned::guard::Handover;
use plimsoll_ratecontrol::{
    ApiSignal, Decision, Network, Observation, RateControl, ServiceId, Settings, Topology,
};
use plimsoll_rlqs::fleet::Demand;
use plimsoll_sentry::clock;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval};

use crate::entries::{Entries, Seen};
use crate::rates::{Decided, FleetRates};
use crate::record::Recorder;
use crate::recording::Recording;
use crate::telemetry::Telemetry;
use crate::telemetry::fleet::Directory;
use crate::telemetry::usage::Known;
use crate::wanted::Wanted;

/// Where those who are told the rates let in so many times what the sentries do, or more, some of them are Envoys, which count no answers.
const MORE: f64 = 1.2;

/// Where for so long no sentry has said how requests fare that enter, that is said.
const BLIND: Nanos = Nanos::from_secs(30);

/// From one list of what would come to every service to the next: whoever scales them looks more seldom.
const WANTED: Nanos = Nanos::from_secs(1);

/// What decides, as the config says; nothing where nothing is to.
///
/// # Errors
/// Where the weights that it names cannot be read.
pub fn settings(rates: &ControllerRates) -> Result<Option<Settings>, String> {
    named(rates.decide, rates.weights.as_deref())
}

/// The same by its name, with weights of one's own if it goes by any.
///
/// # Errors
/// Where those cannot be read.
pub fn named(decide: RateDecider, weights: Option<&Path>) -> Result<Option<Settings>, String> {
    let read = |file: &Path| {
        let bytes = std::fs::read(file).map_err(|error| error.to_string());
        let network = bytes.and_then(|bytes| Network::read(&bytes));
        network.map_err(|error| format!("weights = \"{}\" cannot be read: {error}", file.display()))
    };
    Ok(Settings::named(decide, weights.map(read).transpose()?))
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
    let mut entries = Entries::new(decider.config.sentry.admin_token.clone());
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

/// What is known of the fleet, and what follows from it.
pub struct Decider {
    config: Config,
    telemetry: Telemetry,
    directory: Directory,
    topology: Topology,
    control: RateControl,
    /// Up to when it was taken in how busy services are.
    told: Nanos,
    /// Since when rates are told and nobody says how requests fare; whether that was said.
    blind: (Option<Nanos>, bool),
    /// When it was said last what would come to each.
    wanted: Nanos,
    recording: Recording,
    /// Where the recording can be had, as a scenario.
    recorded: watch::Sender<Option<Arc<str>>>,
    /// Where each step is written down, if anywhere.
    recorder: Option<Recorder>,
}

impl Decider {
    /// Knows nothing yet, and limits nobody. What it will have seen it tells `recorded`, as a scenario.
    pub fn new(
        config: Config,
        telemetry: Telemetry,
        settings: Settings,
        recorded: watch::Sender<Option<Arc<str>>>,
    ) -> Decider {
        let control = RateControl::new(settings);
        Decider {
            telemetry,
            directory: Directory::default(),
            topology: Topology::default(),
            control,
            told: Nanos::ZERO,
            blind: (None, false),
            wanted: Nanos::ZERO,
            recording: Recording::default(),
            recorded,
            recorder: None,
            config,
        }
    }

    /// Writes down what it goes by and what it decides.
    #[must_use]
    pub fn recorded_by(mut self, recorder: Option<Recorder>) -> Decider {
        if let (Some(recorder), Some(rates)) = (&recorder, &self.config.controller.rates) {
            recorder.decides(rates);
        }
        self.recorder = recorder;
        self
    }

    /// One step. `demand` is what those report who are told the rates, by class; where there is nobody, it is what the sentries count.
    pub fn step(&mut self, now: Nanos, demand: Option<&[Demand]>, seen: &Seen) -> Decided {
        if self.telemetry.learnt.has_changed().unwrap_or(false) || self.topology.apis().is_empty() {
            let learnt = Arc::clone(&self.telemetry.learnt.borrow_and_update());
            self.topology = self.directory.topology(&self.config, &learnt.paths);
            self.recorder.iter().for_each(|recorder| recorder.fleet(&self.topology));
        }
        let usage = Arc::clone(&self.telemetry.usage.borrow());
        let mut services = self.directory.signals(&usage, self.told);
        services.truncate(self.topology.services());
        let figures = usage.services.iter().flat_map(Known::figures);
        self.told = figures.map(|figure| figure.at).fold(self.told, Nanos::max);
        let class = |(at, class): (usize, &Class)| signal(class, demand.and_then(|all| all.get(at)), seen);
        let apis: Vec<ApiSignal> = self.config.classes.iter().enumerate().map(class).collect();
        if self.recording.see(now, &self.topology, &services, &apis) {
            self.tell_recording();
        }
        self.say_blind(now, demand.is_some() && seen.classes.is_empty());
        let observation = Observation { services: &services, apis: &apis };
        let step = self.control.step(now, &self.topology, &observation);
        self.recorder.iter().for_each(|recorder| recorder.step(now, &observation, step.rates));
        let directory = &self.directory;
        let name = |service| directory.name(service).unwrap_or("?").to_owned();
        step.handovers.iter().for_each(|handover| say_handover(&self.config.classes, handover));
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
        let (per_s, overloaded) = (step.rates.to_vec(), step.overload.iter().map(name).collect());
        let causes = (0..apis.len()).map(|api| self.control.target(api).map(name)).collect();
        let is_due = now.since(self.wanted) >= WANTED;
        let wanted = is_due.then(|| {
            self.wanted = now;
            let services = (0..self.topology.services() as u32).map(ServiceId);
            services.map(|service| (name(service), Wanted::of(&self.topology, service, &apis))).collect()
        });
        Decided { per_s, why, causes, overloaded, wanted }
    }

    /// Who is told rates and who is asked stands in two places of the config, and one is easily forgotten.
    fn say_blind(&mut self, now: Nanos, is_blind: bool) {
        let (since, was_said) = &mut self.blind;
        *since = is_blind.then(|| since.unwrap_or(now));
        if since.is_some_and(|since| now.since(since) >= BLIND) && !std::mem::replace(was_said, true) {
            log::warn!(
                "rates are told, and no sentry says how requests fare: are all admin addresses in `sentries` of [controller]?"
            );
        }
    }

    fn tell_recording(&self) {
        let name = |service| self.directory.name(service).unwrap_or("?").to_owned();
        let interval =
            self.config.controller.rates.as_ref().map_or(Nanos::from_secs(1), |rates| rates.interval);
        let file = self.recording.file(&self.topology, name, &self.config.classes, interval);
        self.recorded.send_replace(file.map(Arc::from));
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

/// Who decides is news, too.
fn say_handover(classes: &[Class], handover: &Handover) {
    let names: Vec<&str> = handover.apis.iter().map(|api| classes[api.index()].name.as_str()).collect();
    let (to, reason) = (handover.reason.to(), handover.reason);
    log::warn!(classes:? = names, to, reason:%; "rates in other hands");
}

/// What is known of one class in this step.
fn signal(class: &Class, demand: Option<&Demand>, seen: &Seen) -> ApiSignal {
    let entered = seen.classes.get(&class.name);
    let (offered, admitted) = match (demand, entered) {
        (Some(demand), _) => (Some(demand.offered_per_s), Some(demand.admitted_per_s)),
        (None, Some(entered)) => (Some(entered.offered_per_s), Some(entered.admitted_per_s())),
        (None, None) => (None, None),
    };
    let percentile = class.slo.targets().iter().rev().find_map(|(statistic, _)| match statistic {
        Statistic::Percentile(percentile) => Some(percentile.fraction()),
        Statistic::Mean => None,
    });
    let goodput_per_s = entered.filter(|_| seen.is_whole).and_then(|entered| {
        let (goodput, by_sentries) = (entered.outcome.goodput_per_s, entered.admitted_per_s());
        match admitted {
            Some(all) if all > MORE * by_sentries => {
                // What entered elsewhere is taken to fare as what entered here.
                (by_sentries > 0.0).then(|| (goodput * all / by_sentries).min(all))
            }
            _ => Some(goodput),
        }
    });
    let tail_ms = entered.zip(percentile).and_then(|(entered, share)| entered.outcome.tail_ms(share));
    ApiSignal {
        offered_per_s: offered,
        admitted_per_s: admitted,
        goodput_per_s,
        tail_latency: tail_ms.map(|ms| Nanos::from_secs_f64(ms / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::parse;
    use plimsoll_ratecontrol::paths::{ApiPaths, PathBranch, Paths, Visit};

    use super::*;
    use crate::entries::Entered;
    use crate::outcome::Outcome;
    use crate::record;
    use crate::telemetry::Learnt;
    use crate::telemetry::usage::{Figure, Usage};

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
            let text = "[controller.rates]\n[pool.shop]\nservers = [\"127.0.0.1:1\"]
                [class.browse]\nmatch = [{ path = \"/product/{id}\" }]\nslo = { p95 = \"200ms\" }
                [class.cart]\nmatch = [{ path = \"/cart\" }]\nslo = { p95 = \"200ms\" }";
            let mut config = parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
            let rates = config.controller.rates.as_mut().unwrap();
            rates.decide = decider;
            let settings = settings(rates).unwrap().unwrap();
            let api = |operation: &str, services: &[&str]| ApiPaths {
                service: "frontend".into(),
                operation: operation.into(),
                requests: 100.0,
                recent: 100.0,
                failed: 0.0,
                branches: vec![branch(services)],
                own_times: Vec::new(),
            };
            let apis =
                vec![api("GET /product/{id}", &["frontend", "catalog"]), api("GET /cart", &["frontend"])];
            let learnt = Learnt { paths: Paths { apis, ..Paths::default() }, ..Learnt::default() };
            let (learnt, learnt_now) = watch::channel(Arc::new(learnt));
            let (usage, usage_now) = watch::channel(Arc::default());
            let telemetry = Telemetry { learnt: learnt_now, usage: usage_now, listening: Vec::new() };
            let decider = Decider::new(config, telemetry, settings, watch::Sender::new(None));
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
                let known = |service: &str, value: f64| Known {
                    service: service.to_owned(),
                    utilization: Some(Figure { value, at: self.now, changed: self.now }),
                    queue_s: None,
                    served_per_s: None,
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
            let Decided { per_s, why, causes, overloaded, .. } = &shop.limits;
            assert_eq!(*per_s, [None; 3], "{decider}");
            assert!(why.iter().chain(causes).all(Option::is_none) && overloaded.is_empty(), "{decider}");
        }
    }

    #[test]
    fn what_was_decided_is_decided_again_and_a_change_is_found() {
        let dir = tempfile::tempdir().unwrap();
        for by in [RateDecider::Model, RateDecider::Learned, RateDecider::Mimd, RateDecider::TopfullBw] {
            let path = dir.path().join(by.as_str());
            let recorder = Recorder::create(&path).unwrap();
            let mut shop = Shop::new(by);
            shop.decider = shop.decider.recorded_by(Some(recorder));
            shop.run(5, 60.0, 500.0);
            shop.run(15, 300.0, 500.0);
            let expected = shop.limits.per_s[0];
            drop(shop);
            assert!(record::is_ours(&path));
            let summary = record::verify(&path).unwrap_or_else(|error| panic!("{by}: {error}"));
            assert_eq!((summary.deciders, summary.steps), (1, 80), "{by}");
            assert!(expected.is_some() && summary.limited > 40, "{by}: {expected:?} {summary:?}");
            // The last step, with another rate.
            let text = std::fs::read_to_string(&path).unwrap();
            let (most, last) = text.trim_end().rsplit_once('\n').unwrap();
            let (seen, _) = last.split_once("\"rates\":").unwrap();
            std::fs::write(&path, format!("{most}\n{seen}\"rates\":[1.5,null,null]}}\n")).unwrap();
            let error = record::verify(&path).unwrap_err();
            assert!(error.contains("recorded [Some(1.5), None, None], decided [Some("), "{by}: {error}");
        }
    }

    #[test]
    fn that_nobody_says_how_requests_fare_is_said_once() {
        let mut shop = Shop::new(RateDecider::Model);
        for second in [1, 20, 31, 40] {
            shop.decider.say_blind(Nanos::from_secs(second), true);
            assert_eq!(shop.decider.blind.1, second >= 31, "{second}");
        }
        let mut shop = Shop::new(RateDecider::Model);
        for second in [1, 20, 31, 40] {
            shop.decider.say_blind(Nanos::from_secs(second), second != 20);
        }
        assert_eq!(shop.decider.blind, (Some(Nanos::from_secs(31)), false), "somebody did meanwhile");
    }

    #[test]
    fn a_queue_and_what_is_done_are_enough_to_decide_by() {
        let mut shop = Shop::new(RateDecider::Model);
        let (mut waiting, mut longest) = (0.0_f64, 0.0_f64);
        for step in 0..4 * 30 {
            shop.now += STEP;
            let sent: f64 = if step < 20 { 60.0 } else { 300.0 };
            let browse = shop.limits.per_s[0].map_or(sent, |limit| sent.min(limit));
            let before = waiting;
            waiting = (waiting + (browse - 100.0) / 4.0).max(0.0);
            let told = |value| Some(Figure { value, at: shop.now, changed: shop.now });
            let catalog = Known {
                service: "catalog".to_owned(),
                utilization: None,
                queue_s: told(waiting / 100.0),
                served_per_s: told(browse - 4.0 * (waiting - before)),
            };
            shop.usage.send_replace(Arc::new(Usage { services: vec![catalog], ..Usage::default() }));
            let demand = [(sent, browse), (0.0, 0.0), (0.0, 0.0)];
            let demand =
                demand.map(|(offered_per_s, admitted_per_s)| Demand { offered_per_s, admitted_per_s });
            shop.limits = shop.decider.step(shop.now, Some(&demand), &Seen::default());
            // What had come before it was known is worked off within three seconds.
            longest = if step > 32 { longest.max(waiting) } else { 0.0 };
        }
        let limit = shop.limits.per_s[0].expect("a limit");
        assert!((90.0..=110.0).contains(&limit), "{limit}");
        assert!(longest < 20.0, "{longest} wait");
        assert_eq!(shop.limits.causes[0].as_deref(), Some("catalog"));
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
            let all = Figure { value: 1.0, at: shop.now, changed: shop.now };
            let service = "unheard of".to_owned();
            let busy = Known { service, utilization: Some(all), queue_s: None, served_per_s: None };
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
        seen.is_whole = true;
        let told = signal(&class, Some(&demand), &seen);
        assert_eq!(told.goodput_per_s, Some(28.0), "7 of the 10 that sentries let in, and so 28 of 40");
        let demand = Demand { offered_per_s: 30.0, admitted_per_s: 11.0 };
        assert_eq!(signal(&class, Some(&demand), &seen).goodput_per_s, Some(7.0), "no more than chance");
        seen.classes.insert("cart".to_owned(), Entered::default());
        let told = signal(&class, Some(&demand), &seen);
        assert_eq!(told.goodput_per_s, None, "nobody counts answers");
        assert_eq!(signal(&class, None, &Seen::default()), ApiSignal::default());
    }
}
