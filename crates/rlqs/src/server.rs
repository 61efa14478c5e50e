//! The leader's side: listens to all who report, and tells them their rates, every [`STEP`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use plimsoll_core::Nanos;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service as Tower;

use crate::fleet::{Demand, Fleet, Unheard};
use crate::incoming::{self, Opened, incoming};
use crate::messages::{QuotaResponse, UsageReports};
use crate::{LONGEST, PATH, REVISION, STEP, Tenure};

/// Streams at once; further ones are refused.
const MOST_STREAMS: usize = 4_096;
/// Of one connection. An Envoy has one stream a filter.
const MOST_STREAMS_EACH: u32 = 64;
/// Messages that wait for somebody who does not read: two seconds of them. Who reads no more than that is cut off.
const MOST_UNREAD: usize = 8;
/// How soon a peer that says nothing is asked whether it is there, and how long it has to say so. A data plane that has stopped must not
/// keep its part of the rates.
const PING: Duration = Duration::from_secs(1);
/// See [`PING`].
const PONG: Duration = Duration::from_secs(2);

/// What has been decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Of the leader who decides; higher than any before it.
    pub revision: u64,
    /// By class, in the order of [`Settings::classes`]: requests a second that may enter everywhere together; nothing where there is
    /// no limit.
    pub per_s: Vec<Option<f64>>,
}

/// How to serve.
#[derive(Clone)]
pub struct Settings {
    /// Where.
    pub listen: SocketAddr,
    /// What is to be shown in `authorization: Bearer`; nothing where nobody is asked.
    pub token: Option<String>,
    /// The names that buckets are known by.
    pub classes: Vec<String>,
    /// For how long anybody is told anything.
    pub tenure: Tenure,
    /// The time.
    pub clock: fn() -> Nanos,
}

/// A server, until it is dropped.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    tells: JoinHandle<()>,
    /// Dropped when the server is: it listens no more then, and tells those who are connected to look for another.
    _serves: oneshot::Sender<()>,
}

impl Server {
    /// Listens, and passes on whatever is decided, until nobody decides any more.
    ///
    /// # Errors
    /// Where it cannot listen.
    pub async fn start(settings: Settings, rates: watch::Receiver<Rates>) -> io::Result<Server> {
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            fleet: Mutex::new(Fleet::new(settings.classes)),
            listeners: Mutex::default(),
            rates: rates.clone(),
            token: settings.token.map(|token| format!("Bearer {token}")),
            tenure: settings.tenure,
            clock: settings.clock,
        });
        let service = Service(Arc::clone(&shared));
        let (serves, over) = oneshot::channel();
        let serve = async move {
            let incoming = incoming(listener, incoming::MOST, incoming::PATIENCE);
            let server = tonic::transport::Server::builder()
                .max_concurrent_streams(MOST_STREAMS_EACH)
                .http2_keepalive_interval(Some(PING))
                .http2_keepalive_timeout(Some(PONG));
            if let Err(error) =
                server.serve_with_incoming_shutdown(service, incoming, async { drop(over.await) }).await
            {
                log::error!(error:%; "rates are no longer served");
            }
        };
        tokio::spawn(serve);
        let tells = tokio::spawn(tell(Arc::clone(&shared), rates));
        Ok(Server { address, shared, tells, _serves: serves })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What arrives, by class, in the order of [`Settings::classes`].
    pub fn demand(&self) -> Vec<Demand> {
        self.shared.fleet.lock().demand()
    }

    /// How many report.
    pub fn streams(&self) -> usize {
        self.shared.fleet.lock().streams()
    }

    /// What was heard that was of no use.
    pub fn unheard(&self) -> Unheard {
        self.shared.fleet.lock().unheard()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tells.abort();
        self.shared.end_all();
    }
}

type Answers = mpsc::Sender<Result<QuotaResponse, Status>>;
type Stream = ReceiverStream<Result<QuotaResponse, Status>>;

/// Who is at the other end of a stream.
struct Listener {
    answers: Answers,
    /// The revision that it was told at the beginning.
    told: u64,
    /// Hears its reports. Has a hold on the stream, too: it ends with both.
    hears: AbortHandle,
}

struct Shared {
    fleet: Mutex<Fleet>,
    listeners: Mutex<HashMap<u64, Listener>>,
    rates: watch::Receiver<Rates>,
    /// The whole header.
    token: Option<String>,
    tenure: Tenure,
    clock: fn() -> Nanos,
}

impl Shared {
    /// Somebody begins to report.
    fn open(self: &Arc<Self>, request: Request<Streaming<UsageReports>>) -> Result<Response<Stream>, Status> {
        if !self.shows(request.metadata()) {
            return Err(Status::unauthenticated("the token is wrong, or missing"));
        }
        if let Some(opened) = request.extensions().get::<Opened>() {
            opened.set();
        }
        if self.rates.has_changed().is_err() || !self.tenure.lasts((self.clock)()) {
            return Err(Status::unavailable("nobody decides here any more"));
        }
        let revision = self.rates.borrow().revision;
        let (answers, receiver) = mpsc::channel(MOST_UNREAD);
        {
            let (mut fleet, mut listeners) = (self.fleet.lock(), self.listeners.lock());
            if listeners.len() >= MOST_STREAMS {
                return Err(Status::resource_exhausted(format!("{MOST_STREAMS} streams are open already")));
            }
            // A sentry says which revision it has heard, and keeps what is in its buckets.
            let stream = fleet.open(!request.metadata().contains_key(REVISION));
            let hears = Arc::clone(self).hear(stream, request.into_inner(), answers.clone());
            let hears = tokio::spawn(hears).abort_handle();
            listeners.insert(stream, Listener { answers, told: revision, hears });
        }
        let mut response = Response::new(ReceiverStream::new(receiver));
        response.metadata_mut().insert(REVISION, MetadataValue::from(revision));
        Ok(response)
    }

    /// Whether the token is shown, where one is wanted. Takes as long for one wrong token as for another.
    fn shows(&self, metadata: &MetadataMap) -> bool {
        let Some(wanted) = &self.token else { return true };
        let shown = metadata.get(AUTHORIZATION.as_str()).map_or(&b""[..], |value| value.as_encoded_bytes());
        shown.len() == wanted.len()
            && shown.iter().zip(wanted.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    /// Listens to a stream to its end. Dropped without an end where nobody is there to be answered.
    async fn hear(self: Arc<Self>, stream: u64, mut reports: Streaming<UsageReports>, answers: Answers) {
        loop {
            let report = tokio::select! {
                report = reports.message() => report,
                () = answers.closed() => break,
            };
            match report {
                Ok(Some(report)) => {
                    let is_new = self.fleet.lock().report(stream, report.bucket_quota_usages, (self.clock)());
                    // Who has just come is not kept waiting.
                    if is_new {
                        self.tell(Some(stream));
                    }
                }
                Ok(None) => break,
                Err(status) => {
                    log::debug!(status:%; "a stream of reports broke");
                    break;
                }
            }
        }
        self.close(stream);
    }

    fn close(&self, stream: u64) {
        self.fleet.lock().close(stream);
        if let Some(listener) = self.listeners.lock().remove(&stream) {
            listener.hears.abort();
        }
    }

    /// Tells this stream, or all, what they may let in. Who was told of another leader at its beginning is cut off, so that it hears of
    /// this one; so is who does not read.
    fn tell(&self, only: Option<u64>) {
        // Looked at here, and not only where it is renewed: whoever was stopped goes on here first.
        if !self.tenure.lasts((self.clock)()) {
            return self.end_all();
        }
        let Rates { revision, per_s } = self.rates.borrow().clone();
        let answers = {
            let (mut fleet, now) = (self.fleet.lock(), (self.clock)());
            match only {
                Some(stream) => fleet.assign_one(stream, &per_s, now),
                None => fleet.assign(&per_s, now),
            }
        };
        let listeners = self.listeners.lock();
        let deposed = listeners.iter().filter(|(_, listener)| listener.told != revision);
        let mut over: Vec<u64> = deposed.map(|(stream, _)| *stream).collect();
        for (stream, response) in answers {
            if over.contains(&stream) {
                continue;
            }
            if let Some(listener) = listeners.get(&stream)
                && listener.answers.try_send(Ok(response)).is_err()
            {
                over.push(stream);
            }
        }
        drop(listeners);
        over.into_iter().for_each(|stream| self.close(stream));
    }

    fn end_all(&self) {
        let streams: Vec<u64> = self.listeners.lock().keys().copied().collect();
        streams.into_iter().for_each(|stream| self.close(stream));
    }
}

/// Step by step, and at once where something new has been decided.
async fn tell(shared: Arc<Shared>, mut rates: watch::Receiver<Rates>) {
    let mut ticks = interval(STEP.into());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            changed = rates.changed() => if changed.is_err() { break },
        }
        shared.tell(None);
    }
    // Nobody decides any more: whoever listens must look for somebody who does.
    shared.end_all();
}

/// The service, to tonic's transport.
#[derive(Clone)]
struct Service(Arc<Shared>);

impl Tower<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = Method(Arc::clone(&self.0));
        Box::pin(async move {
            if request.uri().path() != PATH {
                return Ok(
                    Status::unimplemented("there is StreamRateLimitQuotas, and nothing else").into_http()
                );
            }
            let codec = ProstCodec::<QuotaResponse, UsageReports>::default();
            Ok(Grpc::new(codec).max_decoding_message_size(LONGEST).streaming(method, request).await)
        })
    }
}

struct Method(Arc<Shared>);

impl StreamingService<UsageReports> for Method {
    type Response = QuotaResponse;
    type ResponseStream = Stream;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<UsageReports>>) -> Self::Future {
        std::future::ready(self.0.open(request))
    }
}
