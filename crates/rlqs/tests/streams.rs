//! Leaders and data planes on loopback: how rates get from the one to the others, and what becomes of them when something breaks.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::Nanos;
use plimsoll_rlqs::Tenure;
use plimsoll_rlqs::assignment::{Assignment, Limit};
use plimsoll_rlqs::client::{self, Health, Quotas, Usage};
use plimsoll_rlqs::server::{Rates, Server, Settings};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Nothing here takes this long, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn clock() -> Nanos {
    static ORIGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    Nanos::from(ORIGIN.elapsed())
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

struct Leader {
    server: Server,
    decides: watch::Sender<Rates>,
    tenure: Tenure,
}

impl Leader {
    async fn start(listen: SocketAddr, revision: u64, per_s: Option<f64>) -> Leader {
        Leader::with_token(listen, revision, per_s, None).await
    }

    async fn with_token(
        listen: SocketAddr,
        revision: u64,
        per_s: Option<f64>,
        token: Option<&str>,
    ) -> Leader {
        let (decides, decided) = watch::channel(Rates { revision, per_s: vec![per_s] });
        let (token, classes, tenure) = (token.map(str::to_owned), vec!["a".to_owned()], Tenure::for_ever());
        // The port of one that has just ended may be taken for a moment still.
        let began = Instant::now();
        loop {
            let settings = Settings {
                listen,
                token: token.clone(),
                classes: classes.clone(),
                tenure: tenure.clone(),
                clock,
            };
            match Server::start(settings, decided.clone()).await {
                Ok(server) => return Leader { server, decides, tenure },
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn decide(&self, revision: u64, per_s: Option<f64>) {
        self.decides.send_replace(Rates { revision, per_s: vec![per_s] });
    }
}

/// A data plane at which so many requests a second arrive of `a`.
#[derive(Default)]
struct Plane {
    per_s: f64,
    reported: Mutex<Nanos>,
    told: Mutex<HashMap<String, Assignment>>,
    times_told: AtomicU64,
}

impl Quotas for Plane {
    fn usage(&self) -> Vec<Usage> {
        let (now, mut before) = (clock(), self.reported.lock());
        let all = (self.per_s * now.since(*before).as_secs_f64()) as u64;
        *before = now;
        vec![Usage { class: "a".to_owned(), allowed: all, denied: 0 }]
    }
    fn assign(&self, class: &str, assignment: Assignment) {
        self.told.lock().insert(class.to_owned(), assignment);
        self.times_told.fetch_add(1, Relaxed);
    }
}

struct Running {
    plane: Arc<Plane>,
    health: Arc<Health>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(controllers: &[SocketAddr], per_s: f64) -> Running {
        Running::with_token(controllers, per_s, None)
    }

    fn with_token(controllers: &[SocketAddr], per_s: f64, token: Option<&str>) -> Running {
        let plane = Arc::new(Plane { per_s, reported: Mutex::new(clock()), ..Plane::default() });
        let health = Arc::<Health>::default();
        let controllers = controllers.iter().map(|address| format!("http://{address}")).collect();
        let settings = client::Settings { controllers, token: token.map(str::to_owned), clock };
        let (of_task, its_health) = (Arc::clone(&plane), Arc::clone(&health));
        let task = tokio::spawn(async move {
            client::follow(&settings, &*of_task, &its_health).await;
        });
        Running { plane, health, task }
    }

    fn per_s(&self) -> Option<f64> {
        match self.plane.told.lock().get("a")?.limit {
            Limit::Rate { per_s, .. } => Some(per_s),
            Limit::None => Some(f64::INFINITY),
        }
    }

    async fn has(&self, per_s: f64) {
        until(&format!("{per_s}/s"), || self.per_s() == Some(per_s)).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[tokio::test]
async fn a_rate_gets_through_and_so_does_its_end() {
    let leader = Leader::start(anywhere(), 7, Some(500.0)).await;
    let plane = Running::start(&[leader.server.address()], 100.0);
    plane.has(500.0).await;
    assert_eq!(plane.plane.told.lock()["a"].holds_for, Nanos::from_secs(3));
    assert!(plane.health.connected.load(Relaxed) && plane.health.revision.load(Relaxed) == 7);
    leader.decide(7, Some(200.0));
    plane.has(200.0).await;
    leader.decide(7, None);
    plane.has(f64::INFINITY).await;
    until("its demand is known", || (50.0..150.0).contains(&leader.server.demand()[0].steady.offered_per_s))
        .await;
    // It is told again and again, though nothing changes.
    let before = plane.plane.times_told.load(Relaxed);
    until("told again", || plane.plane.times_told.load(Relaxed) > before + 4).await;
}

#[tokio::test]
async fn two_planes_share_a_rate_by_their_demand_and_one_that_dies_leaves_its_part() {
    let leader = Leader::start(anywhere(), 1, Some(1_000.0)).await;
    let address = [leader.server.address()];
    let (small, big) = (Running::start(&address, 1_000.0), Running::start(&address, 9_000.0));
    let sum = || small.per_s().zip(big.per_s()).map(|(small, big)| small + big);
    until("one to nine, and a little evenly", || {
        sum().is_some_and(|sum| sum <= 1_000.0)
            && small.per_s().is_some_and(|per_s| (80.0..200.0).contains(&per_s))
            && big.per_s().is_some_and(|per_s| (750.0..920.0).contains(&per_s))
    })
    .await;
    drop(big);
    small.has(1_000.0).await;
    assert_eq!(leader.server.streams(), 1);
}

#[tokio::test]
async fn a_leader_that_is_killed_is_followed_by_the_next() {
    let first = Leader::start(anywhere(), 1, Some(100.0)).await;
    let address = first.server.address();
    let plane = Running::start(&[address], 10.0);
    plane.has(100.0).await;
    drop(first);
    until("it is missed", || !plane.health.connected.load(Relaxed)).await;
    let _second = Leader::start(address, 2, Some(300.0)).await;
    plane.has(300.0).await;
    assert_eq!(plane.health.revision.load(Relaxed), 2);
}

#[tokio::test]
async fn a_leader_of_an_older_revision_is_not_listened_to() {
    let deposed = Leader::start(anywhere(), 4, Some(1.0)).await;
    let leader = Leader::start(anywhere(), 5, Some(900.0)).await;
    let plane = Running::start(&[leader.server.address(), deposed.server.address()], 10.0);
    plane.has(900.0).await;
    // The leader is gone; the one before it still thinks that it leads.
    drop(leader);
    until("it is found to be stale, again and again", || plane.health.stale.load(Relaxed) >= 2).await;
    assert_eq!(plane.per_s(), Some(900.0), "it has said nothing that counts");
    assert!(!plane.health.connected.load(Relaxed));
    // Until it is elected again, which whoever listens to it is told by a new stream.
    deposed.decide(6, Some(50.0));
    plane.has(50.0).await;
}

#[tokio::test]
async fn one_who_follows_a_leader_whose_revision_changes_hears_of_it() {
    let leader = Leader::start(anywhere(), 1, Some(100.0)).await;
    let plane = Running::start(&[leader.server.address()], 10.0);
    plane.has(100.0).await;
    leader.decide(9, Some(200.0));
    plane.has(200.0).await;
    until("the new revision is known", || plane.health.revision.load(Relaxed) == 9).await;
}

#[tokio::test]
async fn a_controller_that_decides_no_more_ends_its_streams() {
    let Leader { server, decides, .. } = Leader::start(anywhere(), 1, Some(100.0)).await;
    let plane = Running::start(&[server.address()], 10.0);
    plane.has(100.0).await;
    drop(decides);
    until("nobody is listened to", || !plane.health.connected.load(Relaxed) && server.streams() == 0).await;
}

#[tokio::test]
async fn a_leader_whose_time_is_over_says_nothing_more_whatever_it_decides() {
    let leader = Leader::start(anywhere(), 1, Some(100.0)).await;
    let plane = Running::start(&[leader.server.address()], 10.0);
    plane.has(100.0).await;
    leader.tenure.renew(Nanos::ZERO);
    leader.decide(1, Some(1.0));
    until("it has ended its streams", || {
        !plane.health.connected.load(Relaxed) && leader.server.streams() == 0
    })
    .await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!((plane.per_s(), leader.server.streams()), (Some(100.0), 0), "nor does it begin new ones");
}

/// Accepts, and never answers: as a process that was stopped, whose kernel goes on.
#[tokio::test]
async fn one_that_is_frozen_is_passed_over() {
    let frozen = TcpListener::bind(anywhere()).await.unwrap();
    let leader = Leader::start(anywhere(), 1, Some(100.0)).await;
    let plane = Running::start(&[frozen.local_addr().unwrap(), leader.server.address()], 10.0);
    plane.has(100.0).await;
}

/// Passes bytes on, until it is told to hold them, as a network that has come apart does.
async fn network(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind(anywhere()).await.unwrap();
    let (address, apart) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let is_apart = Arc::clone(&apart);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(to).await else { continue };
            let (near, far) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near.0, far.1, Arc::clone(&is_apart)));
            tokio::spawn(carry(far.0, near.1, Arc::clone(&is_apart)));
        }
    });
    (address, apart)
}

async fn carry(
    from: tokio::net::tcp::OwnedReadHalf,
    to: tokio::net::tcp::OwnedWriteHalf,
    apart: Arc<AtomicBool>,
) {
    let mut bytes = [0; 4_096];
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if apart.load(Relaxed) {
            continue;
        }
        if from.readable().await.is_err() {
            return;
        }
        let n = match from.try_read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut sent = 0;
        while sent < n {
            if to.writable().await.is_err() {
                return;
            }
            match to.try_write(&bytes[sent..n]) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return, // who was to have it has gone
            }
        }
    }
}

#[tokio::test]
async fn a_partition_parts_them_and_its_end_brings_them_together() {
    let leader = Leader::start(anywhere(), 1, Some(100.0)).await;
    let (address, apart) = network(leader.server.address()).await;
    let plane = Running::start(&[address], 10.0);
    plane.has(100.0).await;
    apart.store(true, Relaxed);
    until("the plane notices", || !plane.health.connected.load(Relaxed)).await;
    until("so does the leader, and gives its part to others", || leader.server.streams() == 0).await;
    leader.decide(1, Some(200.0));
    apart.store(false, Relaxed);
    plane.has(200.0).await;
}

#[tokio::test]
async fn only_who_shows_the_token_is_heard() {
    let leader = Leader::with_token(anywhere(), 1, Some(100.0), Some("correct-horse")).await;
    let address = [leader.server.address()];
    let without = Running::start(&address, 10.0);
    let wrong = Running::with_token(&address, 10.0, Some("correct-mouse"));
    let right = Running::with_token(&address, 10.0, Some("correct-horse"));
    right.has(100.0).await;
    assert_eq!((without.per_s(), wrong.per_s(), leader.server.streams()), (None, None, 1));
}

/// A sentry of a version before there were revisions, or an Envoy: it does not say what it has heard, and gets its part.
#[tokio::test]
async fn who_knows_of_no_revisions_gets_its_rates_too() {
    use plimsoll_rlqs::messages::{BucketId, BucketUsage, QuotaResponse, UsageReports};
    let leader = Leader::start(anywhere(), 7, Some(500.0)).await;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", leader.server.address()));
    let mut client = tonic::client::Grpc::new(endpoint.unwrap().connect().await.unwrap());
    client.ready().await.unwrap();
    let bucket = std::collections::BTreeMap::from([("class".to_owned(), "a".to_owned())]);
    let usage =
        BucketUsage { bucket_id: Some(BucketId { bucket }), num_requests_allowed: 3, ..Default::default() };
    let report = UsageReports { domain: "old".to_owned(), bucket_quota_usages: vec![usage] };
    let reports = tonic::Request::new(tokio_stream::iter([report]));
    let path = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    let path = http::uri::PathAndQuery::from_static(path);
    let codec = tonic_prost::ProstCodec::<UsageReports, QuotaResponse>::default();
    let mut answers = client.streaming(reports, path, codec).await.unwrap().into_inner();
    let answer =
        tokio::time::timeout(PATIENCE, answers.message()).await.expect("it is told").unwrap().unwrap();
    let (class, assignment) = plimsoll_rlqs::assignment::read(&answer.bucket_action[0]).unwrap();
    assert!(matches!(assignment.limit, Limit::Rate { per_s, .. } if per_s == 500.0), "{assignment:?}");
    assert_eq!(class, "a");
}

/// Bytes that are no HTTP/2, a stream that is no gRPC, a message that is no message, and one that is too long.
#[tokio::test]
async fn hostile_peers_harm_nobody() {
    use tokio::io::AsyncWriteExt;
    let leader = Leader::start(anywhere(), 1, Some(100.0)).await;
    let address = leader.server.address();
    for garbage in [
        &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        b"\0\0\0\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff",
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
    }
    for body in
        [b"\0\0\0\0\x02\xff\xff".to_vec(), [&b"\0\x7f\xff\xff\xff"[..], &[0; 64]].concat(), b"junk".to_vec()]
    {
        raw(address, body).await;
    }
    let plane = Running::start(&[address], 10.0);
    plane.has(100.0).await;
    until("the others are gone", || leader.server.streams() == 1).await;
}

/// A stream with this body, which begins as gRPC wants it and need not be any.
async fn raw(address: SocketAddr, body: Vec<u8>) {
    use tonic::body::Body;
    use tower_service::Service;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut channel = endpoint.connect().await.unwrap();
    let path = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    let request =
        http::Request::post(format!("http://{address}{path}")).header("content-type", "application/grpc");
    let request = request.body(Body::new(http_body_util::Full::<bytes::Bytes>::from(body))).unwrap();
    std::future::poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
    // What it answers does not matter, as long as the others are served.
    let _ = tokio::time::timeout(PATIENCE, channel.call(request)).await.expect("an answer");
}
