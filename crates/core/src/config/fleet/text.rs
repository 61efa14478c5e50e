//! Scenarios as files: so that a fleet that was drawn, or seen, can be looked at, changed and run again.

use std::fmt::Write;

use super::{Api, Branch, Scenario, Service};
use crate::Nanos;
use crate::config::workload::Service as ServiceTimes;

/// The file that is read as this scenario.
///
/// # Errors
/// Where it has what only files bring: service times of other kinds than lognormal, exponential and constant.
pub fn to_toml(scenario: &Scenario) -> Result<String, String> {
    let mut text = String::new();
    let Scenario { duration, signals, telemetry, services, apis } = scenario;
    let _ = write!(
        text,
        "duration = \"{}\"\nsignals = \"{}\"\ntelemetry = \"{telemetry}\"\n",
        span(*duration),
        span(*signals)
    );
    for service in services {
        write_service(service, &mut text)?;
    }
    for api in apis {
        write_api(api, services, &mut text);
    }
    Ok(text)
}

/// Exactly, in the largest unit that has no fraction.
fn span(span: Nanos) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.into_iter().find(|(unit, _)| span.0.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", span.0 / unit),
        None => format!("{}ns", span.0),
    }
}

/// A name as a key: with a dot it would be two.
fn key(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}

fn write_service(service: &Service, text: &mut String) -> Result<(), String> {
    let Service { name, work, instances, max_queue, autoscale, failures } = service;
    let times = match &work.times {
        ServiceTimes::Exponential { mean } => {
            format!("{{ dist = \"exponential\", mean = \"{}\" }}", span(*mean))
        }
        ServiceTimes::Constant { mean } => format!("{{ dist = \"constant\", mean = \"{}\" }}", span(*mean)),
        ServiceTimes::Lognormal { mean, sigma } => {
            format!("{{ dist = \"lognormal\", mean = \"{}\", sigma = {sigma} }}", span(*mean))
        }
        _ => return Err(format!("the service times of `{name}` are of a kind that is not written")),
    };
    let workers = work.workers;
    let _ = write!(
        text,
        "\n[service.{}]\nworkers = {workers}\nservice = {times}\ninstances = {instances}\n",
        key(name)
    );
    if let Some(max_queue) = max_queue {
        let _ = writeln!(text, "max_queue = {max_queue}");
    }
    if let Some(a) = autoscale {
        let spans = format!(
            "start = \"{}\", every = \"{}\", calm = \"{}\"",
            span(a.start),
            span(a.every),
            span(a.calm)
        );
        let (target, min, max, sees) = (a.target, a.min, a.max, a.sees);
        let _ = writeln!(
            text,
            "autoscale = {{ target = {target}, min = {min}, max = {max}, {spans}, sees = \"{sees}\" }}"
        );
    }
    let failures: Vec<String> = failures
        .iter()
        .map(|failure| {
            let back = failure
                .back_after
                .map_or(String::new(), |after| format!(", back_after = \"{}\"", span(after)));
            format!("{{ at = \"{}\", instances = {}{back} }}", span(failure.at), failure.instances)
        })
        .collect();
    if !failures.is_empty() {
        let _ = writeln!(text, "failures = [{}]", failures.join(", "));
    }
    Ok(())
}

fn write_api(api: &Api, services: &[Service], text: &mut String) {
    let _ = writeln!(text, "\n[api.{}]", key(&api.name));
    match api.branches.as_slice() {
        [only] => drop(writeln!(text, "path = {}", path(only, services))),
        branches => {
            let _ = writeln!(text, "branches = [");
            for branch in branches {
                let _ =
                    writeln!(text, "  {{ share = {}, path = {} }},", branch.share, path(branch, services));
            }
            let _ = writeln!(text, "]");
        }
    }
    let _ = match api.offered.steps() {
        [(_, per_s)] => writeln!(text, "offered = \"{per_s}/s\""),
        steps => {
            let steps: Vec<String> =
                steps.iter().map(|(start, per_s)| format!("[\"{}\", \"{per_s}/s\"]", span(*start))).collect();
            writeln!(text, "offered = [{}]", steps.join(", "))
        }
    };
    if let Some(slo) = &api.slo {
        let targets: Vec<String> = slo
            .targets()
            .iter()
            .map(|(statistic, limit)| format!("{statistic} = \"{}\"", span(*limit)))
            .collect();
        let _ = writeln!(text, "slo = {{ {} }}", targets.join(", "));
    }
    let _ = writeln!(text, "priority = {}", api.priority);
    if let Some(per_s) = api.min_rate {
        let _ = writeln!(text, "min_rate = \"{per_s}/s\"");
    }
    let mut costs: Vec<(usize, f64)> = api
        .branches
        .iter()
        .flat_map(|b| b.stages.iter().flatten().copied())
        .filter(|&(_, cost)| cost != 1.0)
        .collect();
    costs.sort_by_key(|&(service, _)| service);
    costs.dedup_by_key(|&mut (service, _)| service);
    if !costs.is_empty() {
        let costs: Vec<String> = costs
            .iter()
            .map(|&(service, cost)| format!("{} = {cost}", key(&services[service].name)))
            .collect();
        let _ = writeln!(text, "cost = {{ {} }}", costs.join(", "));
    }
    if api.retries.max > 0 {
        let (max, backoff) = (api.retries.max, span(api.retries.backoff));
        let timeout =
            api.retries.timeout.map_or(String::new(), |after| format!(", timeout = \"{}\"", span(after)));
        let _ = writeln!(text, "retries = {{ max = {max}, backoff = \"{backoff}\"{timeout} }}");
    }
}

fn path(branch: &Branch, services: &[Service]) -> String {
    let name = |&(service, _): &(usize, f64)| format!("\"{}\"", services[service].name);
    let stage = |stage: &Vec<(usize, f64)>| match stage.as_slice() {
        [one] => name(one),
        several => format!("[{}]", several.iter().map(name).collect::<Vec<_>>().join(", ")),
    };
    format!("[{}]", branch.stages.iter().map(stage).collect::<Vec<_>>().join(", "))
}
