//! What a class is promised is promised once, however many sentries there are.

use std::time::{Duration, Instant};

use crate::harness::{Connection, Sentry, Upstream, get};

/// Promised, in requests a second: two sentries' buckets of 32 hold less than is promised in the time that is measured.
const PROMISED_PER_S: u64 = 100;
const MEASURED: Duration = Duration::from_secs(4);

/// Requests that this sentry let in on the promise.
fn promised(sentry: &Sentry) -> u64 {
    let metrics = get(sentry.admin, "/metrics").unwrap().body;
    let counter = "plimsoll_requests_admitted_total{pool=\"test\",class=\"gold\",grant=\"promise\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(counter)).map_or(0, |n| n.parse().unwrap())
}

#[test]
fn two_sentries_keep_one_promise_between_them() {
    let upstream = Upstream::start();
    let config = format!(
        "threads = 1\n[pool.test]\nservers = [\"{}\"]\nworkers = 40\nadmission = {{ policy = \"none\" }}\n\
         [class.gold]\nmatch = [{{ path = \"/1\" }}]\nslo = {{ mean = \"1s\" }}\nmin_rate = \"{PROMISED_PER_S}/s\"\n\
         [class.default]\nslo = {{ mean = \"1s\" }}\n",
        upstream.address
    );
    let sentry = |share| {
        let config = format!("[sentry]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{config}");
        let binary = std::path::Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        Sentry::start_by(binary, &config, &["--share", share])
    };
    let sentries = ["0/2", "1/2"].map(sentry);
    let all = || sentries.iter().map(promised).sum::<u64>();
    let start = Instant::now();
    let clients: Vec<_> = (0..8)
        .map(|n| {
            let address = sentries[n % 2].address;
            std::thread::spawn(move || {
                let mut connection = Connection::open(address).unwrap();
                let mut sent = 0;
                while start.elapsed() < MEASURED {
                    connection.get("/1").unwrap();
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    let sent: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    let (kept, took_s) = (all(), start.elapsed().as_secs_f64());
    // Each bucket holds a second of its half, and at least 32 requests; both are full at first.
    let most = PROMISED_PER_S as f64 * (took_s + 1.0) + 2.0;
    assert!(sent as f64 > 1.5 * most, "too few to tell: {sent}");
    assert!(kept as f64 <= most, "{kept} in {took_s} s");
    assert!(kept as f64 >= PROMISED_PER_S as f64 * MEASURED.as_secs_f64() * 0.8, "{kept} in {took_s} s");
}
