//! The learner as a whole: it learns what it is shown, whatever becomes of it on the way, and grows no further than its limits.

use plimsoll_core::rng::{Rng, chance, seeded};
use proptest::prelude::*;
use rand::RngExt;
use rand::seq::SliceRandom;

use super::*;

const SECOND: Nanos = Nanos::from_secs(1);

/// A span on its way: service, operation, span.
type Sent = (&'static str, &'static str, Span<'static>);

/// A request as spans: `frontend` calls each of these, which call the database.
fn request(trace: u128, operation: &'static str, calls: &[&'static str]) -> Vec<Sent> {
    let span = |id, parent, kind| Span { trace, id, parent, kind, ..Span::default() };
    let mut spans = vec![("frontend", operation, span(1, 0, Kind::Serves))];
    for (at, service) in (0..).zip(calls) {
        let id = 10 * (at + 1);
        spans.push(("frontend", "", span(id, 1, Kind::Calls)));
        spans.push((service, "/Get", span(id + 1, id, Kind::Serves)));
        spans.push((service, "", span(id + 2, id + 1, Kind::Calls)));
        spans.push(("database", "/Query", span(id + 3, id + 2, Kind::Serves)));
    }
    spans
}

fn send(learner: &mut Learner, now: Nanos, spans: impl IntoIterator<Item = Sent>) {
    for (service, operation, span) in spans {
        let service = learner.service(service);
        let operation = Some(operation).filter(|operation| !operation.is_empty());
        learner.hear(now, service, &Span { operation, ..span });
    }
}

/// Nine of ten requests for a page call the catalogue, one the cart too; those that post call the cart alone.
fn traffic(rng: &mut Rng, from: u128, requests: u128) -> Vec<Sent> {
    let one = |trace| match trace % 20 {
        0..9 => request(trace, "GET /", &["catalog"]),
        9 => request(trace, "GET /", &["catalog", "cart"]),
        _ => request(trace, "POST /cart", &["cart", "cart"]),
    };
    let mut spans: Vec<Sent> = (from..from + requests).flat_map(one).collect();
    spans.shuffle(rng);
    spans
}

/// By API, the services with the calls a request.
fn learnt(paths: &Paths) -> Vec<(String, Vec<(String, f64)>)> {
    let visits = |api: &ApiPaths| {
        api.visits().into_iter().map(|(name, calls)| (name.to_owned(), (calls * 1e6).round() / 1e6)).collect()
    };
    paths.apis.iter().map(|api| (format!("{} {}", api.service, api.operation), visits(api))).collect()
}

fn learner() -> Learner {
    Learner::new(Limits::default(), &[], 7)
}

#[test]
fn paths_are_learnt_with_shares_and_calls() {
    let mut learner = learner();
    send(&mut learner, SECOND, traffic(&mut seeded(1, 1), 1, 2_000));
    learner.tick(SECOND);
    assert!(learner.paths().apis.is_empty(), "traces wait for their pieces");
    learner.tick(Nanos::from_secs(20));
    let paths = learner.paths();
    let [page, post] = paths.apis.as_slice() else { panic!("{paths:?}") };
    assert_eq!(
        (&*page.operation, &*post.operation, page.requests, post.requests),
        ("GET /", "POST /cart", 1_000.0, 1_000.0)
    );
    let shares: Vec<(f64, usize)> =
        page.branches.iter().map(|branch| (branch.share, branch.visits.len())).collect();
    assert_eq!(shares, [(0.9, 3), (0.1, 4)]);
    let visits = |api: &ApiPaths| {
        api.visits().into_iter().map(|(name, calls)| format!("{name} {calls:.1}")).collect::<Vec<_>>()
    };
    assert_eq!(visits(page), ["cart 0.1", "catalog 1.0", "database 1.1", "frontend 1.0"]);
    assert_eq!(visits(post), ["cart 2.0", "database 2.0", "frontend 1.0"]);
    assert_eq!((paths.figures.open_spans, paths.figures.unplaced, paths.figures.requests), (0, 0, 2_000));
}

#[test]
fn spans_that_come_late_or_when_all_is_over_make_no_api() {
    let mut learner = learner();
    let mut late = Vec::new();
    for trace in 1..100 {
        let mut spans = request(trace, "GET /", &["catalog"]);
        late.extend(spans.split_off(2));
        send(&mut learner, SECOND, spans);
    }
    learner.tick(Nanos::from_secs(20));
    let count = late.len() as u64;
    send(&mut learner, Nanos::from_secs(21), late);
    learner.tick(Nanos::from_secs(40));
    assert_eq!(learner.figures().late, count);
    assert_eq!(learnt(&learner.paths()), [("frontend GET /".to_owned(), vec![("frontend".to_owned(), 1.0)])]);
}

#[test]
fn lost_entries_make_no_api_of_what_they_called() {
    let (mut learner, mut rng) = (learner(), seeded(1, 2));
    for second in 0..60u32 {
        let spans = traffic(&mut rng, 1 + u128::from(second) * 1_000, 200);
        // Every tenth span is lost.
        let mut kept = spans;
        kept.retain(|_| !chance(&mut rng, 0.1));
        send(&mut learner, Nanos::from_secs(second.into()), kept);
        learner.tick(Nanos::from_secs(second.into()));
    }
    learner.tick(Nanos::from_secs(100));
    let paths = learner.paths();
    let names: Vec<&str> = paths.apis.iter().map(|api| &*api.operation).collect();
    assert_eq!(names, ["GET /", "POST /cart"], "{:?}", paths.figures);
    let post: Vec<&str> = paths.apis[1].visits().into_keys().collect();
    assert_eq!(post, ["cart", "database", "frontend"]);
    assert!(paths.figures.doubtful > 0 && paths.figures.unplaced > 0, "{:?}", paths.figures);
}

#[test]
fn silence_forgets_nothing_and_time_that_passes_in_company_does() {
    let mut learner = learner();
    send(&mut learner, SECOND, request(1, "GET /old", &["catalog"]));
    learner.tick(Nanos::from_secs(20));
    for hour in 1..100 {
        learner.tick(Nanos::from_secs(hour * 3_600));
    }
    assert_eq!(learner.paths().apis.len(), 1);
    for second in 0..4_000 {
        let now = Nanos::from_secs(400_000 + second);
        send(&mut learner, now, request(u128::from(100 + second), "GET /new", &["cart"]));
        learner.tick(now);
    }
    let names: Vec<String> = learnt(&learner.paths()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["frontend GET /new"]);
}

#[test]
fn where_the_operator_says_requests_enter_they_do() {
    let mut learner = Learner::new(Limits::default(), &["catalog".to_owned()], 7);
    send(&mut learner, SECOND, request(1, "GET /", &["catalog", "cart"]));
    learner.tick(Nanos::from_secs(20));
    let visits = [("catalog".to_owned(), 1.0), ("database".to_owned(), 1.0)];
    assert_eq!(learnt(&learner.paths()), [("catalog /Get".to_owned(), visits.to_vec())]);
}

#[test]
fn a_million_apis_fit_in_bounds_and_those_that_are_used_stay() {
    let limits =
        Limits { names: 1_000, operations: 300, visits: 2_000, open_spans: 10_000, ..Limits::default() };
    let mut learner = Learner::new(limits, &[], 7);
    let mut trace = 0;
    for second in 0..100u64 {
        let now = Nanos::from_secs(second);
        for at in 0..10_000u64 {
            trace += 1;
            let hostile = format!("GET /{trace}\u{0}{}", "x".repeat((at % 500) as usize));
            let own = format!("service-{}", trace % 3_000);
            let service = learner.service(&own);
            let span =
                Span { trace, id: 1, kind: Kind::Serves, operation: Some(&hostile), ..Span::default() };
            learner.hear(now, service, &span);
            if at % 500 == 0 {
                send(&mut learner, now, request((1 << 100) + trace, "GET /", &["catalog"]));
            }
        }
        learner.tick(now);
    }
    let paths = learner.paths();
    let figures = paths.figures;
    assert!(
        figures.operations < 300 && figures.names <= 1_000 && figures.open_spans <= 10_000,
        "{figures:?}"
    );
    assert!(
        paths
            .apis
            .iter()
            .map(|api| api.branches.iter().map(|b| b.visits.len()).sum::<usize>())
            .sum::<usize>()
            <= 2_000
    );
    assert!(figures.turned_away > 0 && figures.left_out > 0, "{figures:?}");
    let page =
        paths.apis.iter().find(|api| &*api.operation == "GET /").expect("what comes again and again is kept");
    assert_eq!(page.visits().into_keys().collect::<Vec<_>>(), ["catalog", "database", "frontend"]);
}

proptest! {
    /// Whatever order the spans come in, however often, in however many pieces within the wait: the same is learnt.
    #[test]
    fn order_pieces_and_repetition_change_nothing(seed: u64, pieces in 1usize..20, repeated in 0.0f64..0.5) {
        let mut rng = seeded(seed, 0);
        let mut expected = learner();
        let all: Vec<Sent> = (1..60).flat_map(|trace| request(trace, "GET /", &["catalog", "cart"])).collect();
        send(&mut expected, SECOND, all.iter().copied());
        expected.tick(Nanos::from_secs(30));

        let again: Vec<Sent> = all.iter().copied().filter(|_| chance(&mut rng, repeated)).collect();
        let mut spans = [all, again].concat();
        spans.shuffle(&mut rng);
        let mut learner = learner();
        let size = spans.len().div_ceil(pieces);
        for (at, piece) in (0..).zip(spans.chunks(size)) {
            let now = SECOND + Nanos::from_millis(400 * at);
            send(&mut learner, now, piece.iter().copied());
            learner.tick(now);
        }
        learner.tick(Nanos::from_secs(30));
        prop_assert_eq!(learnt(&learner.paths()), learnt(&expected.paths()));
    }

    /// Spans that make no sense at all are counted, each once, and shares stay shares.
    #[test]
    fn nonsense_is_accounted_for(seed: u64, spans in 1u64..500) {
        let mut rng = seeded(seed, 0);
        let limits = Limits { open_spans: 300, spans_per_trace: 50, operations: 5, names: 10, visits: 20, branches: 2, ..Limits::default() };
        let mut learner = Learner::new(limits, &[], seed);
        for at in 0..spans {
            let now = Nanos::from_millis(at * 100);
            let few = |rng: &mut Rng| rng.random_range(0..12u64);
            let name = format!("s{}", few(&mut rng));
            let service = learner.service(&name);
            let kind = [Kind::Serves, Kind::Calls, Kind::Internal][(few(&mut rng) % 3) as usize];
            let (operation, peer) = (format!("o{}", few(&mut rng)), format!("s{}", few(&mut rng)));
            let span = Span {
                trace: few(&mut rng).into(),
                id: few(&mut rng),
                parent: few(&mut rng),
                kind,
                operation: Some(&operation).map(|o| o.as_str()).filter(|_| few(&mut rng) < 6),
                peer: Some(&peer).map(|p| p.as_str()).filter(|_| few(&mut rng) < 3),
                failed: few(&mut rng) < 3,
                began_ns: few(&mut rng) * 700,
                ended_ns: few(&mut rng) * 900,
            };
            learner.hear(now, service, &span);
            if few(&mut rng) == 0 {
                learner.tick(now);
            }
        }
        learner.tick(Nanos::from_secs(1_000));
        learner.tick(Nanos::from_secs(2_000));
        let Paths { apis, figures } = learner.paths();
        prop_assert_eq!(figures.spans + figures.late + figures.left_out + figures.no_room, spans);
        prop_assert_eq!(figures.open_spans, 0);
        for api in &apis {
            let shares: f64 = api.branches.iter().map(|branch| branch.share).sum();
            prop_assert!((shares - 1.0).abs() < 1e-6, "{:?}", api);
            prop_assert!(api.own_times.iter().all(|(_, own)| own.calls > 0.0 && (0.0..1e-4).contains(&own.mean_s)));
            prop_assert!(api.branches.iter().flat_map(|branch| &branch.visits).all(|visit| visit.calls > 0.0 && visit.calls.is_finite()));
        }
    }
}
