//! Says in words what the admin address says in numbers, and above all why the requests of a
//! class are refused now, who takes the room, and what would help.

use std::fmt::Write as _;

use plimsoll_core::{Nanos, Statistic};

use crate::admin::model::{ClassView, DecisionView, Overview, PercentileView, PoolView, RefusalView};

/// The report on one class, or on all of them.
pub fn report(
    overview: &Overview,
    decisions: &[DecisionView],
    class: Option<&str>,
) -> Result<String, String> {
    let mut text = String::new();
    for pool in &overview.pools {
        let classes: Vec<_> = overview.classes.iter().filter(|c| c.pool == pool.name).collect();
        let shown: Vec<_> = classes.iter().filter(|c| class.is_none_or(|name| name == c.name)).collect();
        if shown.is_empty() {
            continue;
        }
        lines(&mut text, 0, &[describe_pool(pool)]);
        for view in shown {
            let last = decisions.iter().find(|d| d.class == view.name && d.refusal.is_some());
            lines(&mut text, 2, &describe_class(pool, view, &classes, last, overview.window_s));
        }
    }
    if text.is_empty() {
        let names: Vec<_> = overview.classes.iter().map(|c| c.name.as_str()).collect();
        return Err(format!("there is no class `{}`; there is {}", class.unwrap_or(""), names.join(", ")));
    }
    Ok(text)
}

/// The first line as it is, the rest indented below it.
fn lines(text: &mut String, indent: usize, lines: &[String]) {
    for (i, line) in lines.iter().enumerate() {
        let margin = indent + if i == 0 { 0 } else { 2 };
        let _ = writeln!(text, "{:margin$}{line}", "");
    }
}

fn describe_pool(pool: &PoolView) -> String {
    let up = pool.servers.iter().filter(|s| s.healthy).count();
    let servers = pool.servers.len();
    let withheld = match pool.slots_withheld {
        0 => String::new(),
        slots => format!(" ({slots} more are with a worker that is draining)"),
    };
    format!(
        "pool {}: {} of {} slots in use{withheld}, {} of at most {} requests waiting, expected wait {}; {up} of {servers} servers up; {} ({})",
        pool.name,
        pool.slots_taken,
        pool.slots,
        pool.queued,
        pool.max_queue,
        time(pool.expected_wait_ms),
        pool.policy,
        pool.mode,
    )
}

fn describe_class(
    pool: &PoolView,
    class: &ClassView,
    neighbours: &[&ClassView],
    last: Option<&DecisionView>,
    window_s: f64,
) -> Vec<String> {
    let rate = &class.rate;
    let mut lines = vec![format!(
        "class {}: over the last {window_s:.0} s {} offered, {} admitted, {} refused",
        class.name,
        per_second(rate.offered),
        per_second(rate.admitted),
        per_second(rate.refused)
    )];
    lines.extend(class.percentiles.iter().map(describe_percentile));
    if class.borrowed {
        lines.push("it has not been measured yet and is judged by the times of all classes".into());
    }
    let shadow = rate.would_refuse > 0.0;
    if shadow {
        lines.push(format!(
            "in shadow mode: {} would have been refused, none were",
            per_second(rate.would_refuse)
        ));
    }
    if rate.refused == 0.0 && !shadow {
        lines.push("nothing of it is refused now".into());
        return lines;
    }
    let reason = last.and_then(|decision| decision.refusal.as_ref());
    if let (Some(reason), Some(decision)) = (reason, last) {
        lines.push(format!("last refusal kept ({}): {}", decision.time, why(reason)));
    }
    lines.extend(who_fills(pool, neighbours));
    lines.extend(what_helps(pool, class, reason).map(|advice| format!("what would help: {advice}")));
    lines
}

fn describe_percentile(p: &PercentileView) -> String {
    let measured =
        p.measured_ms.map_or("not measured in that time".into(), |ms| format!("measured {}", time(ms)));
    let Some(objective) = p.objective_ms else {
        return format!("{}: {measured}, no objective", p.percentile);
    };
    let expected = match p.estimate_ms {
        Some(ms) if ms > objective => format!(", a request that came now would take {}: too long", time(ms)),
        Some(ms) => format!(", a request that came now would take {}", time(ms)),
        None => String::new(),
    };
    format!("{}: objective {}, {measured}{expected}", p.percentile, time(objective))
}

/// The refusal in words.
fn why(refusal: &RefusalView) -> String {
    let value = |v: f64| match refusal.unit.as_str() {
        "ms" => time(v),
        "share" => format!("{:.1} %", v * 100.0),
        "per_s" => per_second(v),
        _ => format!("{v:.0}"),
    };
    let (estimate, objective) = (value(refusal.estimate), value(refusal.objective));
    match refusal.limit.as_str() {
        "queue-length" => format!("{estimate} requests would wait, at most {objective} may"),
        "cold-start" => {
            format!(
                "nothing is known yet about how long requests take, and {estimate} would wait, at most {objective} may"
            )
        }
        "queue-wait" => format!("it would wait for {estimate}, at most {objective} is allowed"),
        "fraction" => format!("{estimate} of the arrivals would have to be let in, {objective} can be"),
        "concurrency" => format!("{estimate} requests would be in the system, {objective} may be"),
        "deadline" => format!("it would take {estimate} and its own deadline leaves {objective}"),
        "client-share" => format!("its client has had {estimate}, {objective} is its share of the class"),
        "rate" => format!("{estimate} of its class come, {objective} may enter the fleet"),
        "connections" => format!("{estimate} connections would be open, {objective} may be"),
        percentile => format!("its {percentile} would be {estimate}, its objective is {objective}"),
    }
}

/// The classes whose requests fill the queue and the servers, if any stands out.
fn who_fills(pool: &PoolView, classes: &[&ClassView]) -> Option<String> {
    // The work that a class brings: how much it is let in times how long it takes.
    let work = |c: &ClassView| c.rate.admitted * c.mean_ms / 1_000.0;
    let total: f64 = classes.iter().map(|c| work(c)).sum();
    if total <= 0.0 {
        return None;
    }
    let mut by_work = classes.to_vec();
    by_work.sort_by(|a, b| work(b).total_cmp(&work(a)));
    let top: Vec<_> = by_work
        .iter()
        .take_while(|c| work(c) > 0.0)
        .take(3)
        .map(|c| {
            let (share, each) = (100.0 * work(c) / total, time(c.mean_ms));
            format!("{} {share:.0} % ({} of {each})", c.name, per_second(c.rate.admitted))
        })
        .collect();
    Some(format!("what was let in is work for {total:.1} of {} slots: {}", pool.slots, top.join(", ")))
}

/// What an operator could change, for the kind of refusal that it is.
fn what_helps(pool: &PoolView, class: &ClassView, refusal: Option<&RefusalView>) -> Option<String> {
    let refusal = refusal?;
    let down = pool.servers.iter().filter(|s| !s.healthy).count();
    if down > 0 {
        return Some(format!("bring {down} of {} servers of the pool back", pool.servers.len()));
    }
    // Load is refused as a share of what the slots can do, so the missing slots follow from the rates.
    let rate = &class.rate;
    let refused = rate.refused.max(rate.would_refuse);
    let missing = (refused * class.mean_ms / 1_000.0).ceil().max(1.0);
    let room = format!(
        "about {missing:.0} more slots (servers) for the {} that are refused, or less of this load",
        per_second(refused)
    );
    let advice = match refusal.limit.as_str() {
        "cold-start" => {
            "waiting: it passes once a hundred requests have been served, and ten for every slot".into()
        }
        "deadline" => "clients that wait longer, or fewer requests ahead of these".into(),
        "client-share" => "clients that send less, or a class without `fair_share`".into(),
        "rate" => {
            "more room in the fleet, or a higher `max_rate`: the controller says at /plan what it lets in"
                .into()
        }
        "connections" => "a higher `max_connections`, or clients that share connections".into(),
        "queue-length" if refusal.mechanism == "max-queue" => {
            format!("{room}; a higher `max_queue` only makes requests wait longer")
        }
        limit if class.allowed_work_ms < 0.0 && limit.parse::<Statistic>().is_ok() => format!(
            "a higher objective or a faster server: even with an empty queue it takes longer than {limit} allows"
        ),
        _ => room,
    };
    Some(advice)
}

fn time(ms: f64) -> String {
    Nanos::from_secs_f64(ms / 1_000.0).to_string()
}

fn per_second(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::model::{Rates, ServerView};

    fn overloaded() -> Overview {
        let server = ServerView { address: "http://127.0.0.1:9001".into(), healthy: true, in_flight: 8 };
        let pool = PoolView {
            name: "shop".into(),
            mode: "enforce".into(),
            policy: "bouncer".into(),
            slots: 8,
            slots_taken: 8,
            queued: 12,
            max_queue: 800,
            expected_wait_ms: 31.5,
            servers: vec![server],
            ..PoolView::default()
        };
        let p50 = PercentileView {
            percentile: "p50".into(),
            objective_ms: Some(18.0),
            estimate_ms: Some(36.0),
            measured_ms: Some(17.0),
        };
        let class = |name: &str, mean_ms, offered, refused| ClassView {
            name: name.into(),
            pool: "shop".into(),
            percentiles: vec![p50.clone()],
            mean_ms,
            allowed_work_ms: 100.0,
            rate: Rates { offered, admitted: offered - refused, refused, ..Rates::default() },
            ..ClassView::default()
        };
        Overview {
            pools: vec![pool],
            classes: vec![class("browse", 5.0, 300.0, 120.0), class("default", 60.0, 110.0, 0.0)],
            window_s: 10.0,
            ..Overview::default()
        }
    }

    fn refusal(limit: &str, estimate: f64, objective: f64) -> DecisionView {
        DecisionView {
            time: "2026-01-01T00:00:00.000Z".into(),
            class: "browse".into(),
            verdict: "refuse".into(),
            refusal: Some(RefusalView {
                mechanism: "bouncer".into(),
                limit: limit.into(),
                unit: "ms".into(),
                estimate,
                objective,
                retry_after_ms: 20.0,
            }),
            ..DecisionView::default()
        }
    }

    #[test]
    fn says_why_and_who_and_what_helps() {
        let text = report(&overloaded(), &[refusal("p50", 36.0, 18.0)], Some("browse")).unwrap();
        for part in [
            "8 of 8 slots in use, 12 of at most 800 requests waiting, expected wait 31.5ms",
            "class browse: over the last 10 s 300/s offered, 180/s admitted, 120/s refused",
            "p50: objective 18ms, measured 17ms, a request that came now would take 36ms: too long",
            "its p50 would be 36ms, its objective is 18ms",
            "is work for 7.5 of 8 slots: default 88 % (110/s of 60ms), browse 12 % (180/s of 5ms)",
            "about 1 more slots (servers) for the 120/s that are refused",
        ] {
            assert!(text.contains(part), "{part}\nis not in\n{text}");
        }
        assert!(!text.contains("class default"), "{text}");
    }

    #[test]
    fn advice_fits_the_refusal() {
        let mut overview = overloaded();
        overview.classes[0].allowed_work_ms = -1.0;
        let text = report(&overview, &[refusal("p50", 19.0, 18.0)], None).unwrap();
        assert!(text.contains("even with an empty queue it takes longer than p50 allows"), "{text}");
        assert!(text.contains("class default") && text.contains("nothing of it is refused now"), "{text}");
        overview.pools[0].servers[0].healthy = false;
        let text = report(&overview, &[refusal("p50", 19.0, 18.0)], None).unwrap();
        assert!(text.contains("bring 1 of 1 servers of the pool back"), "{text}");
        let error = report(&overview, &[], Some("checkout")).unwrap_err();
        assert_eq!(error, "there is no class `checkout`; there is browse, default");
    }
}
