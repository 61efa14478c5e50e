//! A real etcd behind a sentry: a range that holds up everybody is ended and its client told so, and whatever is no range goes on untouched.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::uri::PathAndQuery;
use plimsoll_core::config::{Config, parse};
use plimsoll_sentry::etcd::message::RangeRequest;
use plimsoll_sentry::state::Shared;
use plimsoll_sentry::stats::Failure;
use plimsoll_sentry::worker::{self, WorkerSetup};
use plimsoll_testbed::etcd::{Operation, Options, Server, Session, Target};
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// How long what must happen is waited for. Far more than it takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the pool lets anything be silent that is judged.
const SILENCE: Duration = Duration::from_millis(1_500);
const KEYS: u64 = 30_000;

#[derive(Clone, PartialEq, Message)]
struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct WatchResponse {
    #[prost(bool, tag = "3")]
    created: bool,
    #[prost(bytes = "vec", repeated, tag = "11")]
    events: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Lease {
    /// The time to live of a request to grant one, the number of one that is kept alive.
    #[prost(int64, tag = "1")]
    first: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseResponse {
    #[prost(int64, tag = "2")]
    id: i64,
    #[prost(int64, tag = "3")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// A worker of a sentry, in this process.
struct Sentry {
    target: Target,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Sentry {
    /// Before an etcd at this address, with more of the pool's settings.
    fn before(etcd: &str, more: &str) -> Sentry {
        let text = format!(
            "[sentry]\ndrain_timeout = \"200ms\"\n[pool.kv]\nservers = [\"{etcd}\"]\nworkers = 16\nresponse_timeout = \"1s\"\n\
             stream_timeout = \"500ms\"\n{more}[etcd.main]\nslo = {{ p99 = \"4ms\" }}\nmode = \"enforce\"\n"
        );
        let config = parse::<Config>(&text, "test").unwrap_or_else(|e| panic!("{e}")).0;
        let shared = Arc::new(Shared::new(config, 1, None).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target { address: listener.local_addr().unwrap(), timeout: None };
        let of_thread = Arc::clone(&shared);
        let setup = move || WorkerSetup {
            listeners: vec![vec![listener]],
            shared: of_thread,
            seed: 1,
            ready: Box::new(|| {}),
        };
        let thread = std::thread::spawn(move || worker::run(setup()));
        Sentry { target, shared, thread: Some(thread) }
    }

    fn cancelled(&self) -> u64 {
        let routing = self.shared.routing().load();
        routing.classes.last().unwrap().stats.snapshot().failed[Failure::Cancelled as usize]
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.shared.begin_drain();
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap().unwrap();
        }
    }
}

fn there_is_none() -> bool {
    let Err(remedy) = Server::is_there() else { return false };
    assert!(std::env::var_os("PLIMSOLL_REQUIRE_ETCD").is_none_or(|it| it != "1"), "{remedy}");
    eprintln!("SKIPPED: {remedy}");
    true
}

/// Says one thing, and leaves its side open.
async fn open<A, B>(session: &Session, path: &'static str, first: A) -> Streaming<B>
where
    A: Message + Default + 'static,
    B: Message + Default + 'static,
{
    let says = stream::once(async move { first }).chain(stream::pending());
    let (codec, path) = (ProstCodec::<A, B>::default(), PathAndQuery::from_static(path));
    let mut grpc = session.grpc();
    grpc.ready().await.unwrap();
    grpc.streaming(Request::new(says), path, codec).await.unwrap().into_inner()
}

async fn next<B>(answers: &mut Streaming<B>) -> B {
    let answer = tokio::time::timeout(PATIENCE, answers.message()).await.expect("nothing comes");
    answer.expect("it was cut").expect("it has ended")
}

/// Reads all keys in the order of their values again and again, until it is told to end or it is over.
async fn hog(target: Target, over: Arc<AtomicBool>) -> Option<Status> {
    let mut session = Session::connect(&target).await.unwrap();
    let range = RangeRequest {
        key: b"item-".to_vec(),
        range_end: b"item.".to_vec(),
        limit: 10,
        sort_order: 1,
        sort_target: 4,
        ..RangeRequest::default()
    };
    while !over.load(Relaxed) {
        match session.range(range.clone()).await {
            Err(status) if status.code() == Code::ResourceExhausted => return Some(status),
            // It may have been too late.
            Ok(_) | Err(_) => {}
        }
    }
    None
}

/// Reads keys and writes some until something is so.
async fn others(session: &mut Session, until: impl Fn() -> bool) {
    let all = async {
        for i in 0.. {
            if until() {
                return;
            }
            let get: Operation = format!("range item-{}", i % KEYS).parse().unwrap();
            let put: Operation = format!("put item-{} x", i % KEYS).parse().unwrap();
            let mut writer = session.clone();
            let (read, written) = tokio::join!(session.run(&get, &[]), writer.run(&put, &[]));
            // Nothing but a range of many keys is ever ended; what takes longer than a second here may fail for that.
            for status in [read, written].into_iter().filter_map(Result::err) {
                assert_ne!(status.code(), Code::ResourceExhausted, "{status}");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("it does not happen");
}

/// Writes until that is possible.
async fn until_written(session: &mut Session) {
    let written = async {
        while session.put("key", "value").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("nothing can be written");
}

/// Whoever asks meanwhile is told that there is no answer, soon.
async fn is_refused(session: &mut Session) {
    let asked = tokio::time::timeout(PATIENCE, session.put("key", "value"));
    let status = asked.await.expect("an answer, though etcd gives none").unwrap_err();
    assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status}");
}

#[tokio::test]
async fn an_etcd_that_dies_or_hangs_is_served_again_when_it_is_back_over_tls_too() {
    if there_is_none() {
        return;
    }
    let mut etcd = Server::start(&Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let sentry = Sentry::before(&etcd.address().to_string(), "");
    let mut session = Session::connect(&sentry.target).await.unwrap();
    until_written(&mut session).await;
    etcd.stop(true);
    is_refused(&mut session).await;
    etcd.resume().unwrap();
    until_written(&mut session).await;
    let process = || Pid::from_raw(etcd.pid().unwrap() as i32).unwrap();
    kill_process(process(), Signal::STOP).unwrap();
    is_refused(&mut session).await;
    kill_process(process(), Signal::CONT).unwrap();
    until_written(&mut session).await;
    assert_eq!(sentry.cancelled(), 0, "nobody was to blame");

    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let [certificate, key] = ["own.pem", "own.key"].map(|name| etcd.directory().join(name));
    std::fs::write(&certificate, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    etcd.stop(false);
    etcd.secure(&certificate, &key);
    etcd.resume().unwrap();
    let (at, held_to) = (format!("https://{}", etcd.address()), certificate.display());
    let sentry = Sentry::before(&at, &format!("tls_ca = \"{held_to}\"\n"));
    let mut session = Session::connect(&sentry.target).await.unwrap();
    until_written(&mut session).await;
    assert_eq!(
        session.range(RangeRequest { key: b"key".to_vec(), ..RangeRequest::default() }).await.unwrap(),
        1
    );
}

#[tokio::test]
async fn a_range_that_holds_up_everybody_is_ended_and_nothing_else_is() {
    if there_is_none() {
        return;
    }
    let etcd = Server::start(&Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let sentry = Sentry::before(&etcd.address().to_string(), "");
    let mut session = Session::connect(&sentry.target).await.unwrap();
    let fill = Operation::Fill { prefix: "item-".to_owned(), keys: KEYS, size: 200 };
    // Transactions pass, too.
    session.run(&fill, &[]).await.unwrap();

    let create = WatchRequest { create: Some(WatchCreate { key: b"watched".to_vec() }) };
    let mut watch: Streaming<WatchResponse> = open(&session, "/etcdserverpb.Watch/Watch", create).await;
    assert!(next(&mut watch).await.created);
    let lease: LeaseResponse =
        session.ask("/etcdserverpb.Lease/LeaseGrant", Lease { first: 60 }).await.unwrap();
    let keep = Lease { first: lease.id };
    let mut kept: Streaming<LeaseResponse> = open(&session, "/etcdserverpb.Lease/LeaseKeepAlive", keep).await;
    assert_eq!(next(&mut kept).await.ttl, 60);
    let lock = || LockRequest { name: b"lock".to_vec() };
    let held: LockResponse = session.ask("/v3lockpb.Lock/Lock", lock()).await.unwrap();
    let mut waiting = session.clone();
    let waiting =
        tokio::spawn(async move { waiting.ask::<_, LockResponse>("/v3lockpb.Lock/Lock", lock()).await });

    let over = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..3).map(|_| tokio::spawn(hog(sentry.target.clone(), Arc::clone(&over)))).collect();
    others(&mut session, || sentry.cancelled() > 0).await;
    over.store(true, Relaxed);
    let mut told = Vec::new();
    for hog in hogs {
        told.extend(hog.await.unwrap());
    }
    assert!(!told.is_empty());
    for status in told {
        assert!(status.message().starts_with("cancelled: a range that sorts"), "{status}");
        assert!(!status.message().contains("item"), "no key is told: {status}");
    }

    tokio::time::sleep(SILENCE).await;
    session.put("watched", "now").await.unwrap();
    assert_eq!(next(&mut watch).await.events.len(), 1, "the watch goes on");
    assert!(!waiting.is_finished(), "whoever waits for a lock waits");
    let _: Nothing = session.ask("/v3lockpb.Lock/Unlock", UnlockRequest { key: held.key }).await.unwrap();
    let lock = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(!lock.unwrap().key.is_empty());
    let still = tokio::time::timeout(Duration::from_millis(50), kept.message()).await;
    assert!(still.is_err(), "the lease is kept alive over a stream that is still open");
}
