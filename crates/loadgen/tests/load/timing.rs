//! When requests leave, and from when their latency runs.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use plimsoll_loadgen::{Entry, HttpVersion, Outcome, Plan, Spacing, run};
use tokio::time::Instant;

use crate::server::{mix, plan, planned, report, response, serve};

#[tokio::test]
async fn a_stall_shows_in_every_request_that_it_delayed() {
    // With one connection a generator that waits for answers would see one slow request of some hundred.
    for (http, connections) in [(HttpVersion::Http1, 1), (HttpVersion::Http2, 4)] {
        let start: Arc<OnceLock<Instant>> = Arc::default();
        let address = serve(move |_: Request<Incoming>| {
            let start = *start.get_or_init(Instant::now);
            async move {
                // Frozen from 0.5 s to 1.5 s.
                if start.elapsed() >= Duration::from_millis(500) {
                    tokio::time::sleep_until(start + Duration::from_millis(1_500)).await;
                }
                Ok(response(200, &[]))
            }
        })
        .await;
        let plan = Plan { http, connections, ..plan(address, mix(&["/"]), "200", 2_000) };
        let total = report(&plan).await.table.total;
        assert_eq!(total.ok, planned(&plan));
        // Half of the requests were due in the stall, the longest wait a second.
        assert!(total.p99_ms >= Some(900.0) && total.p90_ms >= Some(600.0), "{total:?}");
        if connections == 1 {
            assert!(total.late_ms_p99 >= Some(900.0), "{total:?}");
        }
    }
}

#[tokio::test]
async fn a_seed_sends_the_same_whatever_the_threads() {
    let address = serve(|_: Request<Incoming>| async { Ok(response(200, &[])) }).await;
    let sent = async |threads, seed| {
        let plan = plan(address, mix(&["/a", "/b", "/c"]), "0s:500,200ms:1000..3000", 400);
        let plan = Plan { threads, seed, spacing: Spacing::Poisson, ..plan };
        let report = report(&plan).await;
        assert_eq!(report.table.total.ok, report.table.total.sent);
        report.table.requests.iter().map(|(_, row)| row.sent).collect::<Vec<_>>()
    };
    let once = sent(1, 7).await;
    assert_eq!(once, sent(2, 7).await);
    assert_eq!(once, sent(3, 7).await);
    assert_ne!(once, sent(1, 8).await);
}

#[tokio::test]
async fn progress_adds_up_and_can_end_the_run() {
    let address = serve(|_: Request<Incoming>| async { Ok(response(200, &[])) }).await;
    let plan = plan(address, mix(&["/"]), "200", 3_600_000);
    let mut recent = 0;
    let mut told = 0;
    let report = run(&plan, |progress| {
        recent += progress.recent().total.ok;
        assert_eq!(progress.so_far().total.ok, recent);
        told += 1;
        match told {
            ..5 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })
    .await
    .unwrap();
    assert!(report.interrupted && report.table.total.ok >= recent && recent > 0);
    assert!(report.duration_s < 60.0 && report.elapsed_s >= report.duration_s);
}

#[tokio::test]
async fn every_single_request_is_told_of_once() {
    let address = serve(|_: Request<Incoming>| async { Ok(response(200, &[])) }).await;
    let plan = Plan { tells_each: true, ..plan(address, mix(&["/a", "/b"]), "200", 700) };
    let mut told: Vec<(String, Entry)> = Vec::new();
    let report = run(&plan, |progress| {
        told.extend(progress.ended().map(|(name, entry)| (name.to_owned(), *entry)));
        ControlFlow::Continue(())
    });
    let report = report.await.unwrap();
    assert!(told.iter().all(|(_, entry)| entry.outcome == Outcome::Ok && entry.at <= plan.duration));
    for (name, figures) in report.table.requests {
        assert_eq!(told.iter().filter(|(of, _)| *of == name).count() as u64, figures.sent, "{name}");
    }
    assert_eq!(told.len() as u64, report.table.total.sent);
}

#[tokio::test]
async fn what_cannot_be_planned_is_said() {
    let here = "127.0.0.1:1".parse().unwrap();
    let plan = plan(here, mix(&["/"]), "1", 1);
    let fails = async |plan: &Plan| run(plan, |_| ControlFlow::Continue(())).await.unwrap_err();
    for target in ["/just/a/path", "ftp://127.0.0.1", "http://no.such.host.invalid"] {
        let error = fails(&Plan { target: target.parse().unwrap(), ..plan.clone() }).await;
        assert!(error.contains(target), "{error}");
    }
    let error = fails(&Plan { cpus: vec![100_000], ..plan.clone() }).await;
    assert!(error.contains("100000"), "{error}");
    let target = format!("http://127.0.0.1:1/{}", "long".repeat(16_000)).parse().unwrap();
    let error = fails(&Plan { target, mix: mix(&[&format!("/{}", "long".repeat(16_000))]), ..plan }).await;
    assert!(error.contains("path"), "{error}");
}
