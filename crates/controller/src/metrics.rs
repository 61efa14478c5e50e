//! `/metrics`, in the OpenMetrics text format. Labels are names from the config, and addresses from it.

use plimsoll_sentry::admin::scrape::{self, Family, Rows};
use prometheus_client::metrics::MetricType::{Counter, Gauge};

use crate::admin::Seen;
use crate::status::{ClassRate, Leadership, PoolStatus, RatesStatus, SentryStatus, Status};
use crate::telemetry;
use crate::wanted::Wanted;

/// The metrics now.
pub fn render(seen: &Seen<'_>) -> String {
    let mut families = planned(seen.status);
    if let Some(telemetry) = seen.telemetry {
        families.extend(telemetry::metrics::families(&telemetry.learnt.borrow(), &telemetry.usage.borrow()));
    }
    scrape::render(families)
}

fn planned(status: &Status) -> Vec<Family> {
    let pools = |of: fn(&PoolStatus) -> Option<f64>| -> Rows {
        let row = |pool: &PoolStatus| Some((vec![("pool", pool.name.clone())], of(pool)?));
        status.pools.iter().filter_map(row).collect()
    };
    let alone = |value: u64| vec![(Vec::new(), value as f64)];
    let sentries = |of: &dyn Fn(&SentryStatus) -> Option<f64>| -> Rows {
        let row = |sentry: &SentryStatus| Some((vec![("sentry", sentry.address.clone())], of(sentry)?));
        status.sentries.iter().filter_map(row).collect()
    };
    let rates = |of: &dyn Fn(&ClassRate) -> Option<f64>| -> Rows {
        let classes = status.rates.iter().flat_map(|rates| &rates.classes);
        classes.filter_map(|class| Some((vec![("class", class.name.clone())], of(class)?))).collect()
    };
    // Names from the config alone: those that spans bring along are at /plan.
    let services = |of: fn(&Wanted) -> f64| -> Rows {
        let all = status.rates.iter().flat_map(|rates| &rates.services.0);
        let configured = all.filter(|(name, _)| status.services.contains(name));
        configured.map(|(name, wanted)| (vec![("service", name.clone())], of(wanted))).collect()
    };
    let of_rates = |of: fn(&RatesStatus) -> f64| -> Rows {
        status.rates.iter().map(|rates| (Vec::new(), of(rates))).collect()
    };
    let leads = |of: fn(&Leadership) -> f64| -> Rows {
        status.leadership.iter().map(|leadership| (Vec::new(), of(leadership))).collect()
    };
    vec![
        (
            "plimsoll_controller_leads",
            "Whether this controller is the one that acts",
            Gauge,
            leads(|leadership| f64::from(u8::from(leadership.leads))),
        ),
        (
            "plimsoll_controller_revision",
            "Of this leader; higher than that of all before it",
            Gauge,
            status
                .leadership
                .iter()
                .filter_map(|leadership| leadership.revision)
                .map(|revision| (Vec::new(), revision as f64))
                .collect(),
        ),
        (
            "plimsoll_controller_election_failures",
            "Requests to the etcd that failed",
            Counter,
            leads(|leadership| leadership.failures as f64),
        ),
        (
            "plimsoll_controller_rate_streams",
            "Sentries' workers and Envoys that report and get rates",
            Gauge,
            of_rates(|rates| rates.streams as f64),
        ),
        (
            "plimsoll_controller_rate_per_second",
            "Requests that may enter the fleet, where there is a limit",
            Gauge,
            rates(&|class| class.may_enter_per_s),
        ),
        (
            "plimsoll_controller_rate_offered_per_second",
            "Requests that come, as those that report say",
            Gauge,
            rates(&|class| Some(class.offered_per_s)),
        ),
        (
            "plimsoll_controller_rate_admitted_per_second",
            "Requests that their rates let in",
            Gauge,
            rates(&|class| Some(class.admitted_per_s)),
        ),
        (
            "plimsoll_controller_goodput_per_second",
            "Responses within the objective, as the sentries count them",
            Gauge,
            rates(&|class| class.goodput_per_s),
        ),
        (
            "plimsoll_controller_service_offered_per_second",
            "Calls of a service that is a pool, if all that is sent were let into the fleet",
            Gauge,
            services(|wanted| wanted.offered_per_s),
        ),
        (
            "plimsoll_controller_service_admitted_per_second",
            "Calls of it that come of what is let in",
            Gauge,
            services(|wanted| wanted.admitted_per_s),
        ),
        (
            "plimsoll_controller_rate_nonsense",
            "Reports that cannot be, or of no class",
            Counter,
            of_rates(|rates| (rates.nonsense + rates.unknown) as f64),
        ),
        (
            "plimsoll_controller_servers_planned",
            "Servers that there should be",
            Gauge,
            pools(|p| Some(p.planned.into())),
        ),
        (
            "plimsoll_controller_servers_ready",
            "Servers that take requests",
            Gauge,
            pools(|p| Some(p.ready.len() as f64)),
        ),
        (
            "plimsoll_controller_servers_starting",
            "Servers that are not ready yet",
            Gauge,
            pools(|p| Some(p.starting.into())),
        ),
        (
            "plimsoll_controller_servers_leaving",
            "Servers that finish what they have",
            Gauge,
            pools(|p| Some(p.leaving.into())),
        ),
        (
            "plimsoll_controller_server_failures",
            "Servers that did not start, died, or were found down, and providers that failed",
            Counter,
            pools(|p| Some(p.failures as f64)),
        ),
        ("plimsoll_controller_offered_per_second", "Requests that arrive", Gauge, pools(|p| p.per_s)),
        (
            "plimsoll_controller_refused_ratio",
            "The share of them that is refused",
            Gauge,
            pools(|p| p.refused),
        ),
        (
            "plimsoll_controller_target_seconds",
            "The mean response time that is planned for",
            Gauge,
            pools(|p| p.target_ms.map(|ms| ms / 1e3)),
        ),
        (
            "plimsoll_controller_sentry_up",
            "Whether a sentry answered",
            Gauge,
            sentries(&|s| Some(f64::from(u8::from(s.answers)))),
        ),
        (
            "plimsoll_controller_sentry_busy_ratio",
            "The share of its CPU that a sentry uses",
            Gauge,
            sentries(&|s| s.busy),
        ),
        (
            "plimsoll_controller_sentry_failures",
            "Looks at sentries and orders to them that failed",
            Counter,
            alone(status.sentry_failures),
        ),
        (
            "plimsoll_controller_nonsense",
            "Values that sentries reported and that cannot be",
            Counter,
            alone(status.nonsense),
        ),
    ]
}
