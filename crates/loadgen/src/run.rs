//! A whole run: from the plan over the sending threads to the report.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http::{HeaderName, Uri};
use plimsoll_core::config::mix::Mix;
use plimsoll_core::{Nanos, Rng, rng};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

use crate::clock::Clock;
use crate::log::{Entry, Log};
use crate::report::{Report, Table, rounded};
use crate::schedule::{Arrival, Arrivals, Rate, Spacing};
use crate::stats::Tally;
use crate::system;
use crate::target::{HttpVersion, Target};
use crate::template::Template;
use crate::worker::{self, Job, Reporting};

/// How often progress is told.
const PROGRESS: Duration = Duration::from_millis(250);
/// How long threads have to start before the first request may be due.
const HEAD_START: Nanos = Nanos::from_millis(20);
/// The first random stream that is a thread's: of its choice of connections, and the next one of when it tries again. 0 and 1 are the schedule's.
const THREAD_STREAM: u64 = 2;

/// What to send, where to, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Scheme, host and port; a path goes before every path of the mix.
    pub target: Uri,
    /// What to send.
    pub mix: Mix,
    /// How much of it.
    pub rate: Rate,
    /// For how long. Afterwards what is under way is waited for.
    pub duration: Nanos,
    /// How arrivals lie within the rate.
    pub spacing: Spacing,
    /// Fixes the schedule.
    pub seed: u64,
    /// The protocol.
    pub http: HttpVersion,
    /// Whether to accept any certificate.
    pub insecure: bool,
    /// The most connections open at a time, over all threads. Requests wait while all are in use.
    pub connections: usize,
    /// The most requests at a time on one HTTP/2 connection.
    pub streams: usize,
    /// After this time from its intended sending a request without its full answer is an error.
    pub timeout: Nanos,
    /// How often a request that was refused, or whose connection was lost, is tried again at most within that time.
    pub retries: u32,
    /// How long a client waits before it tries again, twice as long each time, from half of it to all of it at random.
    pub backoff: Nanos,
    /// Sending threads.
    pub threads: usize,
    /// The processors that the sending threads may use; empty: all.
    pub cpus: Vec<usize>,
    /// The header that tells the server the milliseconds left of a request's deadline.
    pub deadline_header: Option<HeaderName>,
    /// Where every single request is written down.
    pub log: Option<PathBuf>,
    /// Whether [`Progress::ended`] tells of every single request.
    pub tells_each: bool,
}

impl Plan {
    /// A plan with the defaults of the command line.
    pub fn new(target: Uri, mix: Mix, rate: Rate, duration: Nanos, http: HttpVersion) -> Plan {
        Plan {
            target,
            mix,
            rate,
            duration,
            spacing: Spacing::Poisson,
            seed: 1,
            http,
            insecure: false,
            connections: match http {
                HttpVersion::Http1 => 2_000,
                HttpVersion::Http2 => 20,
            },
            streams: 100,
            timeout: Nanos::from_secs(60),
            retries: 0,
            backoff: Nanos::from_millis(100),
            threads: 1,
            cpus: Vec::new(),
            deadline_header: None,
            log: None,
            tells_each: false,
        }
    }
}

/// How a run stands.
pub struct Progress<'a> {
    /// Since the start.
    pub elapsed: Nanos,
    /// Since progress was told last.
    pub interval: Nanos,
    mix: &'a Mix,
    recent: &'a [Tally],
    total: &'a [Tally],
}

impl Progress<'_> {
    /// The figures of the last interval alone.
    pub fn recent(&self) -> Table {
        Table::new(names(self.mix), self.recent, self.interval)
    }

    /// The figures since the start.
    pub fn so_far(&self) -> Table {
        Table::new(names(self.mix), self.total, self.elapsed)
    }

    /// How every single request ended that has ended since progress was told last, by its name in the mix. Nothing unless
    /// [`Plan::tells_each`].
    pub fn ended(&self) -> impl Iterator<Item = (&str, &Entry)> {
        let by_name = names(self.mix).zip(self.recent);
        by_name.flat_map(|(name, tally)| tally.log.iter().map(move |entry| (name, entry)))
    }
}

fn names(mix: &Mix) -> impl Iterator<Item = &str> {
    mix.requests.iter().map(|request| request.name.as_str())
}

/// Carries the plan out on threads of its own and tells `progress` four times a second, and once more at the end, how it goes,
/// until that says `Break`. Dropping the future also ends the run.
///
/// # Errors
/// Says what in the plan cannot be carried out: a target that is no URL or has no address, a mix without shares,
/// processors that are not there, a log that cannot be written. A target that does not answer is no error of the run; its requests are.
pub async fn run(
    plan: &Plan,
    mut progress: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<Report, String> {
    system::raise_descriptor_limit();
    let target = Target::resolve(&plan.target, plan.http, plan.insecure).await?;
    let templates = plan.mix.requests.iter();
    let templates = templates.map(|request| Template::new(request, &target, plan.deadline_header.as_ref()));
    let templates = templates.collect::<Result<_, String>>()?;
    let clock = Clock::starting_in(HEAD_START);
    let job = Arc::new(Job {
        clock,
        target,
        templates,
        timeout: plan.timeout,
        retries: plan.retries,
        backoff: plan.backoff,
        connections: (plan.connections / plan.threads.max(1)).max(1),
        streams: match plan.http {
            HttpVersion::Http1 => 1,
            HttpVersion::Http2 => plan.streams.max(1),
        },
        log: plan.log.is_some() || plan.tells_each,
    });
    let mut log = plan.log.as_deref().map(Log::create).transpose()?;
    let mut threads = Threads::start(plan, &job)?;

    let mut recent = vec![Tally::new(); plan.mix.requests.len()];
    let mut total = recent.clone();
    let mut told = Nanos::ZERO;
    let mut interrupted_at = None;
    let mut tick = tokio::time::interval(PROGRESS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            interval = threads.tallies.recv() => match interval {
                Some(interval) => {
                    if let Some(log) = &mut log {
                        for (name, tally) in names(&plan.mix).zip(&interval) {
                            log.write(name, &tally.log)?;
                        }
                    }
                    merge(&mut recent, &interval);
                    if plan.tells_each {
                        recent.iter_mut().zip(interval).for_each(|(sum, tally)| sum.log.extend(tally.log));
                    }
                }
                None => break,
            },
            _ = tick.tick() => {
                let elapsed = clock.now();
                merge(&mut total, &recent);
                let interval = elapsed.since(told);
                let state = Progress { elapsed, interval, mix: &plan.mix, recent: &recent, total: &total };
                if progress(&state).is_break() && interrupted_at.is_none() {
                    interrupted_at = Some(elapsed.min(plan.duration));
                    threads.stop.send_replace(());
                }
                recent.iter_mut().for_each(Tally::clear);
                told = elapsed;
            }
        }
    }
    merge(&mut total, &recent);
    let elapsed = clock.now();
    let state =
        Progress { elapsed, interval: elapsed.since(told), mix: &plan.mix, recent: &recent, total: &total };
    // It has ended anyway.
    let _ = progress(&state);
    for result in threads.results {
        result.await.map_err(|_| "a sending thread panicked".to_owned())??;
    }
    log.map(Log::finish).transpose()?;
    let duration = interrupted_at.unwrap_or(plan.duration);
    Ok(Report {
        table: Table::new(names(&plan.mix), &total, duration),
        target: plan.target.to_string(),
        rate: rounded(plan.rate.expected(plan.duration) / plan.duration.as_secs_f64()),
        schedule: plan.rate.to_string(),
        spacing: plan.spacing,
        seed: plan.seed,
        duration_s: rounded(duration.as_secs_f64()),
        elapsed_s: rounded(clock.now().as_secs_f64()),
        interrupted: interrupted_at.is_some(),
    })
}

fn merge(into: &mut [Tally], interval: &[Tally]) {
    for (sum, tally) in into.iter_mut().zip(interval) {
        sum.merge(tally);
    }
}

/// The sending threads, seen from the collector.
struct Threads {
    tallies: mpsc::Receiver<Vec<Tally>>,
    stop: watch::Sender<()>,
    results: Vec<oneshot::Receiver<Result<(), String>>>,
}

impl Threads {
    fn start(plan: &Plan, job: &Arc<Job>) -> Result<Threads, String> {
        let threads = plan.threads.max(1);
        let (tallies_tx, tallies) = mpsc::channel(2 * threads);
        let (stop, stopped) = watch::channel(());
        let mut results = Vec::new();
        for index in 0..threads {
            let shares = plan.mix.requests.iter().map(|request| request.share).collect();
            let arrivals = Arrivals::new(&plan.rate, plan.duration, plan.spacing, shares, plan.seed)?;
            // Every thread makes the whole schedule and takes its turns, so the schedule is the same for any
            // number of threads.
            let arrivals = arrivals.skip(index).step_by(threads);
            let stream = THREAD_STREAM + 2 * index as u64;
            let rngs = [stream, stream + 1].map(|stream| rng::seeded(plan.seed, stream));
            let reporting = Reporting { tallies: tallies_tx.clone(), stop: stopped.clone() };
            let (result_tx, result) = oneshot::channel();
            let (job, cpus) = (job.clone(), plan.cpus.clone());
            thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn(move || {
                    // Nobody waits for the result of a run that was dropped.
                    let _ = result_tx.send(send_all(job, arrivals, rngs, reporting, &cpus));
                })
                .map_err(|e| format!("cannot start a thread: {e}"))?;
            results.push(result);
        }
        Ok(Threads { tallies, stop, results })
    }
}

fn send_all(
    job: Arc<Job>,
    arrivals: impl Iterator<Item = Arrival> + 'static,
    rngs: [Rng; 2],
    reporting: Reporting,
    cpus: &[usize],
) -> Result<(), String> {
    system::pin_thread(cpus)?;
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let sent: io::Result<()> =
        runtime.and_then(|runtime| runtime.block_on(worker::run(job, arrivals, rngs, reporting)));
    sent.map_err(|e| format!("a sending thread failed: {e}"))
}
