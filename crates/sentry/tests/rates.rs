//! Rates that a controller sets: what they let in, what is said to those who are turned away, and where they come from.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use common::client;
use common::server::{Held, Server, mirror};
use common::{Sentry, config, eventually, parse, soon};
use plimsoll_core::{Mechanism, Nanos};
use plimsoll_rlqs::Tenure;
use plimsoll_rlqs::assignment::{Assignment, Limit};
use plimsoll_rlqs::server::{self, Rates};
use plimsoll_sentry::{clock, rates};
use tokio::sync::watch;

const ELSEWHERE: &str = "rates = { controllers = [\"127.0.0.1:1\"], mode = \"enforce\" }";

fn assign(sentry: &Sentry, per_s: f64) {
    let assignment = Assignment { limit: Limit::Rate { per_s, burst: 8 }, holds_for: Nanos::from_secs(60) };
    let routing = sentry.shared.routing().load();
    let promised = routing.config.classes[0].min_rate.map_or(0.0, |rate| rate.per_s);
    routing.classes[0].limit.assign(assignment, promised, clock::now());
}

/// How many of so many are served.
async fn served(sentry: &Sentry, n: usize) -> usize {
    let mut served = 0;
    for _ in 0..n {
        served += usize::from(client::get(sentry.address, "/").await.0 == 200);
    }
    served
}

#[tokio::test]
async fn beyond_its_rate_a_class_is_refused_and_told_why() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::start(&config(ELSEWHERE, &[server.address], ""));
    assert_eq!(served(&sentry, 20).await, 20, "nobody has said anything");
    assign(&sentry, 1e-6);
    assert_eq!(served(&sentry, 20).await, 8, "its burst");
    let mut http = client::http1(sentry.address).await;
    let response = soon(http.send_request(client::request("GET", "/", ""))).await.unwrap();
    assert_eq!(response.status(), 503);
    let reason = response.headers()["plimsoll-reason"].to_str().unwrap();
    assert!(
        reason.starts_with("rate; limit=rate; estimate=") && reason.ends_with("; objective=0.0/s"),
        "{reason}"
    );
    assert!(response.headers().contains_key("retry-after"));
    sentry.settled().await;
    let counts = sentry.default_class();
    assert_eq!((counts.offered, counts.refused[Mechanism::Rate as usize], counts.admitted()), (41, 13, 28));
    let routing = sentry.shared.routing().load();
    let (_, decision) = routing.decisions.newest(1, |_, d| !d.verdict.is_admit())[0];
    assert!(decision.enforced);
}

#[tokio::test]
async fn in_shadow_it_is_only_counted_and_whatever_else_there_is_decides() {
    let server = Server::http(mirror).await;
    let shadow = ELSEWHERE.replace("enforce", "shadow");
    let sentry = Sentry::start(&config(&shadow, &[server.address], ""));
    assign(&sentry, 0.0);
    assert_eq!(served(&sentry, 20).await, 20);
    sentry.settled().await;
    let counts = sentry.default_class();
    let would = counts.would_refuse[Mechanism::Rate as usize];
    assert_eq!((would, counts.refused[Mechanism::Rate as usize], counts.admitted()), (20, 0, 20));
}

#[tokio::test]
async fn what_was_promised_gets_in_whatever_the_controller_says_and_a_reload_keeps_both() {
    let server = Server::http(mirror).await;
    let text = config(ELSEWHERE, &[server.address], "") + "min_rate = \"1/m\"\n";
    let sentry = Sentry::start(&text);
    assign(&sentry, 0.0);
    assert_eq!(served(&sentry, 40).await, 32, "a bucketful of the promise");
    sentry.shared.reload(parse(&text.replace("1/m", "2/m"))).unwrap();
    assert_eq!(served(&sentry, 5).await, 0, "the limit is the same one");
    let limit = sentry.shared.routing().load().classes[0].limit.per_s(clock::now());
    assert_eq!(limit, Some(1.0 / 60.0), "until the next assignment");
}

#[tokio::test]
async fn a_controller_is_followed_and_left_as_the_config_says() {
    let server = Server::http(mirror).await;
    let (decides, decided) = watch::channel(Rates { revision: 3, per_s: vec![Some(250.0)] });
    let settings = server::Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        token: Some("correct-horse".to_owned()),
        classes: vec!["default".to_owned()],
        tenure: Tenure::for_ever(),
        clock: clock::now,
    };
    let controller = server::Server::start(settings, decided).await.unwrap();
    let with = |mode: &str| {
        let address = controller.address();
        let rates = format!(
            "rates = {{ controllers = [\"{address}\"], token = \"correct-horse\", mode = \"{mode}\" }}"
        );
        config(&rates, &[server.address], "")
    };
    let sentry = Sentry::start(&with("enforce"));
    let follows = tokio::spawn(rates::follow(Arc::clone(&sentry.shared)));
    let limit = || sentry.shared.routing().load().classes[0].limit.per_s(clock::now());
    eventually(|| limit() == Some(250.0), || format!("{:?}", limit())).await;
    let health = &sentry.shared.rates;
    assert!(health.connected.load(Relaxed) && health.revision.load(Relaxed) == 3);

    // What arrives is reported, and so is what the rate turns away.
    decides.send_modify(|rates| rates.per_s = vec![Some(0.0)]);
    eventually(|| limit() == Some(0.0), || format!("{:?}", limit())).await;
    assert_eq!(served(&sentry, 100).await, 0);
    eventually(|| controller.demand()[0].steady.offered_per_s > 1.0, || format!("{:?}", controller.demand()))
        .await;
    assert!(controller.demand()[0].steady.admitted_per_s < controller.demand()[0].steady.offered_per_s);

    sentry.shared.reload(parse(&with("off"))).unwrap();
    eventually(|| limit().is_none(), || format!("{:?}", limit())).await;
    eventually(|| controller.streams() == 0, || "it is still listened to".to_owned()).await;
    sentry.shared.reload(parse(&with("shadow"))).unwrap();
    eventually(|| limit() == Some(0.0), || format!("{:?}", limit())).await;
    follows.abort();
}

#[tokio::test]
async fn what_the_gate_turns_away_did_not_enter_the_fleet() {
    let held = Held::start().await;
    let (_decides, decided) = watch::channel(Rates { revision: 1, per_s: vec![None] });
    let settings = server::Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        token: None,
        classes: vec!["default".to_owned()],
        tenure: Tenure::for_ever(),
        clock: clock::now,
    };
    let controller = server::Server::start(settings, decided).await.unwrap();
    let rates = format!("rates = {{ controllers = [\"{}\"], mode = \"enforce\" }}", controller.address());
    let pool = "workers = 1\nmax_queue = 1\nadmission = { policy = \"none\" }";
    let sentry = Sentry::start(&config(&rates, &[held.server.address], pool));
    let follows = tokio::spawn(rates::follow(Arc::clone(&sentry.shared)));
    let address = sentry.address;
    let inside = [(); 2].map(|()| tokio::spawn(async move { client::get(address, "/").await.0 }));
    eventually(|| sentry.default_class().offered == 2, || "one served, one waiting".to_owned()).await;
    eventually(|| controller.streams() == 1, || "nobody reports".to_owned()).await;
    assert_eq!(served(&sentry, 300).await, 0);
    let demand = || controller.demand()[0].steady;
    eventually(|| demand().offered_per_s > 20.0, || format!("{:?}", demand())).await;
    let demand = demand();
    assert!(demand.admitted_per_s < 0.2 * demand.offered_per_s, "{demand:?}");
    held.permits.add_permits(2);
    for request in inside {
        assert_eq!(soon(request).await.unwrap(), 200);
    }
    follows.abort();
}
