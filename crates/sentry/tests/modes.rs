//! Modes, reloads, slots that are withheld, and the end of a worker.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::client;
use common::server::{Held, Server, full, mirror};
use common::{Sentry, config, eventually, parse, soon};
use http::{Request, Response};
use http_body_util::BodyExt;
use plimsoll_core::Nanos;
use plimsoll_sentry::clock;
use plimsoll_sentry::pool::sheepdog::Workers;
use plimsoll_sentry::share::Share;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

fn ask(sentry: &Sentry) -> JoinHandle<(u16, String)> {
    let address = sentry.address;
    tokio::spawn(async move { client::get(address, "/").await })
}

async fn all_served(requests: Vec<JoinHandle<(u16, String)>>) {
    for request in requests {
        assert_eq!(soon(request).await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn off_counts_and_nothing_else() {
    let held = Held::start().await;
    let sentry =
        Sentry::before(&[held.server.address], "workers = 1\nmax_queue = 1\nadmission = { mode = \"off\" }");
    let requests: Vec<_> = (0..10).map(|_| ask(&sentry)).collect();
    eventually(|| held.arrived() == 10, || "all at the server".to_owned()).await;
    let pool = sentry.pool();
    assert_eq!((pool.slots.taken(), pool.slots.waiting(), pool.gate.queued()), (0, 0, 0));
    held.permits.add_permits(10);
    all_served(requests).await;
    sentry.settled().await;
    let c = sentry.default_class();
    assert_eq!((c.offered, c.unjudged, c.served, c.granted.iter().sum::<u64>()), (10, 10, 10, 0));
    assert_eq!(c.response.count(), 10, "how long they took is counted in every mode");
}

#[tokio::test]
async fn shadow_says_what_it_would_do_and_does_nothing() {
    let held = Held::start().await;
    let pool = "workers = 2\nmax_queue = 3\nadmission = { policy = \"none\", mode = \"shadow\" }";
    let sentry = Sentry::before(&[held.server.address], pool);
    let mut requests = Vec::new();
    for n in 1..=10 {
        requests.push(ask(&sentry));
        eventually(|| held.arrived() == n, || format!("{n} at the server")).await;
    }
    let would = |sentry: &Sentry| sentry.default_class().would_refuse.iter().sum::<u64>();
    let pool = sentry.pool();
    assert_eq!((pool.slots.taken(), pool.slots.waiting(), pool.gate.queued()), (2, 3, 3), "what would be");
    assert_eq!(would(&sentry), 5, "with two served and three waiting");
    // As some are served, there is room for others.
    held.permits.add_permits(10);
    all_served(requests).await;
    sentry.settled().await;
    assert_eq!(client_after(&sentry, &held).await, 200);
    assert_eq!(would(&sentry), 5);
    let c = sentry.default_class();
    assert_eq!((c.served, c.refused.iter().sum::<u64>(), c.granted.iter().sum::<u64>()), (11, 0, 6));
    let decisions = sentry.shared.routing().load();
    let (_, decision) = decisions.decisions.newest(1, |_, d| !d.verdict.is_admit())[0];
    assert!(!decision.enforced, "and the log says that it was not acted upon");
}

/// Only who enforces keeps anybody waiting: not a police that only looks on, nor a promise that nobody could break.
#[tokio::test]
async fn policing_that_does_not_enforce_keeps_nobody_waiting() {
    for policing in ["{ policy = \"batch\", mode = \"shadow\" }", "{ policy = \"off\" }"] {
        let held = Held::start().await;
        let pool =
            format!("workers = 1\nmax_queue = 1\nadmission = {{ mode = \"off\" }}\npolicing = {policing}");
        let text =
            config("", &[held.server.address], &pool) + "slo = { mean = \"1s\" }\nmin_rate = \"1/s\"\n";
        let sentry = Sentry::start(&text);
        let requests: Vec<_> = (0..10).map(|_| ask(&sentry)).collect();
        eventually(|| held.arrived() == 10, || format!("all at the server with {policing}")).await;
        held.permits.add_permits(10);
        all_served(requests).await;
        sentry.settled().await;
        let c = sentry.default_class();
        assert_eq!((c.served, c.refused.iter().sum::<u64>()), (10, 0), "{policing}");
    }
}

async fn client_after(sentry: &Sentry, held: &Held) -> u16 {
    held.permits.add_permits(1);
    ask(sentry).await.unwrap().0
}

#[tokio::test]
async fn a_shadow_queue_moves_on_when_a_shadow_slot_is_free() {
    let held = Held::start().await;
    let sentry = Sentry::before(
        &[held.server.address],
        "workers = 1\nadmission = { policy = \"none\", mode = \"shadow\" }",
    );
    // A client that leaves frees the shadow slot of its request, and the next in line has it.
    let mut first = TcpStream::connect(sentry.address).await.unwrap();
    first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    eventually(|| held.arrived() == 1, || "the first".to_owned()).await;
    let rest = vec![ask(&sentry), ask(&sentry)];
    eventually(|| sentry.pool().slots.waiting() == 2, || "two would wait".to_owned()).await;
    drop(first);
    eventually(
        || sentry.pool().slots.waiting() == 1 && sentry.pool().slots.taken() == 1,
        || "one moves on".to_owned(),
    )
    .await;
    eventually(|| held.dropped() == 1, || "the server has noticed too".to_owned()).await;
    held.permits.add_permits(2);
    all_served(rest).await;
    sentry.settled().await;
}

#[tokio::test]
async fn a_reload_keeps_what_it_does_not_change_and_loses_no_request() {
    let held = Held::start().await;
    let pool = "workers = 1\nadmission = { policy = \"none\" }";
    let text = config("", &[held.server.address], pool);
    let sentry = Sentry::start(&text);
    let before = sentry.pool();
    let old: Vec<_> = (0..3).map(|_| ask(&sentry)).collect();
    eventually(|| before.slots.waiting() == 2, || "two wait".to_owned()).await;

    // What concerns clients and classes leaves the pool alone, with its queue.
    let with_class =
        format!("{text}priority = 3\n[class.browse]\nmatch = [{{ path = \"/browse\" }}]\npool = \"p\"\n");
    let unchanged = format!("{text}priority = 3\n").replace("[sentry]", "[sentry]\nmax_headers = 50");
    sentry.shared.reload(parse(&unchanged)).unwrap();
    assert!(Arc::ptr_eq(&before, &sentry.pool()));
    assert_eq!(before.slots.waiting(), 2);

    // Another class is another gate, hence another pool. What waits finishes on the old one.
    sentry.shared.reload(parse(&with_class)).unwrap();
    let after = sentry.pool();
    assert!(!Arc::ptr_eq(&before, &after));
    let new = ask(&sentry);
    eventually(|| held.arrived() == 2, || "the new one is served beside the old".to_owned()).await;
    assert_eq!((before.slots.taken(), before.slots.waiting(), after.slots.taken()), (1, 2, 1));
    held.permits.add_permits(4);
    all_served(old).await;
    assert_eq!(new.await.unwrap().0, 200);
    assert_eq!(sentry.default_class().offered, 4, "counters go on");
    eventually(
        || before.slots.taken() == 0 && before.gate.queued() == 0,
        || "the old pool is done".to_owned(),
    )
    .await;
}

#[tokio::test]
async fn a_reload_that_cannot_be_carried_out_changes_nothing() {
    let server = Server::http(mirror).await;
    let text = config("", &[server.address], "workers = 1");
    let sentry = Sentry::start(&text);
    let before = sentry.shared.routing().load_full();
    let bad = text.replace("[sentry]", "[sentry]\ntls = { cert = \"/nowhere.pem\", key = \"/nowhere.key\" }");
    let error = sentry.shared.reload(parse(&bad)).unwrap_err().to_string();
    assert!(error.contains("/nowhere.pem"), "{error}");
    assert!(Arc::ptr_eq(&before, &sentry.shared.routing().load_full()));
    assert_eq!(client::get(sentry.address, "/").await.0, 200);
}

#[tokio::test]
async fn reloads_under_load_lose_nothing() {
    let server = Server::http(|request| async move {
        tokio::time::sleep(Duration::from_millis(2)).await;
        mirror(request).await
    })
    .await;
    let texts: Vec<String> =
        (1..4).map(|n| config("", &[server.address], &format!("workers = {n}\nmax_queue = 500"))).collect();
    let sentry = Sentry::start(
        &texts[0].replace("max_queue = 500", "max_queue = 500\nadmission = { policy = \"none\" }"),
    );
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = sentry.address;
            tokio::spawn(async move {
                let mut client = client::http1(address).await;
                for _ in 0..60 {
                    let response =
                        soon(client.send_request(client::request("POST", "/", "body"))).await.unwrap();
                    assert_eq!(response.status(), 200);
                    assert!(client::text(response).await.ends_with("body"));
                    soon(client.ready()).await.unwrap();
                }
            })
        })
        .collect();
    for i in 0..40 {
        let text =
            texts[i % 3].replace("max_queue = 500", "max_queue = 500\nadmission = { policy = \"none\" }");
        sentry.shared.reload(parse(&text)).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for client in clients {
        client.await.unwrap();
    }
    sentry.settled().await;
}

#[tokio::test]
async fn slots_that_somebody_else_holds_are_left_alone() {
    let held = Held::start().await;
    let sentry = Sentry::before(&[held.server.address], "workers = 3\nadmission = { policy = \"none\" }");
    sentry.shared.withhold_slots("p", 3);
    sentry.shared.withhold_slots("no such pool", 3);
    let requests: Vec<_> = (0..4).map(|_| ask(&sentry)).collect();
    eventually(|| sentry.pool().slots.waiting() == 4, || "all wait".to_owned()).await;
    sentry.shared.withhold_slots("p", 1);
    eventually(|| held.arrived() == 2, || "two may go".to_owned()).await;
    sentry.shared.withhold_slots("p", 0);
    eventually(|| held.arrived() == 3, || "and a third".to_owned()).await;
    held.permits.add_permits(4);
    all_served(requests).await;
    sentry.settled().await;
    assert_eq!(sentry.pool().slots.size(), 3);
}

#[tokio::test]
async fn adaptive_workers_follow_the_gate() {
    let server = Server::http(|_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Response::new(full("ok"))
    })
    .await;
    let sentry =
        Sentry::before(&[server.address], "workers = \"adaptive\"\nadmission = { policy = \"none\" }");
    let pool = sentry.pool();
    let first = pool.slots.size();
    assert_eq!(Some(first), pool.gate.recommended_slots());
    // Always more than it lets through: what the gate finds by that is its own affair, that it counts is ours.
    let crowd: Vec<_> = (0..3 * first)
        .map(|_| {
            let address = sentry.address;
            tokio::spawn(async move {
                let mut client = client::http1(address).await;
                while let Ok(response) = client.send_request(client::request("GET", "/", "")).await {
                    client::text(response).await;
                    soon(client.ready()).await.unwrap();
                }
            })
        })
        .collect();
    eventually(|| pool.slots.size() != first, || "another number".to_owned()).await;
    crowd.iter().for_each(JoinHandle::abort);
    sentry.settled().await;
    eventually(
        || Some(pool.slots.size()) == pool.gate.recommended_slots(),
        || "the gate's number".to_owned(),
    )
    .await;
}

/// What an agent would say of a server that has a worker for each request: slowed when there are more than two of them.
#[tokio::test]
async fn adaptive_workers_follow_what_an_agent_says_of_the_servers() {
    let held = Held::start().await;
    let text = "workers = \"adaptive\"\nmax_slowdown = 2.0\nadmission = { policy = \"none\" }";
    let sentry = Sentry::before(&[held.server.address], text);
    let pool = sentry.pool();
    let first = pool.slots.size();
    assert!(first > 4, "{first}");
    let crowd: Vec<_> = (0..2 * first).map(|_| tokio::spawn(client::get(sentry.address, "/"))).collect();
    let say = |slowdown: f64| {
        let workers = Workers { active: pool.slots.size(), slowdown };
        let servers = BTreeMap::from([(held.server.address.to_string(), workers)]);
        sentry.shared.put_slowdown("p", servers, Nanos::from_secs(1)).unwrap()
    };
    eventually(|| say(f64::from(pool.slots.size()) / 2.0) == 4, || format!("4, not {}", pool.slots.size()))
        .await;
    assert!(pool.flock.decides());
    eventually(|| !pool.flock.decides(), || "an end of what was said".to_owned()).await;
    let error = sentry.shared.put_slowdown("shoop", BTreeMap::new(), Nanos::ZERO).unwrap_err().to_string();
    assert_eq!(error, "there is no such pool; there is p");
    crowd.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_worker_that_drains_finishes_what_it_has_and_ends() {
    let (held, quick) = (Held::start().await, Server::http(mirror).await);
    let text = config("drain_timeout = \"20s\"", &[held.server.address], "workers = 8");
    let sentry = Sentry::start(&format!(
        "{text}pool = \"p\"\n[pool.quick]\nservers = [\"{}\"]\n\
         [class.quick]\nmatch = [{{ path = \"/quick\" }}]\npool = \"quick\"\n",
        quick.address
    ));
    let ask_quick = async |stream: &mut TcpStream| {
        stream.write_all(b"GET /quick HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        client::read_response(stream).await.0
    };
    let mut idle = TcpStream::connect(sentry.address).await.unwrap();
    let mut late = TcpStream::connect(sentry.address).await.unwrap();
    for stream in [&mut idle, &mut late] {
        assert!(!ask_quick(stream).await.contains("connection: close"));
    }
    let mut busy = TcpStream::connect(sentry.address).await.unwrap();
    busy.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut http2 = client::http2(sentry.address).await;
    let busy2 = tokio::spawn(http2.send_request(Request::get("http://a/").body(full("")).unwrap()));
    eventually(|| held.arrived() == 2, || "both in service".to_owned()).await;

    let began = clock::now();
    sentry.shared.begin_drain();
    // A connection that is idle has about a second to send one more, and is told that it was the last.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let head = ask_quick(&mut late).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("connection: close"), "{head}");
    assert_eq!(client::read_all(&mut late).await, "");
    assert_eq!(client::read_all(&mut idle).await, "", "the one that sends nothing is closed");
    assert!(clock::now() - began >= Nanos::from_millis(900), "not at once");
    eventually(|| refuses_connections(sentry.address), || "no new connections".to_owned()).await;
    assert!(!sentry.has_ended(), "two are still in service");

    held.permits.add_permits(2);
    let (head, _) = client::read_response(&mut busy).await;
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("connection: close"), "{head}");
    let response = soon(busy2).await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    soon(response.into_body().collect()).await.unwrap();
    eventually(|| http2.is_closed(), || "GOAWAY".to_owned()).await;
    eventually(|| sentry.has_ended(), || "the worker ends by itself".to_owned()).await;
    assert!(clock::now() - began < Nanos::from_secs(15));
}

fn refuses_connections(address: std::net::SocketAddr) -> bool {
    std::net::TcpStream::connect(address).is_err()
}

#[tokio::test]
async fn a_drain_has_an_end() {
    let held = Held::start().await;
    let sentry = Sentry::start(&config("", &[held.server.address], "workers = 1"));
    let request = ask(&sentry);
    eventually(|| held.arrived() == 1, || "in service".to_owned()).await;
    sentry.shared.begin_drain();
    eventually(|| sentry.has_ended(), || "drain_timeout is 200 ms".to_owned()).await;
    assert!(soon(request).await.is_err(), "the client sees that there is no response");
    eventually(|| held.dropped() == 1, || "and the server is told".to_owned()).await;
}

#[tokio::test]
async fn a_config_that_was_replaced_is_forgotten_even_by_connections_that_stay() {
    let server = Server::http(mirror).await;
    let text = config("", &[server.address], "workers = 1");
    let sentry = Sentry::start(&text);
    let mut stays = client::http1(sentry.address).await;
    let mut ask = async || soon(stays.send_request(client::request("GET", "/", ""))).await.unwrap().status();
    assert_eq!(ask().await, 200);
    let old = Arc::downgrade(&sentry.pool());
    sentry.shared.reload(parse(&text.replace("workers = 1", "workers = 2"))).unwrap();
    eventually(|| old.strong_count() == 0, || format!("{} still hold it", old.strong_count())).await;
    assert_eq!(ask().await, 200);
}

#[tokio::test]
async fn who_keeps_a_connection_opens_another_when_sentries_join() {
    let server = Server::http(mirror).await;
    let sentry = Sentry::start(&config("", &[server.address], "workers = 8"));
    let mut http2 = client::http2(sentry.address).await;
    let request = || Request::get("http://a/").body(full("")).unwrap();
    for share in [Share::ALL, Share::new(0, 2).unwrap()] {
        assert_eq!(soon(http2.send_request(request())).await.unwrap().status(), 200);
        sentry.shared.put_share(share);
    }
    let joined = clock::now();
    while !http2.is_closed() {
        assert!(clock::now() - joined < Nanos::from_secs(15));
        assert_eq!(soon(http2.send_request(request())).await.unwrap().status(), 200, "none is lost");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(clock::now() - joined > Nanos::from_secs(1), "not before the other one listens");
    let mut late = client::http2(sentry.address).await;
    for _ in 0..20 {
        assert_eq!(soon(late.send_request(request())).await.unwrap().status(), 200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!late.is_closed(), "it came when they were there");
}
