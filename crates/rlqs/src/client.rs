//! A data plane's side: holds to whoever leads, reports what was counted every [`STEP`], and hands on what is assigned.
//!
//! It never ends and nothing waits for it. When no leader is to be had, assignments run out by themselves.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::uri::PathAndQuery;
use plimsoll_core::Nanos;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use crate::assignment::{Assignment, read};
use crate::messages::{BucketId, BucketUsage, QuotaResponse, UsageReports};
use crate::{CLASS, LONGEST, PATH, REVISION, STEP};

/// How long somebody who is to lead may take to answer, and to say something.
const PATIENCE: Duration = Duration::from_secs(1);
/// Somebody who has said nothing for so long has stopped, whatever its kernel says; a leader says something every step. Below the time that an
/// assignment lives, so that there is some left to find another leader in.
const SILENT: Duration = Duration::from_secs(2);
/// After all have been tried, it begins again after so long. Those who stand by do not listen, so it costs a refused connection each; and
/// whoever takes over is to be found before what was assigned last has run out.
const PAUSE: Duration = Duration::from_millis(250);
/// Reports must say whose buckets they are. The name is the same for all: they are told apart by class.
const DOMAIN: &str = "plimsoll";

/// What one class counted since it was last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Its name.
    pub class: String,
    /// Requests that were let in.
    pub allowed: u64,
    /// Requests that were turned away because of the rate.
    pub denied: u64,
}

/// Who counts, and who is told.
pub trait Quotas: Sync {
    /// What was counted since the last call, of every class.
    fn usage(&self) -> Vec<Usage>;
    /// So much of a class may enter from now on. It may be one that nobody here knows.
    fn assign(&self, class: &str, assignment: Assignment);
}

/// Whom to ask, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// URLs (`http://host:port`), tried in turn.
    pub controllers: Vec<String>,
    /// What they want to be shown.
    pub token: Option<String>,
    /// The time.
    pub clock: fn() -> Nanos,
}

/// How it goes.
#[derive(Debug, Default)]
pub struct Health {
    /// Whether a leader is being listened to.
    pub connected: AtomicBool,
    /// The highest revision that was heard.
    pub revision: AtomicU64,
    /// Answers of leaders that were leaders no more, none of which was listened to.
    pub stale: AtomicU64,
    /// Assignments that could not be.
    pub nonsense: AtomicU64,
}

/// Follows whoever leads, for ever.
pub async fn follow(settings: &Settings, quotas: &impl Quotas, health: &Health) -> Infallible {
    let mut said = None;
    loop {
        for controller in &settings.controllers {
            let was = health.revision.load(Relaxed);
            let error = match session(settings, controller, quotas, health).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            let had_led = health.connected.swap(false, Relaxed);
            // The same thing is said once, however often it is found.
            let news = (controller.clone(), error, was);
            if had_led || said.as_ref() != Some(&news) {
                log::warn!(controller:% = controller, error:% = news.1; "no rates from this controller");
                said = Some(news);
            }
        }
        sleep(PAUSE).await;
    }
}

/// One stream, to its end.
async fn session(
    settings: &Settings,
    controller: &str,
    quotas: &impl Quotas,
    health: &Health,
) -> Result<Infallible, String> {
    let (reports, outgoing) = mpsc::channel(1);
    let heard = health.revision.load(Relaxed);
    let opened = timeout(PATIENCE, open(settings, controller, heard, outgoing)).await;
    let (revision, mut answers) = opened.map_err(|_| "no answer".to_owned())??;
    let highest = health.revision.fetch_max(revision, Relaxed);
    if revision < highest {
        health.stale.fetch_add(1, Relaxed);
        return Err(format!("its revision is {revision}, and {highest} has led since"));
    }
    log::info!(controller:%, revision; "rates come from this controller");
    health.connected.store(true, Relaxed);
    let mut ticks = interval(STEP.into());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut heard, mut reported) = (Instant::now(), (settings.clock)());
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                if heard.elapsed() > SILENT {
                    return Err("it has stopped".to_owned());
                }
                // What finds no room is counted on and goes with the next.
                if let Ok(place) = reports.try_reserve() {
                    let now = (settings.clock)();
                    place.send(report(quotas.usage(), now.since(reported)));
                    reported = now;
                }
            }
            answer = answers.message() => match answer {
                Ok(Some(answer)) => {
                    heard = Instant::now();
                    take(&answer, quotas, health);
                }
                Ok(None) => return Err("it has ended the stream".to_owned()),
                Err(status) => return Err(words(&status)),
            },
        }
    }
}

/// Opens a stream. Returns the revision of whoever answers, and the answers.
async fn open(
    settings: &Settings,
    controller: &str,
    heard: u64,
    outgoing: mpsc::Receiver<UsageReports>,
) -> Result<(u64, Streaming<QuotaResponse>), String> {
    let endpoint = Endpoint::from_shared(controller.to_owned()).map_err(|error| error.to_string())?;
    let channel: Channel = endpoint.tcp_nodelay(true).connect().await.map_err(|error| root(&error))?;
    let mut client = Grpc::new(channel).max_decoding_message_size(LONGEST);
    client.ready().await.map_err(|error| root(&error))?;
    let mut request = Request::new(ReceiverStream::new(outgoing));
    request.metadata_mut().insert(REVISION, AsciiMetadataValue::from(heard));
    if let Some(token) = &settings.token {
        let value =
            AsciiMetadataValue::try_from(format!("Bearer {token}")).map_err(|error| error.to_string())?;
        request.metadata_mut().insert("authorization", value);
    }
    let codec = ProstCodec::<UsageReports, QuotaResponse>::default();
    let path = PathAndQuery::from_static(PATH);
    let response = client.streaming(request, path, codec).await.map_err(|status| words(&status))?;
    // Somebody else's server, which has no revisions, is the oldest of all.
    let revision = response.metadata().get(REVISION).and_then(|value| value.to_str().ok()?.parse().ok());
    Ok((revision.unwrap_or(0), response.into_inner()))
}

fn report(usages: Vec<Usage>, elapsed: Nanos) -> UsageReports {
    let usage = |Usage { class, allowed, denied }| BucketUsage {
        bucket_id: Some(BucketId { bucket: BTreeMap::from([(CLASS.to_owned(), class)]) }),
        // Envoy's rule: more than nothing.
        time_elapsed: Some(elapsed.max(Nanos(1)).into()),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    };
    UsageReports { domain: DOMAIN.to_owned(), bucket_quota_usages: usages.into_iter().map(usage).collect() }
}

/// Hands on what can be, and counts what cannot.
pub fn take(answer: &QuotaResponse, quotas: &impl Quotas, health: &Health) {
    for action in &answer.bucket_action {
        match read(action) {
            Ok((class, assignment)) => quotas.assign(class, assignment),
            Err(_) => drop(health.nonsense.fetch_add(1, Relaxed)),
        }
    }
}

/// What is at the bottom of an error, which its own words do not say.
fn root(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root)
}

fn words(status: &tonic::Status) -> String {
    match status.message() {
        "" => status.code().to_string(),
        message => message.to_owned(),
    }
}
