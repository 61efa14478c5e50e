//! What the admin address tells.

use std::process::Command;

use crate::harness::{Connection, Sentry, Upstream, get, wait_for};
use crate::pool;

/// A pool of one slot and a queue of one, so that the third request at once is refused.
fn tight(upstream: &Upstream) -> String {
    format!(
        "threads = 1\ndecisions = {{ sample = 1.0 }}\n[pool.shop]\nservers = [\"{}\"]\nworkers = 1\nmax_queue = 1\n\
         [class.browse]\nmatch = [{{ path = \"/400\" }}]\nslo = {{ p50 = \"5s\", p90 = \"8s\" }}\n\
         [class.default]\nslo = {{ p50 = \"10s\" }}\n",
        upstream.address
    )
}

#[test]
fn every_refusal_is_counted_logged_and_explained() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&tight(&upstream));
    let mut connections: Vec<_> = (0..5).map(|_| Connection::open(sentry.address).unwrap()).collect();
    connections[0].send("/400", "").unwrap();
    wait_for("the slot to be taken", || upstream.at_once() == 1);
    connections[1..].iter_mut().for_each(|connection| connection.send("/400", "").unwrap());
    let mut statuses: Vec<_> = connections.iter_mut().map(|c| c.receive().unwrap().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 503, 503, 503]);

    let metrics = get(sentry.admin, "/metrics").unwrap();
    assert!(metrics.head.contains("application/openmetrics-text"), "{}", metrics.head);
    for line in [
        "plimsoll_requests_offered_total{pool=\"shop\",class=\"browse\"} 5",
        "plimsoll_requests_admitted_total{pool=\"shop\",class=\"browse\",grant=\"estimate\"} 2",
        "plimsoll_requests_refused_total{pool=\"shop\",class=\"browse\",reason=\"max-queue\"} 3",
        "plimsoll_requests_served_total{pool=\"shop\",class=\"browse\"} 2",
        "plimsoll_requests_failed_total{pool=\"shop\",class=\"browse\",failure=\"timeout\"} 0",
        "plimsoll_objective_seconds{pool=\"shop\",class=\"browse\",percentile=\"p90\"} 8.0",
        "plimsoll_estimate_seconds{pool=\"shop\",class=\"browse\",percentile=\"p50\"} ",
        "plimsoll_response_seconds_count{pool=\"shop\",class=\"browse\"} 2",
        "plimsoll_response_seconds_bucket{le=\"+Inf\",pool=\"shop\",class=\"browse\"} 2",
        "plimsoll_wait_seconds_count{pool=\"shop\",class=\"browse\"} 2",
        "plimsoll_queue_length{pool=\"shop\"} 0",
        "plimsoll_queue_limit{pool=\"shop\"} 1",
        "plimsoll_slots{pool=\"shop\"} 1",
        "plimsoll_slots_taken{pool=\"shop\"} 0",
        "plimsoll_mode{pool=\"shop\"} 2",
        &format!("plimsoll_server_up{{pool=\"shop\",server=\"http://{}\"}} 1", upstream.address),
        "plimsoll_worker_restarts_total 0",
        "plimsoll_build_info{version=\"",
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
        "# EOF",
    ] {
        assert!(metrics.body.contains(line), "{line}\nis not in\n{}", metrics.body);
    }

    let refused = json(&sentry, "/decisions?class=browse&verdict=refuse");
    let refused = refused.as_array().unwrap();
    assert_eq!(refused.len(), 3);
    for (key, value) in [("pool", "shop"), ("class", "browse"), ("verdict", "refuse"), ("stage", "gate")] {
        assert_eq!(refused[0][key], value);
    }
    let reason =
        ["mechanism", "limit", "unit", "estimate", "objective"].map(|key| refused[0][key].to_string());
    assert_eq!(reason, ["\"max-queue\"", "\"queue-length\"", "\"count\"", "2.0", "1.0"]);
    assert_eq!(json(&sentry, "/decisions?verdict=admit,refuse").as_array().unwrap().len(), 5);
    assert_eq!(json(&sentry, "/decisions?verdict=admit&limit=1")[0]["grant"], "estimate");
    assert_eq!(json(&sentry, "/decisions?class=default").as_array().unwrap().len(), 0);

    wait_for("the counters to be sampled", || {
        json(&sentry, "/classes")["classes"][0]["rate"]["refused"].as_f64() > Some(0.0)
    });
    let overview = json(&sentry, "/classes?history=60");
    let (pool, browse) = (&overview["pools"][0], &overview["classes"][0]);
    assert_eq!((&pool["name"], &pool["slots"], &pool["max_queue"]), (&"shop".into(), &1.into(), &1.into()));
    assert_eq!((&browse["name"], &browse["total"]["offered"]), (&"browse".into(), &5.into()));
    assert_eq!(browse["total"]["refused"]["max-queue"], 3);
    assert_eq!(browse["percentiles"][1]["objective_ms"], 8000.0);
    let seconds = browse["history"].as_array().unwrap();
    assert_eq!(seconds.iter().map(|s| s["refused"].as_u64().unwrap()).sum::<u64>(), 3);

    let admin = format!("http://{}", sentry.admin);
    let explained = explain(&["--admin", &admin, "--class", "browse"]);
    let words = String::from_utf8(explained.stdout).unwrap();
    assert!(words.contains("2 requests would wait, at most 1 may"), "{words}");
    let explained = explain(&["--admin", &admin, "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!(document["refusals"].as_array().unwrap().len(), 3);
    let unknown = explain(&["--admin", &admin, "--class", "checkout"]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn the_page_brings_everything_it_needs() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let page = get(sentry.admin, "/").unwrap();
    assert!(
        page.head.contains("text/html") && page.head.contains("content-security-policy: default-src 'none'")
    );
    for part in ["<title>plimsoll sentry</title>", "classes?history=", "decisions?verdict=", "</html>"] {
        assert!(page.body.contains(part), "{part}");
    }
    let outside = page.body.matches("http").count() - page.body.matches("http://www.w3.org/").count();
    assert_eq!(outside, 0, "nothing is loaded from elsewhere");
    assert_eq!(get(sentry.admin, "/healthz").unwrap().status, 200);
    assert_eq!(get(sentry.admin, "/readyz").unwrap().status, 200);
    assert_eq!(get(sentry.admin, "/nothing").unwrap().status, 404);
}

#[test]
fn a_token_is_asked_for_and_told_to_nobody() {
    const TOKEN: &str = "a-token-nobody-guesses";
    let upstream = Upstream::start();
    let sentry = Sentry::start(&format!("admin_token = \"{TOKEN}\"\n{}", pool(&upstream, 8)));
    let ask = |headers: &str| {
        let mut connection = Connection::open(sentry.admin).unwrap();
        connection.send("/metrics", headers).unwrap();
        connection.receive().unwrap()
    };
    assert_eq!(ask("").status, 401);
    assert_eq!(ask("authorization: Bearer wrong\r\n").status, 401);
    assert_eq!(ask(&format!("authorization: Bearer {TOKEN}\r\n")).status, 200);
    for path in ["/", "/metrics", "/classes", "/decisions"] {
        assert_eq!(get(sentry.admin, path).unwrap().status, 401, "{path}");
        assert_eq!(get(sentry.admin, &format!("{path}?token={TOKEN}")).unwrap().status, 200, "{path}");
    }
    assert_eq!(get(sentry.admin, "/healthz").unwrap().status, 200, "probes have no token");

    let admin = format!("http://{}", sentry.admin);
    let refused = explain(&["--admin", &admin]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("wants its token"));
    let config = sentry.config.to_str().unwrap();
    assert!(explain(&["--admin", &admin, "--config", config]).status.success());

    // Nor does a mistake in its line show it.
    sentry.rewrite(&format!("admin_token = [\"{TOKEN}\"]\n{}", pool(&upstream, 8)));
    sentry.log("msg=\"config is wrong\"", 1);
    assert!(!sentry.lines().iter().any(|line| line.contains(TOKEN)), "{:#?}", sentry.lines());
}

#[test]
fn a_client_that_dawdles_does_not_hold_up_the_others() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let _idle: Vec<_> = (0..32).map(|_| Connection::open(sentry.admin).unwrap()).collect();
    assert_eq!(get(sentry.admin, "/healthz").unwrap().status, 200);
}

fn json(sentry: &Sentry, path: &str) -> serde_json::Value {
    serde_json::from_str(&get(sentry.admin, path).unwrap().body).unwrap()
}

fn explain(arguments: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("explain").args(arguments).output().unwrap()
}
