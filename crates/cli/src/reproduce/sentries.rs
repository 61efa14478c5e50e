//! Cataclysm, Fig. 6: sentries that come as the load rises, and go when it falls. As in the paper it rises in steps, small pages are asked
//! for, and a request is a connection. Each sentry may use a fifth of a core, so that a small machine has room for several, and
//! the steps follow from what a request costs it here. What takes 30 s and a minute in the paper takes less here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http::{HeaderValue, Method, header};
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_loadgen::{HttpVersion, Plan, Rate};
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};
use plimsoll_testbed::cpu_cap::CpuCap;
use plimsoll_testbed::ports::free_ports;
use serde_json::Value;
use tokio::time::interval;

use crate::processes::{ConfigFile, Page, Process, cpu_s, free_addresses, get, plimsoll, ready, uri};

/// What a sentry may use, in cores.
const CORES: f64 = 0.2;
/// Sentries there may be beside the first.
const MORE: u16 = 3;
/// Requests that the server has at once: to be halved, and divided by three and by four.
const WORKERS: u32 = 48;
/// Within this a page is to be answered, from when it should have been asked for.
const TARGET: Nanos = Nanos::from_millis(250);
/// The busiest sentry uses less than that of its CPU once there are enough: what calls for one more.
const BUSY: f64 = 0.8;
/// How long a change takes to show in what the sentries say.
const SHOWS_AFTER_S: f64 = 3.0;
/// What came is counted over a time; what is left of a step behind its last is none.
const AN_INTERVAL: Nanos = Nanos::from_millis(100);
/// From one look at the sentries to the next.
const LOOK: Duration = Duration::from_millis(250);

/// What comes when, as shares of what one sentry can do.
struct Course {
    /// In the first step, and more in each that follows, until there are enough sentries.
    first: f64,
    more: f64,
    /// Of each step; the last one is twice as long.
    step_s: u64,
    /// Then that would be too much for all there may be.
    most_steps: u32,
    /// How long a sentry must be busy.
    busy_for_s: u64,
    /// Sentries that are enough.
    enough: usize,
    /// At the end so little comes, for so long.
    lull: f64,
    lull_s: u64,
}

const FULL: Course = Course {
    first: 0.5,
    more: 0.1,
    step_s: 10,
    most_steps: 32,
    busy_for_s: 4,
    enough: 3,
    lull: 0.2,
    lull_s: 40,
};
const QUICK: Course = Course {
    first: 0.7,
    more: 0.15,
    step_s: 2,
    most_steps: 8,
    busy_for_s: 1,
    enough: 2,
    lull: 0.2,
    lull_s: 8,
};

/// What was seen at one moment.
struct Seen {
    at_s: f64,
    /// By admin address, how busy.
    sentries: BTreeMap<String, f64>,
}

impl Seen {
    fn busiest(&self) -> f64 {
        self.sentries.values().copied().fold(0.0, f64::max)
    }
}

/// Arrivals, sentries and their CPU over time.
pub fn fig6(settings: Settings) -> Result<Findings, String> {
    let cap = match CpuCap::new(CORES) {
        Ok(cap) => cap,
        Err(why) => {
            let rows = vec![Row::beside(format!("not measured: {why}"), None, None)];
            return Ok(Findings { rows, figures: Vec::new() });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(run(settings, cap))
}

async fn run(settings: Settings, cap: CpuCap) -> Result<Findings, String> {
    let course = if settings.quick { &QUICK } else { &FULL };
    let page = Page::start(1)?;
    let [listen, admin, controller] = free_addresses()?;
    let state = tempfile::tempdir().map_err(|e| format!("no directory: {e}"))?;
    let config = config(course, [listen, admin, controller], page.addr, state.path())?;
    let config = ConfigFile::write("fig6", &config)?;
    let start = |arguments: &[&str]| {
        let mut command = plimsoll()?;
        command
            .args(arguments)
            .arg("--config")
            .arg(config.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Process::start(command)
    };
    let first = start(&["sentry", "--admin", &admin.to_string()])?;
    ready(admin).await?;
    cap.hold(first.id()).map_err(|e| format!("it cannot be capped: {e}"))?;
    let capacity_per_s = capacity(listen, first.id(), settings).await?;

    // It ends what it has started; they must not outlive this.
    let _controller = start(&["controller", "--stop-servers"])?;
    let mut log = Log::default();
    let watch = Watch { controller, state: state.path(), caps: RefCell::default() };
    let mut share = course.first;
    for _ in 0..course.most_steps {
        log.step(&watch, &plan(listen, share * capacity_per_s, course.step_s, settings.seed)).await?;
        if log.most() >= course.enough {
            break;
        }
        share += course.more;
    }
    log.step(&watch, &plan(listen, share * capacity_per_s, 2 * course.step_s, settings.seed)).await?;
    log.lull_begins_s = log.span_s;
    log.step(&watch, &plan(listen, course.lull * capacity_per_s, course.lull_s, settings.seed)).await?;
    Ok(findings(settings, course, capacity_per_s, &log))
}

/// What has happened.
#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    /// Requests a second, over time.
    arrivals: Vec<(f64, f64)>,
    sent: u64,
    ok: u64,
    /// Of these, within the target.
    good: f64,
    refused: u64,
    errors: u64,
    /// How far the generator itself lagged in the worst step, by its 99th percentile: this machine was busy with something else.
    late_ms: f64,
    span_s: f64,
    lull_begins_s: f64,
}

impl Log {
    /// Carries out one step, and sees to the sentries meanwhile.
    async fn step(&mut self, watch: &Watch<'_>, plan: &Plan) -> Result<(), String> {
        let now_s = Cell::new(self.span_s);
        let load = plimsoll_loadgen::run(plan, |progress| {
            now_s.set(self.span_s + progress.elapsed.as_secs_f64());
            if progress.interval >= AN_INTERVAL {
                let per_s = progress.recent().total.sent as f64 / progress.interval.as_secs_f64();
                self.arrivals.push((now_s.get(), per_s));
            }
            ControlFlow::Continue(())
        });
        let seen = &mut self.seen;
        let looks = async {
            let mut looks = interval(LOOK);
            loop {
                looks.tick().await;
                watch.hold_all()?;
                let sentries = watch.look().await.unwrap_or_default();
                if !sentries.is_empty() {
                    seen.push(Seen { at_s: now_s.get(), sentries });
                }
            }
        };
        let report = tokio::select! {
            report = load => report?,
            failed = looks => return failed,
        };
        let total = &report.table.total;
        self.sent += total.sent;
        self.ok += total.ok;
        self.good += total.goodput_per_s * plan.duration.as_secs_f64();
        self.refused += total.rejected + total.refused_other;
        self.errors += total.errors;
        self.late_ms = self.late_ms.max(total.late_ms_p99.unwrap_or(0.0));
        self.span_s += plan.duration.as_secs_f64();
        Ok(())
    }

    /// Sentries that there were at most.
    fn most(&self) -> usize {
        self.seen.iter().map(|seen| seen.sentries.len()).max().unwrap_or(0)
    }
}

/// Sees to the sentries that the controller starts.
struct Watch<'a> {
    controller: SocketAddr,
    state: &'a Path,
    /// By process id.
    caps: RefCell<BTreeMap<u32, CpuCap>>,
}

impl Watch<'_> {
    /// Gives each as much as the first has.
    fn hold_all(&self) -> Result<(), String> {
        let notes = std::fs::read_dir(self.state.join("sentries")).into_iter().flatten().flatten();
        let pid = |note: std::fs::DirEntry| {
            let note: Value = serde_json::from_slice(&std::fs::read(note.path()).ok()?).ok()?;
            u32::try_from(note["pid"].as_u64()?).ok()
        };
        let mut caps = self.caps.borrow_mut();
        for pid in notes.filter_map(pid) {
            if let Entry::Vacant(new) = caps.entry(pid) {
                new.insert(CpuCap::new(CORES)?);
            }
            caps[&pid].hold(pid).map_err(|e| format!("a sentry cannot be capped: {e}"))?;
        }
        Ok(())
    }

    /// How busy each is, by admin address; nothing while the controller does not say.
    async fn look(&self) -> Option<BTreeMap<String, f64>> {
        let plan: Value = serde_json::from_str(&get(self.controller, "/plan").await.ok()?).ok()?;
        let sentry = |sentry: &Value| {
            Some((sentry["address"].as_str()?.to_owned(), sentry["busy"].as_f64().unwrap_or(0.0)))
        };
        plan["sentries"].as_array()?.iter().map(sentry).collect()
    }
}

/// Requests a second that one sentry can answer, from what one costs when its CPU is half used.
async fn capacity(sentry: SocketAddr, pid: u32, settings: Settings) -> Result<f64, String> {
    let mut capacity_per_s = 600.0;
    for _ in 0..2 {
        let before = cpu_s(pid)?;
        let seconds = if settings.quick { 1 } else { 2 };
        let plan = plan(sentry, capacity_per_s / 2.0, seconds, settings.seed);
        let report = plimsoll_loadgen::run(&plan, |_| ControlFlow::Continue(())).await?;
        capacity_per_s = CORES * report.table.total.sent as f64 / (cpu_s(pid)? - before).max(1e-3);
    }
    Ok(capacity_per_s)
}

fn plan(sentry: SocketAddr, per_s: f64, seconds: u64, seed: u64) -> Plan {
    let request = Request {
        name: "page".to_owned(),
        method: Method::GET,
        path: "/healthz".parse().expect("a path"),
        share: 1.0,
        body: String::new(),
        headers: vec![(header::CONNECTION, HeaderValue::from_static("close"))],
        deadline: Some(TARGET),
    };
    let plan = Plan::new(
        uri(sentry),
        Mix { requests: vec![request] },
        Rate::constant(per_s),
        Nanos::from_secs(seconds),
        HttpVersion::Http1,
    );
    Plan { seed, ..plan }
}

fn config(
    course: &Course,
    [listen, admin, controller]: [SocketAddr; 3],
    page: SocketAddr,
    state: &Path,
) -> Result<String, String> {
    let ports: Range<u16> = free_ports(MORE)?;
    Ok(format!(
        r#"[sentry]
listen = "{listen}"
admin = "{admin}"
threads = 1

[controller]
admin = "{controller}"
interval = "250ms"
state = {state:?}
sentry_ports = "{}-{}"
sentry_busy_for = "{}s"

[pool.pages]
servers = ["{page}"]
workers = {WORKERS}

[class.default]
slo = {{ p95 = "{TARGET}" }}
"#,
        ports.start,
        ports.end - 1,
        course.busy_for_s,
    ))
}

fn findings(settings: Settings, course: &Course, capacity_per_s: f64, log: &Log) -> Findings {
    let (seen, most) = (&log.seen, log.most());
    let count = |seen: &Seen| seen.sentries.len();
    // When there were as many as there ever were, and what that made of the busiest, until the load fell.
    let last_start_s = seen.iter().find(|seen| count(seen) == most).map_or(f64::NAN, |seen| seen.at_s);
    let after =
        seen.iter().filter(|seen| (last_start_s + SHOWS_AFTER_S..log.lull_begins_s).contains(&seen.at_s));
    let (sum, n) = after.fold((0.0, 0.0), |(sum, n), seen| (sum + seen.busiest(), n + 1.0));
    let (busiest, answered) = (100.0 * sum / n, 100.0 * log.good / log.ok as f64);
    let (busiest_what, answered_what) = (
        "busiest sentry after the last start, % of what it may use",
        format!("answered within {TARGET}, % of those let in"),
    );
    // The quick form only shows what depends on how busy others keep the machine.
    let [busiest, answered] = match settings.quick {
        true => [
            Row::beside(busiest_what, None, (n > 0.0).then_some(busiest)),
            Row::beside(answered_what, None, Some(answered)),
        ],
        false => {
            [Row::no_more(busiest_what, 100.0 * BUSY, busiest), Row::no_less(answered_what, 95.0, answered)]
        }
    };
    let rows = vec![
        Row::beside(
            "CPU of a request that is forwarded, with its connection, us",
            None,
            Some(1e6 * CORES / capacity_per_s),
        ),
        Row::beside("sentries at the start", Some(1.0), seen.first().map(|seen| count(seen) as f64)),
        Row::no_less("sentries at the peak", course.enough as f64, most as f64),
        busiest,
        Row::no_more("sentries at the end", 1.0, seen.last().map_or(f64::NAN, |seen| count(seen) as f64)),
        Row::no_more("errors and resets", 0.0, log.errors as f64),
        answered,
        Row::beside("generator late in the worst step, p99 ms", None, Some(log.late_ms)),
        Row::beside("refused, %", None, Some(100.0 * log.refused as f64 / log.sent as f64)),
    ];
    let chart = |title, y, lines| Chart::new(title, "s", y, lines);
    let line = |name: &str, points| Line { name: name.to_owned(), points };
    let numbers = seen.iter().map(|seen| (seen.at_s, count(seen) as f64)).collect();
    let mut busy: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for seen in seen {
        for (sentry, share) in &seen.sentries {
            busy.entry(sentry).or_default().push((seen.at_s, 100.0 * share));
        }
    }
    let mut busy: Vec<_> = busy.into_values().collect();
    // In the order in which they came.
    busy.sort_by(|a, b| a[0].0.total_cmp(&b[0].0));
    let busy = busy.into_iter().zip(1..).map(|(points, i)| line(&format!("sentry {i}"), points)).collect();
    let charts = vec![
        chart("Arrivals", "requests/s", vec![line("all", log.arrivals.clone())]),
        chart("Sentries", "", vec![line("sentries", numbers)]),
        chart("CPU of each sentry", "% of what it may use", busy).with_level("busy", 100.0 * BUSY),
    ];
    Findings { rows, figures: vec![Figure { name: "fig6".to_owned(), charts }] }
}
