//! In front of a Solr: queries get a number, and who runs and who waits can be asked for.

mod common;

use std::sync::Arc;

use common::server::{Server, full};
use common::{Sentry, client, eventually, soon};
use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use plimsoll_sentry::solr::View;
use tokio::sync::Semaphore;

const POOL: &str = "workers = 1\nsolr = {}";

fn view(sentry: &Sentry) -> View {
    sentry.pool().solr.as_ref().unwrap().view("test", 1, None)
}

#[tokio::test]
async fn a_query_can_be_cancelled_and_is_seen_until_it_is_answered() {
    let (asked, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
    let (seen, open) = (Arc::clone(&asked), Arc::clone(&gate));
    let server = Server::http(move |request: Request<Incoming>| {
        seen.lock().push(request.uri().to_string());
        let open = Arc::clone(&open);
        async move {
            open.acquire().await.unwrap().forget();
            Response::new(full("found"))
        }
    })
    .await;
    let sentry = Sentry::before(&[server.address], POOL);
    // Whoever asks is answered later.
    #[allow(clippy::async_yields_async)]
    let ask = async |path: &str| {
        let mut sender = client::http1(sentry.address).await;
        let request = client::request("GET", path, "");
        tokio::spawn(async move { soon(sender.send_request(request)).await.unwrap().status() })
    };
    let first = ask("/solr/items/select?q=name:hush").await;
    eventually(
        || view(&sentry).queries.iter().any(|query| query.server.is_some()),
        || format!("{:?}", view(&sentry)),
    )
    .await;
    let second = ask("/solr/items/select?q=hush").await;
    eventually(|| view(&sentry).queries.len() == 2, || format!("{:?}", view(&sentry))).await;
    let [runs, waits] = &view(&sentry).queries[..] else { panic!("there are two") };
    assert_eq!(runs.server.as_deref(), Some(&*server.address.to_string()));
    assert_eq!((&*runs.core, &*runs.form), ("/solr/items", "select q=name:?"));
    assert_eq!((waits.server.as_ref(), &*waits.form), (None, "select q=?"));
    let id = &runs.id;
    let marked = format!("/solr/items/select?q=name:hush&canCancel=true&queryUUID={id}&queryID={id}");
    assert_eq!(asked.lock()[..], [marked]);
    gate.add_permits(2);
    assert!(first.await.unwrap().is_success() && second.await.unwrap().is_success());
    eventually(|| view(&sentry).queries.is_empty(), || format!("{:?}", view(&sentry))).await;
    assert_eq!(view(&sentry).answered, 2);
}
