//! A small shop that is told of, and what is decided for it.

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

/// So much for a while.
fn comes(offered_per_s: f64, admitted_per_s: f64) -> Demand {
    let flow = Flow { offered_per_s, admitted_per_s };
    Demand { latest: flow, steady: flow }
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
        let apis = vec![api("GET /product/{id}", &["frontend", "catalog"]), api("GET /cart", &["frontend"])];
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
            let enters = |at: usize, sent: f64| self.limits.per_s[at].map_or(sent, |limit| sent.min(limit));
            let (browse, cart) = (enters(0, browse_per_s), enters(1, cart_per_s));
            let known = |service: &str, value: f64| Known {
                service: service.to_owned(),
                utilization: Some(Figure { value, at: self.now, changed: self.now }),
                queue_s: None,
                served_per_s: None,
            };
            let services =
                vec![known("catalog", (browse / 100.0).min(1.0)), known("frontend", (browse + cart) / 1e4)];
            self.usage.send_replace(Arc::new(Usage { services, ..Usage::default() }));
            let demand = [(browse_per_s, browse), (cart_per_s, cart), (0.0, 0.0)];
            let demand = demand.map(|(offered, admitted)| comes(offered, admitted));
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
        Seen { classes: [("browse".to_owned(), browse), ("cart".to_owned(), cart)].into(), is_whole: true }
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
        let demand = demand.map(|(offered, admitted)| comes(offered, admitted));
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
        let demand = comes(300.0, 300.0);
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
    let demand = comes(50.0, 40.0);
    let told = signal(&class, Some(&demand), &seen);
    assert_eq!((told.offered_per_s, told.admitted_per_s), (Some(50.0), Some(40.0)), "Envoys are among these");
    seen.is_whole = true;
    let told = signal(&class, Some(&demand), &seen);
    assert_eq!(told.goodput_per_s, Some(28.0), "7 of the 10 that sentries let in, and so 28 of 40");
    let demand = comes(30.0, 11.0);
    assert_eq!(signal(&class, Some(&demand), &seen).goodput_per_s, Some(7.0), "no more than chance");
    seen.classes.insert("cart".to_owned(), Entered::default());
    let told = signal(&class, Some(&demand), &seen);
    assert_eq!(told.goodput_per_s, None, "nobody counts answers");
    assert_eq!(signal(&class, None, &Seen::default()), ApiSignal::default());
}
