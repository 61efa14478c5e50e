//! The change to the cheap policer and back, by a sentry at work: it may use a fifth of a core, so that little load makes it busy.

use std::time::{Duration, Instant};

use plimsoll_testbed::cpu_cap::CpuCap;

use crate::harness::{Load, Sentry, Upstream, get};

/// The change back takes a calm of 15 s.
const LONGEST: Duration = Duration::from_secs(35);

/// The sum of the rows of `/metrics` that begin so.
fn sum(sentry: &Sentry, row: &str) -> u64 {
    let metrics = get(sentry.admin, "/metrics").unwrap().body;
    let rows = metrics.lines().filter(|line| line.starts_with(row));
    rows.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64).sum()
}

fn wait_for_policer(sentry: &Sentry, policer: &str) {
    let (start, row) = (Instant::now(), format!("plimsoll_policer{{pool=\"test\",policer=\"{policer}\"}}"));
    while sum(sentry, &row) != 1 {
        assert!(start.elapsed() < LONGEST, "waited in vain for {policer}");
        // To be asked costs it CPU time, too.
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn no_request_is_lost_when_the_policer_changes_and_changes_back() {
    let cap = match CpuCap::new(0.2) {
        Ok(cap) => cap,
        // Without, the sentry would have to be given a whole core's load.
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let upstream = Upstream::start();
    let sentry = Sentry::start(&format!(
        "threads = 1\n[pool.test]\nservers = [\"{}\"]\nworkers = 4\npolicing = {{ policy = \"auto\" }}\n\
         admission = {{ policy = \"none\" }}\n[class.default]\nslo = {{ mean = \"30ms\" }}\n",
        upstream.address
    ));
    cap.hold(sentry.parent()).unwrap();
    wait_for_policer(&sentry, "batch");
    let high = Load::renewing(sentry.address, 24, "/5", |_| 1);
    wait_for_policer(&sentry, "threshold");
    // The load falls, and never ceases.
    let low = Load::start(sentry.address, 1, "/100");
    let (many, mut failures) = high.end();
    wait_for_policer(&sentry, "batch");
    low.more(5);
    let (few, others) = low.end();
    failures.extend(others);
    let lost: Vec<_> = failures.iter().filter(|what| !what.starts_with("Answer { status: 503,")).collect();
    assert!(lost.is_empty(), "{} of {}: {:?}", lost.len(), many + few, &lost[..lost.len().min(5)]);

    let count = |what: &str| sum(&sentry, &format!("plimsoll_requests_{what}_total{{"));
    let (offered, admitted, refused, gone) =
        (count("offered"), count("admitted"), count("refused"), count("gone"));
    eprintln!("{many} and {few} requests, {refused} refused");
    assert_eq!(
        (offered, refused),
        (many + few, failures.len() as u64),
        "what clients saw is what was counted"
    );
    assert!(refused > 0, "there was something to police");
    assert_eq!(offered, admitted + refused + gone);
}
