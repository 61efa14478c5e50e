//! The subcommand `plimsoll load`.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::PathAndQuery;
use http::{HeaderName, Method, Uri};
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::Nanos;
use plimsoll_core::config::{self, mix};
use tokio::runtime::Builder;

use crate::report::Report;
use crate::run::{Plan, Progress, run as run_plan};
use crate::schedule::{Rate, Spacing};
use crate::system::pin_thread;
use crate::target::HttpVersion;

/// A generator that lags more than this cannot be trusted with the figures it gives.
const LATE_WARNING_MS: f64 = 5.0;

/// Send open-loop load to a server and report latencies from the intended send times
///
/// Requests leave when the schedule says so, whether or not earlier ones were answered: a slow server gets no less
/// load, and the time that requests wait for it is in the figures.
#[derive(clap::Args)]
#[command(
    after_long_help = "A mix is a file of [request.NAME] tables with method, path, share, body, headers and \
                             deadline:\n\n  \
                             [request.search]\n  path = \"/search?q=plimsoll\"\n  share = 0.8\n  deadline = \"250ms\"\n\n  \
                             [request.order]\n  method = \"POST\"\n  path = \"/orders\"\n  share = 0.2\n  \
                             body = '{\"item\": 7}'\n  headers = { content-type = \"application/json\" }"
)]
pub struct Args {
    /// Where to send: http://HOST:PORT or https://HOST:PORT; a path goes before those of the mix
    #[arg(long, value_name = "URL")]
    target: Uri,
    /// What to send; without it, GET of the target's own path
    #[arg(long, value_name = "FILE")]
    mix: Option<PathBuf>,
    /// Requests per second: "100", a ramp "100..300", or steps "0s:100,10s:300,20s:300..50"
    #[arg(long)]
    rate: Rate,
    /// How long to send, as in "30s"
    #[arg(long, default_value = "10s")]
    duration: Nanos,
    /// How arrivals lie within the rate
    #[arg(long, value_enum, default_value_t = Spacing::Poisson)]
    spacing: Spacing,
    /// Fixes the schedule
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The version of HTTP; 2 is spoken by prior knowledge without TLS
    #[arg(long, value_name = "1|2", default_value = "1", value_parser = ["1", "2"])]
    http: String,
    /// Accept any certificate
    #[arg(long)]
    insecure: bool,
    /// The most connections at a time; requests wait while all are in use [default: 2000, HTTP/2: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,
    /// The most requests at a time on one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    streams: u32,
    /// A request without its full answer this long after its intended sending is an error
    #[arg(long, default_value = "60s")]
    timeout: Nanos,
    /// How often clients try again within that time what was refused, or lost its connection; latencies still run from the first sending
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    retries: u32,
    /// How long they wait before it, twice as long each time, from half of it to all of it at random
    #[arg(long, default_value = "100ms")]
    backoff: Nanos,
    /// The header that tells the server how many milliseconds of a request's deadline are left
    #[arg(long, value_name = "NAME")]
    deadline_header: Option<HeaderName>,
    /// Sending threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// The processors to run on, as in "1" or "0,1"
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    pin: Vec<usize>,
    /// Write every request to a CSV file: at_s (intended), request, outcome, latency_ms
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand; what the process should exit with.
pub fn run(args: Args) -> ExitCode {
    match load(&args) {
        Ok(report) => {
            match args.json {
                true => println!("{}", serde_json::to_string(&report).expect("plain figures")),
                false => println!("{report}"),
            }
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("plimsoll load: {message}");
            ExitCode::FAILURE
        }
    }
}

fn load(args: &Args) -> Result<Report, String> {
    let plan = plan(args)?;
    // The collector as well, lest it take from the server what the pinning was to leave it.
    pin_thread(&plan.cpus)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let line = Line::new(&plan);
    let report = runtime.block_on(async {
        let interrupted = Arc::new(AtomicBool::new(false));
        tokio::spawn({
            let interrupted = interrupted.clone();
            async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    interrupted.store(true, Ordering::Relaxed);
                }
            }
        });
        run_plan(&plan, |progress| {
            line.show(progress);
            match interrupted.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
        .await
    })?;
    line.clear();
    if let Some(late) = report.table.total.late_ms_p99.filter(|late| *late > LATE_WARNING_MS) {
        eprintln!(
            "warning: 1 % of the requests left {late:.1} ms late or more: all connections were in use, or the \
             generator is short of CPU"
        );
    }
    Ok(report)
}

fn plan(args: &Args) -> Result<Plan, String> {
    let http = if args.http == "2" { HttpVersion::Http2 } else { HttpVersion::Http1 };
    let (target, mix) = match &args.mix {
        Some(file) => (args.target.clone(), read_mix(file)?),
        None => split_path(&args.target)?,
    };
    if args.duration == Nanos::ZERO {
        return Err("a duration of zero sends nothing".into());
    }
    let defaults = Plan::new(target, mix, args.rate.clone(), args.duration, http);
    Ok(Plan {
        spacing: args.spacing,
        seed: args.seed,
        insecure: args.insecure,
        connections: args.connections.map_or(defaults.connections, |n| n as usize),
        streams: args.streams as usize,
        timeout: args.timeout,
        retries: args.retries,
        backoff: args.backoff,
        threads: args.threads as usize,
        cpus: args.pin.clone(),
        deadline_header: args.deadline_header.clone(),
        log: args.log.clone(),
        ..defaults
    })
}

fn read_mix(file: &Path) -> Result<mix::Mix, String> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|e| format!("{name}: {e}"))?;
    let (mix, warnings) = config::parse::<mix::Mix>(&text, &name).map_err(|errors| errors.to_string())?;
    for warning in warnings {
        eprintln!("{warning}");
    }
    Ok(mix)
}

/// A target and a mix of the one request for the URL itself.
fn split_path(url: &Uri) -> Result<(Uri, mix::Mix), String> {
    let mut parts = url.clone().into_parts();
    let root = PathAndQuery::from_static("/");
    let path = parts.path_and_query.replace(root.clone()).unwrap_or(root);
    let target = Uri::from_parts(parts)
        .map_err(|_| format!("target `{url}`: write a URL, as in \"http://127.0.0.1:8080\""))?;
    let request = mix::Request {
        name: path.to_string(),
        method: Method::GET,
        path,
        share: 1.0,
        body: String::new(),
        headers: Vec::new(),
        deadline: None,
    };
    Ok((target, mix::Mix { requests: vec![request] }))
}

/// The live line on the terminal; nothing where stderr is none.
struct Line(ProgressBar);

impl Line {
    fn new(plan: &Plan) -> Line {
        let bar = ProgressBar::new(plan.duration.0 / 1_000_000);
        let style = ProgressStyle::with_template("{bar:20} {msg}").expect("a valid template");
        bar.set_style(style.progress_chars("=> "));
        Line(bar)
    }

    fn show(&self, progress: &Progress<'_>) {
        if self.0.is_hidden() {
            return;
        }
        let (recent, so_far) = (progress.recent().total, progress.so_far().total);
        let ms = |latency: Option<f64>| latency.map_or("-".into(), |ms| format!("{ms:.1}"));
        self.0.set_position(progress.elapsed.0 / 1_000_000);
        self.0.set_message(format!(
            "{:.0} s  {:.0} good/s  p50 {} p99 {} ms  refused {}  errors {}  under way {}",
            progress.elapsed.as_secs_f64(),
            recent.goodput_per_s,
            ms(recent.p50_ms),
            ms(recent.p99_ms),
            so_far.rejected + so_far.refused_other,
            so_far.errors,
            so_far.sent - so_far.ok - so_far.rejected - so_far.refused_other - so_far.errors,
        ));
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}
