//! Requests that a server cancels are sent once more when there is room, and only if that is safe; and a sentry that is told that its
//! servers are late sends them fewer at once.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::server::{Server, full};
use common::{Sentry, client, eventually, soon};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use plimsoll_core::Nanos;

const POOL: &str = "workers = 4\nreruns = 2";

/// Cancels what does not say that it comes the second time; of `/always` also what does.
async fn cancels(seen: &Arc<AtomicUsize>) -> Server {
    let seen = Arc::clone(seen);
    Server::http(move |request: Request<Incoming>| {
        seen.fetch_add(1, Ordering::Relaxed);
        let again = request.headers().contains_key("plimsoll-rerun");
        let cancelled = !again || request.uri().path() == "/always";
        async move {
            let mut response = Response::new(full(if cancelled { "cancelled" } else { "the report" }));
            if cancelled {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                response.headers_mut().insert("plimsoll-cancelled", "table".parse().unwrap());
            }
            response
        }
    })
    .await
}

async fn ask(sentry: &Sentry, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut request = client::request(method, path, body.to_owned());
    // A client cannot say it: what says it is not cancelled.
    request.headers_mut().insert("plimsoll-rerun", "1".parse().unwrap());
    let response = soon(client::http1(sentry.address).await.send_request(request)).await.unwrap();
    (response.status().as_u16(), client::text(response).await)
}

#[tokio::test]
async fn what_was_cancelled_is_sent_once_more_when_there_has_been_room() {
    let seen = Arc::default();
    let server = cancels(&seen).await;
    let sentry = Sentry::before(&[server.address], POOL);
    assert_eq!(ask(&sentry, "GET", "/report", "").await, (200, "the report".to_owned()));
    assert_eq!((seen.load(Ordering::Relaxed), sentry.count("reruns")), (2, 1));
    let class = sentry.default_class();
    assert_eq!((class.offered, class.served), (2, 1), "the second time is a request of its own");

    assert_eq!(ask(&sentry, "GET", "/always", "").await.0, 503, "and there is no third");
    assert_eq!(seen.load(Ordering::Relaxed), 4);
    sentry.settled().await;
}

#[tokio::test]
async fn what_is_not_safe_or_not_wanted_is_not() {
    for (pool, method, body) in [(POOL, "POST", "two pairs"), (POOL, "POST", ""), ("workers = 4", "GET", "")]
    {
        let seen = Arc::default();
        let server = cancels(&seen).await;
        let sentry = Sentry::before(&[server.address], pool);
        assert_eq!(ask(&sentry, method, "/report", body).await, (503, "cancelled".to_owned()));
        assert_eq!((seen.load(Ordering::Relaxed), sentry.count("reruns")), (1, 0));
    }
}

#[tokio::test]
async fn a_deadline_ends_the_wait() {
    let seen = Arc::default();
    let server = cancels(&seen).await;
    let sentry = Sentry::before(&[server.address], POOL);
    // Never any room.
    sentry.pool().ease.tell(Nanos::MAX, plimsoll_sentry::clock::now());
    let mut request = client::request("GET", "/report", "");
    request.headers_mut().insert("x-request-deadline-ms", "300".parse().unwrap());
    let response = soon(client::http1(sentry.address).await.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(client::text(response).await.contains("no room to run it again"));
    assert_eq!((seen.load(Ordering::Relaxed), sentry.count("reruns")), (1, 0));
    sentry.settled().await;
}

#[tokio::test]
async fn servers_that_are_late_get_fewer_at_once_for_as_long_as_that_is_said() {
    let server = Server::http(common::server::mirror).await;
    let sentry = Sentry::before(&[server.address], "workers = 40");
    let slots = || sentry.pool().slots.size();
    assert_eq!(slots(), 40);
    let share = sentry.shared.put_overload("p", Nanos::from_millis(1_500)).unwrap();
    assert_eq!(share, 1.0, "it has only been said");
    eventually(|| slots() < 40, || format!("{} slots", slots())).await;
    eventually(|| slots() == 40, || format!("{} slots, and nobody has said it again", slots())).await;
    let error = sentry.shared.put_overload("shoop", Nanos::from_millis(1_500)).unwrap_err().to_string();
    assert!(error.contains("there is no such pool"), "{error}");
}
