//! Cataclysm, Fig. 6: sentries that come as the load rises, and go when it falls. As in the paper it rises in steps, small pages are asked
//! for, and a request is a connection. Each sentry may use a fifth of a core, so that a small machine has room for several, and
//! the steps follow from what a request costs it here. What takes 30 s and a minute in the paper takes less here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http::{HeaderValue, Method, Uri, header};
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_loadgen::{Figures, HttpVersion, Plan};
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};
use plimsoll_testbed::cpu_cap::CpuCap;
use serde_json::Value;
use tokio::time::interval;

use crate::processes::{ConfigFile, Page, Process, cpu_s, free_addresses, free_ports, get, plimsoll, ready};

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
/// From one look at the sentries to the next.
const LOOK: Duration = Duration::from_millis(250);

/// What comes when.
struct Course {
    /// As shares of what one sentry can do.
    steps: &'static [f64],
    /// Of each step.
    step_s: u64,
    /// How long a sentry must be busy.
    busy_for_s: u64,
    /// At the end so much comes, for so long.
    lull: (f64, u64),
    /// Sentries that the highest step calls for.
    needed: usize,
}

const FULL: Course = Course {
    steps: &[0.5, 0.65, 0.8, 0.95, 1.1, 1.25, 1.4, 1.55, 1.7, 1.85],
    step_s: 20,
    busy_for_s: 10,
    lull: (0.2, 75),
    needed: 3,
};
const QUICK: Course =
    Course { steps: &[0.6, 0.8, 0.95, 1.05], step_s: 4, busy_for_s: 1, lull: (0.2, 8), needed: 2 };

impl Course {
    fn rises_for_s(&self) -> u64 {
        self.steps.len() as u64 * self.step_s
    }

    /// As a schedule, where one sentry can do so many requests a second.
    fn rate(&self, capacity_per_s: f64) -> String {
        let steps = self.steps.iter().zip(0..).map(|(step, i)| (i * self.step_s, *step));
        let steps = steps.chain([(self.rises_for_s(), self.lull.0)]);
        let steps = steps.map(|(at_s, step)| format!("{at_s}s:{:.0}", step * capacity_per_s));
        steps.collect::<Vec<_>>().join(",")
    }
}

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
    let (now_s, arrivals, seen) = (Cell::new(0.0), RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let rate = course.rate(capacity_per_s);
    let plan = plan(listen, &rate, course.rises_for_s() + course.lull.1, settings.seed)?;
    let load = plimsoll_loadgen::run(&plan, |progress| {
        let recent = progress.recent().total;
        now_s.set(progress.elapsed.as_secs_f64());
        if progress.interval > Nanos::ZERO {
            arrivals.borrow_mut().push((now_s.get(), recent.sent as f64 / progress.interval.as_secs_f64()));
        }
        ControlFlow::Continue(())
    });
    let watch = async {
        let mut caps = BTreeMap::new();
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            hold_all(&mut caps, state.path())?;
            let sentries = look(controller).await.unwrap_or_default();
            if !sentries.is_empty() {
                seen.borrow_mut().push(Seen { at_s: now_s.get(), sentries });
            }
        }
    };
    let report = tokio::select! {
        report = load => report?,
        failed = watch => return failed,
    };
    Ok(findings(course, capacity_per_s, &report.table.total, &arrivals.take(), &seen.take()))
}

/// Requests a second that one sentry can answer, from what one costs when its CPU is half used.
async fn capacity(sentry: SocketAddr, pid: u32, settings: Settings) -> Result<f64, String> {
    let mut capacity_per_s = 600.0;
    for _ in 0..2 {
        let before = cpu_s(pid)?;
        let plan = plan(sentry, &(capacity_per_s / 2.0).to_string(), 2, settings.seed)?;
        let report = plimsoll_loadgen::run(&plan, |_| ControlFlow::Continue(())).await?;
        capacity_per_s = CORES * report.table.total.sent as f64 / (cpu_s(pid)? - before).max(1e-3);
    }
    Ok(capacity_per_s)
}

fn plan(sentry: SocketAddr, rate: &str, seconds: u64, seed: u64) -> Result<Plan, String> {
    let target = Uri::try_from(format!("http://{sentry}/")).map_err(|e| e.to_string())?;
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
        target,
        Mix { requests: vec![request] },
        rate.parse()?,
        Nanos::from_secs(seconds),
        HttpVersion::Http1,
    );
    Ok(Plan { seed, ..plan })
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

/// Gives each sentry that the controller has started as much as the first has.
fn hold_all(caps: &mut BTreeMap<u32, CpuCap>, state: &Path) -> Result<(), String> {
    let notes = std::fs::read_dir(state.join("sentries")).into_iter().flatten().flatten();
    let pid = |note: std::fs::DirEntry| {
        let note: Value = serde_json::from_slice(&std::fs::read(note.path()).ok()?).ok()?;
        u32::try_from(note["pid"].as_u64()?).ok()
    };
    for pid in notes.filter_map(pid) {
        if let std::collections::btree_map::Entry::Vacant(new) = caps.entry(pid) {
            new.insert(CpuCap::new(CORES)?);
        }
        caps[&pid].hold(pid).map_err(|e| format!("a sentry cannot be capped: {e}"))?;
    }
    Ok(())
}

/// The sentries as the controller sees them, by admin address; nothing while it does not say.
async fn look(controller: SocketAddr) -> Option<BTreeMap<String, f64>> {
    let plan: Value = serde_json::from_str(&get(controller, "/plan").await.ok()?).ok()?;
    let sentry = |sentry: &Value| {
        Some((sentry["address"].as_str()?.to_owned(), sentry["busy"].as_f64().unwrap_or(0.0)))
    };
    plan["sentries"].as_array()?.iter().map(sentry).collect()
}

fn findings(
    course: &Course,
    capacity_per_s: f64,
    total: &Figures,
    arrivals: &[(f64, f64)],
    seen: &[Seen],
) -> Findings {
    let count = |seen: &Seen| seen.sentries.len();
    let most = seen.iter().map(count).max().unwrap_or(0);
    let peak_ends_s = course.rises_for_s() as f64;
    // When there were as many as there ever were, and what that made of the busiest, until the load fell.
    let last_start_s = seen.iter().find(|seen| count(seen) == most).map_or(f64::NAN, |seen| seen.at_s);
    let after = seen.iter().filter(|seen| (last_start_s + SHOWS_AFTER_S..peak_ends_s).contains(&seen.at_s));
    let (sum, n) = after.fold((0.0, 0.0), |(sum, n), seen| (sum + seen.busiest(), n + 1.0));
    let let_in = total.ok as f64;
    let span_s = peak_ends_s + course.lull.1 as f64;
    let rows = vec![
        Row::beside(
            "CPU of a request that is forwarded, with its connection, us",
            None,
            Some(1e6 * CORES / capacity_per_s),
        ),
        Row::beside("sentries at the start", Some(1.0), seen.first().map(|seen| count(seen) as f64)),
        Row::no_less("sentries at the peak", course.needed as f64, most as f64),
        Row::no_more(
            "busiest sentry after the last start, % of what it may use",
            100.0 * BUSY,
            100.0 * sum / n,
        ),
        Row::no_more("sentries at the end", 1.0, seen.last().map_or(f64::NAN, |seen| count(seen) as f64)),
        Row::no_more("errors and resets", 0.0, total.errors as f64),
        Row::no_less(
            format!("answered within {TARGET}, % of those let in"),
            95.0,
            100.0 * total.goodput_per_s * span_s / let_in,
        ),
        Row::beside(
            "refused, %",
            None,
            Some(100.0 * (total.rejected + total.refused_other) as f64 / total.sent as f64),
        ),
    ];
    let chart = |title: &str, y: &str, lines, levels| Chart {
        title: title.to_owned(),
        x: "s".to_owned(),
        y: y.to_owned(),
        lines,
        levels,
    };
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
        chart("Arrivals", "requests/s", vec![line("all", arrivals.to_vec())], Vec::new()),
        chart("Sentries", "", vec![line("sentries", numbers)], Vec::new()),
        chart("CPU of each sentry", "% of what it may use", busy, vec![("busy".to_owned(), 100.0 * BUSY)]),
    ];
    Findings { rows, figures: vec![Figure { name: "fig6".to_owned(), charts }] }
}
