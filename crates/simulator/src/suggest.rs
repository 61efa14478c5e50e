//! From a log to classes and objectives to begin with.
//!
//! A class's objectives are what its requests take, its median and 90th percentile, and for all classes the same time
//! for waiting: they wait in one queue, so a class that may wait less than the others is only refused more.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::Nanos;
use plimsoll_core::config::PathPattern;

use crate::access_log::{AccessLog, OTHER, Record, class_name};
use crate::stats::Histogram;

/// A class with a smaller share of the requests joins `default`.
const MIN_SHARE: f64 = 0.01;
/// So does a class with fewer requests: its percentiles would be noise.
const MIN_REQUESTS: usize = 20;
/// Most processes that a workload may have.
const MOST_PROCESSES: usize = 100_000;
/// Most of the names that a class was made of that are told.
const MAX_TOLD: usize = 4;

/// A workload that resembles a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Suggestion {
    /// Requests in the log.
    pub requests: usize,
    /// From its first request to its last.
    pub span: Nanos,
    /// The most requests that were served at once.
    pub processes: u32,
    /// How long every class may wait.
    pub wait: Nanos,
    /// By falling share, `default` last.
    pub classes: Vec<Class>,
}

/// A class of a [`Suggestion`].
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As a workload or config may call it.
    pub name: String,
    /// What the log calls it.
    pub in_log: Vec<String>,
    /// Requests; only `default` may have none.
    pub requests: usize,
    /// Service times: mean, standard deviation of the logarithm, median and 90th percentile.
    pub mean: Nanos,
    /// As above.
    pub sigma: f64,
    /// As above.
    pub p50: Nanos,
    /// As above.
    pub p90: Nanos,
}

/// Proposes classes and objectives. `wait` is how long each may wait, by default half the 90th percentile of all service
/// times.
pub fn suggest(log: &AccessLog, wait: Option<Nanos>) -> Suggestion {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut by_name: Vec<Vec<f64>> = vec![Vec::new(); log.names.len()];
    for record in &log.records {
        by_name[usize::from(record.name)].push(record.service.0 as f64);
    }
    for (name, times) in log.names.iter().zip(by_name) {
        let group = groups.entry(class_name(name)).or_default();
        group.in_log.push(name.clone());
        group.times_ns.extend(times);
    }
    let requests = log.records.len();
    let mut default = groups.remove(OTHER).unwrap_or_default();
    default.in_log.clear();
    let enough = |group: &Group| {
        let n = group.times_ns.len();
        n >= MIN_REQUESTS && n as f64 >= MIN_SHARE * requests as f64
    };
    let (kept, rare): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, group)| enough(group));
    for (_, group) in rare {
        default.in_log.extend(group.in_log);
        default.times_ns.extend(group.times_ns);
    }
    let mut classes: Vec<Class> = kept.into_iter().map(|(name, group)| group.class(name)).collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.requests));
    classes.push(default.class(OTHER.to_owned()));
    let mut all = Histogram::default();
    log.records.iter().for_each(|record| all.record(record.service));
    let wait = wait.unwrap_or_else(|| rounded_up(Nanos(all.quantile(0.9).unwrap_or_default().0 / 2)));
    let span = log.records.last().map_or(Nanos::ZERO, |record| record.at);
    Suggestion { requests, span, processes: most_at_once(&log.records), wait, classes }
}

#[derive(Default)]
struct Group {
    in_log: Vec<String>,
    times_ns: Vec<f64>,
}

impl Group {
    fn class(mut self, name: String) -> Class {
        let n = self.times_ns.len() as f64;
        let mean = self.times_ns.iter().sum::<f64>() / n.max(1.0);
        let log_mean = self.times_ns.iter().map(|t| t.ln()).sum::<f64>() / n.max(1.0);
        let variance = self.times_ns.iter().map(|t| (t.ln() - log_mean).powi(2)).sum::<f64>() / n.max(1.0);
        self.times_ns.sort_unstable_by(f64::total_cmp);
        let quantile = |q: f64| {
            let last = self.times_ns.len().checked_sub(1)?;
            Some(Nanos(self.times_ns[(q * last as f64).round() as usize] as u64))
        };
        Class {
            name,
            in_log: self.in_log,
            requests: self.times_ns.len(),
            mean: Nanos(mean as u64),
            sigma: variance.sqrt(),
            p50: quantile(0.5).unwrap_or_default(),
            p90: quantile(0.9).unwrap_or_default(),
        }
    }
}

/// The most requests that were under way at any moment.
fn most_at_once(records: &[Record]) -> u32 {
    let mut ends: Vec<Nanos> = records.iter().map(|record| record.at + record.service).collect();
    ends.sort_unstable();
    let (mut ended, mut most) = (0, 1);
    for (begun, record) in records.iter().enumerate() {
        while ends[ended] <= record.at {
            ended += 1;
        }
        most = most.max(begun + 1 - ended);
    }
    most.min(MOST_PROCESSES) as u32
}

/// To two digits, as people write objectives.
fn rounded_up(time: Nanos) -> Nanos {
    let unit = 10u64.pow(time.0.checked_ilog10().unwrap_or(0).saturating_sub(1));
    Nanos(time.0.div_ceil(unit) * unit)
}

impl Suggestion {
    /// The objectives of a class, for the median and the 90th percentile. `default` without a request gets the loosest of all.
    fn objectives(&self, class: &Class) -> (Nanos, Nanos) {
        let of = |class: &Class| (rounded_up(class.p50 + self.wait), rounded_up(class.p90 + self.wait));
        match class.requests {
            0 => self.classes.iter().map(of).max_by_key(|&(_, p90)| p90).unwrap_or_default(),
            _ => of(class),
        }
    }
}

/// As a workload for `plimsoll simulate`.
impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Suggestion { requests, span, processes, wait, classes } = self;
        writeln!(
            f,
            "# Proposed by `plimsoll suggest` from {requests} requests in {span}: a place to begin."
        )?;
        writeln!(
            f,
            "# An objective is what the class takes and {wait} for waiting, the same for all, because they"
        )?;
        writeln!(
            f,
            "# wait in one queue. The `slo` lines fit a config as they stand, the `match` lines without their #.\n"
        )?;
        writeln!(f, "[engine]\nprocesses = {processes}  # the most requests that were served at once")?;
        // What rounding leaves over goes to the largest, so that the shares sum to 1.
        let parts = |class: &Class| (class.requests as f64 / *requests as f64 * 1e6).round() as i64;
        let left = 1_000_000 - classes.iter().map(parts).sum::<i64>();
        let largest = classes.iter().map(|class| class.requests).max();
        let mut left = Some(left);
        for class in classes {
            let Class { name, in_log, requests: n, mean, sigma, p50, p90 } = class;
            let extra = if Some(*n) == largest { left.take().unwrap_or(0) } else { 0 };
            let share = (parts(class) + extra) as f64 / 1e6;
            let (slo_p50, slo_p90) = self.objectives(class);
            // A dot would make a table within a table.
            let quote = if name.contains('.') { "\"" } else { "" };
            writeln!(f, "\n[class.{quote}{name}{quote}]")?;
            if name != OTHER {
                writeln!(f, "# match = [{}]", matches(in_log))?;
            }
            if name == OTHER && !in_log.is_empty()
                || in_log.iter().any(|n| n != name && method_and_path(n).is_none())
            {
                let told: Vec<&str> = in_log.iter().take(MAX_TOLD).map(String::as_str).collect();
                let more = if in_log.len() > told.len() { ", ..." } else { "" };
                writeln!(f, "# {}{more}", told.join(", "))?;
            }
            writeln!(f, "share = {share}")?;
            if *n > 0 {
                writeln!(f, "# {n} requests, p50 {p50}, p90 {p90}")?;
                let dist = "dist = \"lognormal\"";
                writeln!(f, "service = {{ {dist}, mean = \"{mean}\", sigma = {:.3} }}", sigma.min(10.0))?;
            }
            writeln!(f, "slo = {{ p50 = \"{slo_p50}\", p90 = \"{slo_p90}\" }}")?;
        }
        Ok(())
    }
}

/// How a config recognises what a log calls so. What is no path has a place to write one.
fn matches(in_log: &[String]) -> String {
    let one = |name: &String| match method_and_path(name) {
        Some((Some(method), path)) => format!("{{ method = \"{method}\", path = {} }}", quoted(path)),
        Some((None, path)) => format!("{{ path = {} }}", quoted(path)),
        None => "{ path = \"/...\" }".to_owned(),
    };
    let mut all: Vec<String> = in_log.iter().map(one).collect();
    all.dedup();
    all.join(", ")
}

/// Of `/cart` and `GET /cart`; nothing where that is no pattern.
fn method_and_path(name: &str) -> Option<(Option<&str>, &str)> {
    let (method, path) = match name.split_once(' ') {
        Some((method, path)) => (Some(method), path),
        None => (None, name),
    };
    let known = method.is_none_or(|method| method.bytes().all(|b| b.is_ascii_uppercase()));
    (known && path.parse::<PathPattern>().is_ok()).then_some((method, path))
}

/// As a string of TOML. Names of a log hold no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log;
    use plimsoll_core::config::workload::{Service, Workload};
    use plimsoll_core::config::{self, Config};

    fn log(lines: impl Iterator<Item = String>) -> AccessLog {
        let text = format!("ts_ms,path,service_ms\n{}", lines.collect::<Vec<_>>().join("\n"));
        access_log::read(text.as_bytes(), "a.csv").unwrap()
    }

    fn workload(suggestion: &Suggestion) -> Workload {
        config::parse(&suggestion.to_string(), "suggested.toml").unwrap().0
    }

    #[test]
    fn what_is_proposed_is_a_workload_like_the_log() {
        // Of 1,000 requests every tenth is slow; one path is rare.
        let lines = (0..1_000).map(|i| match i % 10 {
            _ if i == 7 || i == 17 => format!("{i},/rare,500"),
            0 => format!("{i},/report.pdf/{i},{}", 40 + i % 3),
            _ => format!("{i},/item/{i},{}", 4 + i % 3),
        });
        let suggestion = suggest(&log(lines), Some(Nanos::from_millis(8)));
        let names: Vec<&str> = suggestion.classes.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["item-id", "report.pdf-id", "default"]);
        let workload = workload(&suggestion);
        assert_eq!(workload.classes[1].share, 0.1);
        assert_eq!(workload.classes[0].slo.targets()[0].1, Nanos::from_millis(13), "5 + 8 ms");
        assert_eq!(workload.classes[1].slo.targets()[0].1, Nanos::from_millis(49), "41 + 8 ms");
        let Service::Lognormal { mean, sigma } = workload.classes[1].service else { panic!("{workload:?}") };
        assert!(mean.0.abs_diff(41_000_000) < 100_000 && sigma < 0.03, "{mean} {sigma}");
        assert_eq!(workload.classes[2].name, "default");
        assert!(suggestion.to_string().contains("# /rare\n"), "{suggestion}");
    }

    #[test]
    fn its_classes_go_into_a_config() {
        let names = ["GET /item/7", "/a b", "POST /cart", "/say-\\\"hi\"", "a-b", "/a-b", "report"];
        let lines = (0..700).map(|i| {
            let cell = names[i % names.len()].replace('"', "\"\"");
            format!("{i},\"{cell}\",3")
        });
        let proposed = suggest(&log(lines), None).to_string();
        let kept = |line: &&str| ["[class", "# match", "slo"].iter().any(|start| line.starts_with(start));
        let classes: Vec<&str> =
            proposed.lines().filter(kept).map(|line| line.trim_start_matches("# ")).collect();
        let text = format!("[pool.p]\nservers = [\"a:1\"]\n{}", classes.join("\n"));
        let (config, _) =
            config::parse::<Config>(&text, "config.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
        let matches = |name: &str| {
            let class =
                config.classes.iter().find(|class| class.name == name).unwrap_or_else(|| panic!("{text}"));
            let of = class.matches.iter().map(|m| (m.method.as_ref().map(|m| m.as_str()), m.path.is_some()));
            of.collect::<Vec<_>>()
        };
        assert_eq!(matches("get-item-id"), [(Some("GET"), true)]);
        assert_eq!(matches("post-cart"), [(Some("POST"), true)]);
        assert_eq!(matches("a-b"), [(None, true), (None, true)], "{text}");
        assert!(proposed.contains("# match = [{ path = \"/...\" }]\nshare"), "{proposed}");
        assert!(!proposed.contains("# match = []") && matches("default").is_empty(), "{proposed}");
    }

    #[test]
    fn at_most_so_many_at_once() {
        // Each takes 10 ms: three overlap at 4 ms, and one that ends makes room in the same moment.
        let log = log(["0,a,10", "2,a,10", "4,a,10", "10,a,10", "40,a,10"].map(String::from).into_iter());
        assert_eq!(most_at_once(&log.records), 3);
    }

    #[test]
    fn a_log_of_rarities_and_one_without_any_both_work() {
        let rare = suggest(&log((0..5).map(|i| format!("{i},/p{i}x,3"))), None);
        assert_eq!(rare.classes.len(), 1);
        assert_eq!(workload(&rare).classes[0].name, "default");
        let plain = suggest(&log((0..50).map(|i| format!("{i},a,3"))), None);
        let workload = workload(&plain);
        assert_eq!((workload.classes.len(), workload.classes[0].name.as_str()), (1, "a"));
        assert_eq!(workload.default_slo, workload.classes[0].slo);
    }

    #[test]
    fn objectives_are_rounded_up_to_two_digits() {
        for (ns, rounded) in [(0, 0), (7, 7), (99, 99), (101, 110), (18_000_001, 19_000_000)] {
            assert_eq!(rounded_up(Nanos(ns)), Nanos(rounded));
        }
    }
}
