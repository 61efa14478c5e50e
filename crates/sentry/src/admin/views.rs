//! From what the worker holds to what the admin address tells.

use std::collections::BTreeMap;

use humantime::format_rfc3339_millis;
use plimsoll_core::estimator::ClassEstimate;
use plimsoll_core::{Grant, Mechanism, Nanos, Statistic};

use super::history::{WINDOW, statistics};
use super::model::{
    ClassView, DecisionView, Overview, PercentileView, PoolView, RefusalView, ServerView, Totals,
};
use super::{Admin, Sampled, word};
use crate::clock;
use crate::decisions::{Decision, Stage};
use crate::pool::Pool;
use crate::state::{ClassRoute, Routing};
use crate::stats::{ClassSnapshot, Failure};

/// `/classes`, with so many seconds of history.
pub fn overview(admin: &Admin, seconds: usize) -> Overview {
    let routing = admin.shared.routing().load();
    let now = clock::now();
    let estimates: Vec<Vec<ClassEstimate>> = routing.pools.iter().map(|pool| pool.gate.report()).collect();
    let sampled = admin.sampled.lock();
    let classes = routing.config.classes.iter().zip(&routing.classes).map(|(class, route)| {
        let estimate = estimates[route.pool].get(route.in_pool.index());
        class_view(&routing, class, route, estimate, &sampled, seconds)
    });
    Overview {
        uptime_s: now.since(admin.started).as_secs_f64(),
        draining: admin.shared.is_draining(),
        classes: classes.collect(),
        pools: routing.pools.iter().map(|pool| pool_view(pool, now)).collect(),
        window_s: WINDOW as f64,
        samples: sampled.samples,
    }
}

fn pool_view(pool: &Pool, now: Nanos) -> PoolView {
    let server = |server: &std::sync::Arc<crate::server::Server>| ServerView {
        address: server.origin.to_string(),
        healthy: server.is_up(now),
        in_flight: server.in_flight(),
    };
    PoolView {
        name: pool.config.name.clone(),
        mode: pool.mode().to_string(),
        policy: pool.config.admission.policy.kind().to_string(),
        policer: pool.policer().map(|policer| word(policer).to_owned()),
        slots: pool.slots.size(),
        slots_taken: pool.slots.taken(),
        slots_withheld: pool.withheld(),
        queued: pool.slots.waiting(),
        max_queue: pool.config.max_queue,
        expected_wait_ms: pool.gate.expected_wait().as_millis_f64(),
        servers: pool.servers.all().iter().map(server).collect(),
    }
}

fn class_view(
    routing: &Routing,
    class: &plimsoll_core::config::Class,
    route: &ClassRoute,
    estimate: Option<&ClassEstimate>,
    sampled: &Sampled,
    seconds: usize,
) -> ClassView {
    let history = sampled.history.of(&class.name);
    let measured = history.map(|h| h.measured(&class.slo)).unwrap_or_default();
    // What has a mean of zero has not been measured, and nothing has been borrowed for it either.
    let known = estimate.filter(|e| e.mean > Nanos::ZERO);
    let statistic = |(i, statistic): (usize, Statistic)| {
        let of_slo = class.slo.targets().iter().find(|(s, _)| *s == statistic);
        let judged = known.and_then(|e| e.targets.iter().find(|(s, ..)| *s == statistic));
        PercentileView {
            percentile: statistic.to_string(),
            objective_ms: of_slo.map(|(_, limit)| limit.as_millis_f64()),
            estimate_ms: judged.map(|(_, expected, _)| expected.as_millis_f64()),
            measured_ms: measured.get(i).copied(),
        }
    };
    ClassView {
        name: class.name.clone(),
        pool: routing.pools[route.pool].config.name.clone(),
        priority: class.priority,
        percentiles: statistics(&class.slo).into_iter().enumerate().map(statistic).collect(),
        mean_ms: estimate.map_or(0.0, |e| e.mean.as_millis_f64()),
        borrowed: estimate.is_some_and(|e| e.borrowed),
        queued: estimate.map_or(0, |e| e.queued),
        allowed_work_ms: estimate.map_or(0.0, |e| e.allowed_work_ns as f64 / 1e6),
        total: totals(&route.stats.snapshot()),
        rate: history.map(|h| h.rates()).unwrap_or_default(),
        history: history.map(|h| h.seconds(seconds)).unwrap_or_default(),
    }
}

fn totals(snapshot: &ClassSnapshot) -> Totals {
    let named = |names: &mut dyn Iterator<Item = &'static str>, counts: &[u64]| {
        let pairs = names.zip(counts).filter(|(_, count)| **count > 0);
        pairs.map(|(name, count)| (name.to_owned(), *count)).collect::<BTreeMap<_, _>>()
    };
    let mechanisms = || Mechanism::ALL.iter().map(|m| m.as_str());
    Totals {
        offered: snapshot.offered,
        admitted: named(&mut Grant::ALL.iter().map(|g| g.as_str()), &snapshot.granted),
        unjudged: snapshot.unjudged,
        refused: named(&mut mechanisms(), &snapshot.refused),
        would_refuse: named(&mut mechanisms(), &snapshot.would_refuse),
        gone: snapshot.gone,
        served: snapshot.served,
        failed: named(&mut Failure::ALL.iter().map(|f| f.as_str()), &snapshot.failed),
    }
}

/// `/decisions`: the newest first, of this class and with one of these verdicts (separated by commas) where given.
pub fn decisions(
    admin: &Admin,
    class: Option<&str>,
    verdicts: Option<&str>,
    most: usize,
) -> Vec<DecisionView> {
    let routing = admin.shared.routing().load();
    let wanted = |verdict: &str| verdicts.is_none_or(|list| list.split(',').any(|one| one == verdict));
    let found = routing.decisions.newest(most, |log, decision| {
        class.is_none_or(|name| name == log.class) && wanted(verdict(decision))
    });
    // The sentry's clock says how long ago it was; the wall clock, when that was.
    let (now, wall) = (clock::now(), clock::wall());
    let view = |(log, decision): (&crate::decisions::ClassLog, Decision)| DecisionView {
        time: format_rfc3339_millis(std::time::UNIX_EPOCH + wall.since(now.since(decision.at)).into())
            .to_string(),
        pool: log.pool.clone(),
        class: log.class.clone(),
        verdict: verdict(&decision).to_owned(),
        stage: match decision.stage {
            Stage::Entry => "entry".to_owned(),
            Stage::Gate => "gate".to_owned(),
            Stage::Queue => "queue".to_owned(),
        },
        queued: decision.queued,
        grant: match decision.verdict {
            plimsoll_core::Verdict::Admit(grant) => Some(grant.as_str().to_owned()),
            plimsoll_core::Verdict::Refuse(_) => None,
        },
        refusal: RefusalView::of(&decision.verdict),
    };
    found.into_iter().map(view).collect()
}

fn verdict(decision: &Decision) -> &'static str {
    match (decision.verdict.is_admit(), decision.enforced) {
        (true, _) => "admit",
        (false, true) => "refuse",
        (false, false) => "would-refuse",
    }
}
