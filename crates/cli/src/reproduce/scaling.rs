//! Cataclysm, Fig. 4: how much of a CPU the sentry needs to police and refuse requests, by their rate, with either policer. The paper makes
//! its sentry drop everything after the test; here the servers have so little room that nearly everything is refused.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::process::Stdio;

use http::Method;
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_loadgen::{HttpVersion, Plan};
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::findings::{Findings, Row};
use plimsoll_simulator::reproduce::{Settings, values};

use crate::processes::{ConfigFile, Page, Process, cpu_s, free_addresses, plimsoll, ready, uri};

/// Requests a second.
const RATES: [f64; 4] = [2_000.0, 5_000.0, 10_000.0, 20_000.0];
/// So many of them make the quick form.
const QUICK: usize = 2;
/// Workers of the server; a page takes each of them 60 ms.
const WORKERS: u32 = 8;
/// The tiers of the paper, and their shares of what comes.
const TIERS: [(&str, f64); 3] = [("gold", 0.2), ("silver", 0.3), ("bronze", 0.5)];
/// Runs at each rate; the median counts. The quick form has one.
const RUNS: usize = 3;
const POLICERS: [&str; 2] = ["batch", "threshold"];
/// Less than that, in per cent, is not "nearly everything".
const REFUSED_PCT: f64 = 90.0;

/// One run at one rate.
struct Run {
    rate_per_s: f64,
    utilisation_pct: f64,
    cost_us: f64,
    refused_pct: f64,
}

/// CPU time by arrival rate.
pub fn fig4(settings: Settings) -> Result<Findings, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let paper = values::cataclysm();
    let theirs = [paper.fig4_batch_saturates_requests_per_s, paper.fig4_threshold_saturates_requests_per_s];
    for (policer, theirs) in POLICERS.into_iter().zip(theirs) {
        let runs = runtime.block_on(measure(policer, settings))?;
        // At rates that leave the sentry time it wakes up for fewer requests at once than when it is saturated, which is measured in
        // benches/gateways/policing, where our own limits are judged.
        let at_most = runs.last().map_or(f64::NAN, |run| run.cost_us);
        rows.push(Row::beside(
            format!("{policer}: CPU of a refused request at the highest rate, us"),
            None,
            Some(at_most),
        ));
        let refused_pct = runs.iter().map(|run| run.refused_pct).fold(f64::INFINITY, f64::min);
        rows.push(Row::no_less(
            format!("{policer}: refused, at the rate of the fewest, %"),
            REFUSED_PCT,
            refused_pct,
        ));
        let what = format!("{policer}: requests/s that keep a core busy");
        // Seconds on a machine that others use say little about microseconds, so the quick form only shows it.
        rows.push(match settings.quick {
            true => Row::beside(what, Some(theirs), Some(1e6 / at_most)),
            false => Row::at_least(what, theirs, 1e6 / at_most),
        });
        let points = runs.iter().map(|run| (run.rate_per_s, run.utilisation_pct)).collect();
        lines.push(Line { name: policer.to_owned(), points });
    }
    let chart = Chart::new("CPU of the sentry", "requests/s", "% of a core", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig4".to_owned(), charts: vec![chart] }] })
}

/// The median run at each rate.
async fn measure(policer: &str, settings: Settings) -> Result<Vec<Run>, String> {
    let page = Page::start(WORKERS)?;
    let [listen, admin] = free_addresses()?;
    let config = ConfigFile::write(&format!("fig4-{policer}"), &config(policer, listen, admin, page.addr))?;
    let mut command = plimsoll()?;
    command.args(["sentry", "--config"]).arg(config.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let sentry = Process::start(command)?;
    ready(admin).await?;
    let seconds = if settings.quick { 1 } else { 5 };
    // Until it knows what the pages take.
    load(listen, RATES[0], 2 * seconds, settings.seed).await?;
    let mut found = Vec::new();
    let (rates, times) = if settings.quick { (&RATES[..QUICK], 1) } else { (&RATES[..], RUNS) };
    for &rate in rates {
        let mut runs = Vec::new();
        for run in 0..times {
            let before = cpu_s(sentry.id())?;
            let (sent, refused) = load(listen, rate, seconds, settings.seed + run as u64).await?;
            let used_s = cpu_s(sentry.id())? - before;
            runs.push(Run {
                rate_per_s: rate,
                utilisation_pct: 100.0 * used_s / seconds as f64,
                cost_us: 1e6 * used_s / sent as f64,
                refused_pct: 100.0 * refused as f64 / sent as f64,
            });
        }
        runs.sort_by(|a, b| a.cost_us.total_cmp(&b.cost_us));
        found.push(runs.swap_remove(times / 2));
    }
    Ok(found)
}

/// Sends so many requests a second; how many were sent, and how many refused.
async fn load(sentry: SocketAddr, rate: f64, seconds: u64, seed: u64) -> Result<(u64, u64), String> {
    let request = |(tier, share): (&str, f64)| Request {
        name: tier.to_owned(),
        method: Method::GET,
        path: format!("/heavy/{tier}").parse().expect("a path"),
        share,
        body: String::new(),
        headers: Vec::new(),
        deadline: None,
    };
    let mix = Mix { requests: TIERS.map(request).into() };
    let rate = rate.to_string().parse().map_err(|e: String| e)?;
    let plan = Plan::new(uri(sentry), mix, rate, Nanos::from_secs(seconds), HttpVersion::Http1);
    let plan = Plan { seed, connections: 1_024, ..plan };
    let report = plimsoll_loadgen::run(&plan, |_| ControlFlow::Continue(())).await?;
    if report.table.total.errors > 0 {
        return Err(format!("errors: {:?}", report.table.total.error_kinds));
    }
    Ok((report.table.total.sent, report.table.total.rejected))
}

fn config(policer: &str, listen: SocketAddr, admin: SocketAddr, page: SocketAddr) -> String {
    let mut text = format!(
        r#"[sentry]
listen = "{listen}"
admin = "{admin}"
threads = 1

[pool.pages]
servers = ["{page}"]
workers = {WORKERS}
policing = {{ policy = "{policer}" }}
admission = {{ policy = "none" }}
"#
    );
    for (priority, (tier, _)) in TIERS.iter().enumerate() {
        text += &format!(
            "\n[class.{tier}]\nmatch = [{{ path = \"/heavy/{tier}\" }}]\nslo = {{ mean = \"200ms\" }}\npriority = {}\n",
            priority + 1
        );
    }
    text + "\n[class.default]\n"
}
