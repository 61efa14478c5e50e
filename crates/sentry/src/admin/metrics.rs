//! `/metrics`: everything that is counted, in the OpenMetrics text format. This is the one place where metrics have
//! names. Labels are names from the config and fixed words, never anything that a client sends.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_core::config::Mode;
use plimsoll_core::estimator::ClassEstimate;
use plimsoll_core::{Grant, Mechanism, Nanos};
use plimsoll_policing::switch::Policer;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::{Admin, process, word};
use crate::clock;
use crate::nucleus::load::{Load, Said};
use crate::server::Server;
use crate::state::{Routing, Shared};
use crate::stats::{ClassSnapshot, Durations, Failure, ThreadStats};

/// Upper bounds of the buckets of time histograms, in milliseconds.
const BUCKETS_MS: [u64; 16] = [1, 2, 5, 10, 20, 35, 50, 75, 100, 200, 350, 500, 1_000, 2_000, 5_000, 10_000];

/// The metrics now.
pub fn render(admin: &Admin) -> String {
    let mut scrape = Scrape::default();
    let routing = admin.shared.routing().load();
    scrape.of_classes(&routing);
    scrape.of_pools(&routing);
    scrape.of_threads(&admin.shared.stats.threads);
    scrape.of_connections(&admin.shared, &routing);
    scrape.of_process(admin);

    let mut registry = Registry::default();
    registry.register_collector(Box::new(scrape));
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
enum Value {
    Counter(u64),
    /// A counter of seconds.
    Seconds(f64),
    Gauge(f64),
    Histogram {
        sum: f64,
        buckets: Vec<(f64, u64)>,
    },
}

#[derive(Debug)]
struct Family {
    name: String,
    help: String,
    rows: Vec<(Labels, Value)>,
}

#[derive(Debug, Default)]
struct Scrape {
    families: Vec<Family>,
}

/// One class with what is known of it.
struct Class<'a> {
    labels: Labels,
    snapshot: ClassSnapshot,
    estimate: Option<&'a ClassEstimate>,
    config: &'a plimsoll_core::config::Class,
    mode: Mode,
    /// What may enter, a second, where there is a limit.
    may_enter: Option<f64>,
}

impl Class<'_> {
    fn with(&self, key: &'static str, value: impl fmt::Display) -> Labels {
        let mut labels = self.labels.clone();
        labels.push((key, value.to_string()));
        labels
    }
}

impl Scrape {
    /// Adds a metric; one without rows does not appear.
    fn add(&mut self, name: &str, help: &str, rows: impl Iterator<Item = (Labels, Value)>) {
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            self.families.push(Family { name: name.to_owned(), help: help.to_owned(), rows });
        }
    }

    fn of_classes(&mut self, routing: &Routing) {
        let now = clock::now();
        let estimates: Vec<_> = routing.pools.iter().map(|pool| pool.gate.report()).collect();
        let classes: Vec<Class<'_>> = routing
            .config
            .classes
            .iter()
            .zip(&routing.classes)
            .map(|(config, route)| {
                let pool = &routing.pools[route.pool];
                let labels = vec![("pool", pool.config.name.clone()), ("class", config.name.clone())];
                let estimate = estimates[route.pool].get(route.in_pool.index());
                let may_enter = route.limit.per_s(now);
                Class {
                    labels,
                    snapshot: route.stats.snapshot(),
                    estimate,
                    config,
                    mode: pool.mode(),
                    may_enter,
                }
            })
            .collect();
        self.counters_of(&classes);
        self.estimates_of(&classes);
        let histogram = |of: fn(&ClassSnapshot) -> &Durations| {
            classes.iter().map(move |c| (c.labels.clone(), Value::of(of(&c.snapshot)))).collect::<Vec<_>>()
        };
        let help = "From arrival to the end of the response, of what was served and is no stream";
        self.add("plimsoll_response_seconds", help, histogram(|s| &s.response).into_iter());
        let help = "In the queue, of what left it for a slot";
        self.add("plimsoll_wait_seconds", help, histogram(|s| &s.wait).into_iter());
    }

    fn counters_of(&mut self, classes: &[Class<'_>]) {
        let plain = |of: fn(&ClassSnapshot) -> u64| {
            classes
                .iter()
                .map(move |c| (c.labels.clone(), Value::Counter(of(&c.snapshot))))
                .collect::<Vec<_>>()
        };
        self.add("plimsoll_requests_offered", "Requests that arrived", plain(|s| s.offered).into_iter());
        let admitted = classes.iter().flat_map(|c| {
            let grants = Grant::ALL.iter().map(|g| g.as_str()).zip(c.snapshot.granted);
            grants
                .chain([("unjudged", c.snapshot.unjudged), ("shadow", c.snapshot.against())])
                .map(|(grant, count)| (c.with("grant", grant), Value::Counter(count)))
        });
        let help = "Requests that were let in, by the reason: the policy's, none where it was not asked (unjudged), or \
                    against the policy because the mode is shadow; whatever waits is not counted yet";
        self.add("plimsoll_requests_admitted", help, admitted);
        let by_mechanism = |of: fn(&ClassSnapshot) -> &Vec<u64>, shown: fn(&Class<'_>) -> bool| {
            let shown = classes.iter().filter(move |c| shown(c));
            shown
                .flat_map(move |c| {
                    let counts = Mechanism::ALL.iter().zip(of(&c.snapshot));
                    counts.map(|(mechanism, n)| (c.with("reason", mechanism), Value::Counter(*n)))
                })
                .collect::<Vec<_>>()
        };
        let refused = by_mechanism(|s| &s.refused, |_| true);
        self.add(
            "plimsoll_requests_refused",
            "Requests that were refused, by mechanism",
            refused.into_iter(),
        );
        // Once the rates have been in shadow, what they would have refused goes on being shown.
        let would = by_mechanism(
            |s| &s.would_refuse,
            |c| c.mode == Mode::Shadow || c.snapshot.would_refuse_by(Mechanism::Rate) > 0,
        );
        let help = "Requests that would have been refused if the mode were not shadow, by mechanism; they are among the \
                    admitted, as shadow";
        self.add("plimsoll_requests_would_refuse", help, would.into_iter());
        let help = "Requests whose client left while they waited: the rest of what was offered and neither admitted, \
                    refused nor waiting";
        self.add("plimsoll_requests_gone", help, plain(|s| s.gone).into_iter());
        self.add(
            "plimsoll_requests_served",
            "Responses that ended as they should",
            plain(|s| s.served).into_iter(),
        );
        let failed = classes.iter().flat_map(|c| {
            let counts = Failure::ALL.iter().zip(c.snapshot.failed);
            counts.map(|(failure, n)| (c.with("failure", failure.as_str()), Value::Counter(n)))
        });
        self.add(
            "plimsoll_requests_failed",
            "Requests that were let in and not served, by what went wrong",
            failed,
        );
    }

    fn estimates_of(&mut self, classes: &[Class<'_>]) {
        let may_enter = classes.iter().filter_map(|c| Some((c.labels.clone(), Value::Gauge(c.may_enter?))));
        let help = "Requests a second that may enter, where the controller limits them";
        self.add("plimsoll_rate_limit_per_second", help, may_enter);
        let known = || classes.iter().filter_map(|c| c.estimate.map(|e| (c, e)));
        let queued = known().map(|(c, e)| (c.labels.clone(), Value::Gauge(e.queued as f64)));
        self.add("plimsoll_class_queue_length", "Requests of the class that wait", queued);
        let mean = known().map(|(c, e)| (c.labels.clone(), Value::seconds(e.mean)));
        self.add("plimsoll_service_mean_seconds", "The class's expected time at the server", mean);
        let allowed = known().map(|(c, e)| (c.labels.clone(), Value::Gauge(e.allowed_work_ns as f64 / 1e9)));
        let help = "Expected work, over all slots, that may wait for the class to be let in";
        self.add("plimsoll_allowed_work_seconds", help, allowed);
        let estimates = known().flat_map(|(c, e)| {
            e.targets.iter().map(|(p, expected, _)| (c.with("percentile", p), Value::seconds(*expected)))
        });
        let help = "What a request that came now would be expected to take, to be held against plimsoll_objective_seconds";
        self.add("plimsoll_estimate_seconds", help, estimates);
        let objectives = classes.iter().flat_map(|c| {
            let targets = c.config.slo.targets().iter();
            targets.map(|(p, limit)| (c.with("percentile", p), Value::seconds(*limit)))
        });
        self.add("plimsoll_objective_seconds", "The class's objectives", objectives);
        let within = classes.iter().flat_map(|c| {
            let targets = c.config.slo.targets().iter();
            targets.map(|(p, limit)| {
                (c.with("percentile", p), Value::Counter(c.snapshot.response.at_most(*limit)))
            })
        });
        let help = "Responses that took no longer than the objective of this percentile";
        self.add("plimsoll_responses_within_objective", help, within);
    }

    fn of_pools(&mut self, routing: &Routing) {
        let now = clock::now();
        let gauge = |of: fn(&crate::pool::Pool) -> f64| {
            let pools = routing.pools.iter();
            pools
                .map(move |p| (vec![("pool", p.config.name.clone())], Value::Gauge(of(p))))
                .collect::<Vec<_>>()
                .into_iter()
        };
        self.add("plimsoll_queue_length", "Requests that wait", gauge(|p| f64::from(p.slots.waiting())));
        let help = "Requests that may wait at most";
        self.add("plimsoll_queue_limit", help, gauge(|p| f64::from(p.config.max_queue)));
        let help = "Requests that may be with the servers at once";
        self.add("plimsoll_slots", help, gauge(|p| f64::from(p.slots.size())));
        let help = "Requests that are with the servers";
        self.add("plimsoll_slots_taken", help, gauge(|p| f64::from(p.slots.taken())));
        let help = "Slots left to a worker that drains, or to requests from before a reload";
        self.add("plimsoll_slots_withheld", help, gauge(|p| f64::from(p.withheld())));
        let help = "How long a request that came now would be expected to wait";
        self.add("plimsoll_expected_wait_seconds", help, gauge(|p| p.gate.expected_wait().as_secs_f64()));
        let help = "Whether the policy acts: 0 off, 1 shadow, 2 enforce";
        self.add("plimsoll_mode", help, gauge(|p| f64::from(p.mode() as u8)));

        let policers = routing.pools.iter().flat_map(|pool| {
            let row = |policer, at_work| {
                let labels = vec![("pool", pool.config.name.clone()), ("policer", word(policer).to_owned())];
                (labels, Value::Gauge(f64::from(u8::from(policer == at_work))))
            };
            let both = [Policer::Batch, Policer::Threshold];
            pool.policer().into_iter().flat_map(move |at_work| both.map(|policer| row(policer, at_work)))
        });
        self.add("plimsoll_policer", "Whether it is this policer that is at work", policers);

        let reports = routing.pools.iter().flat_map(|pool| {
            let labels = |kind: &str| vec![("pool", pool.config.name.clone()), ("kind", kind.to_owned())];
            pool.reports.all().map(|(kind, count)| (labels(kind), Value::Counter(count)))
        });
        let help = "Reports in which servers said what they know, by what became of them";
        self.add("plimsoll_nucleus_reports", help, reports);
        let servers = || {
            routing.pools.iter().flat_map(|pool| {
                let labels = |address: String| vec![("pool", pool.config.name.clone()), ("server", address)];
                pool.servers.all().into_iter().map(move |server| (labels(server.origin.to_string()), server))
            })
        };
        let up = servers().map(|(labels, s)| (labels, Value::Gauge(f64::from(u8::from(s.is_up(now))))));
        self.add("plimsoll_server_up", "Whether requests are sent to the server", up);
        let in_flight = servers().map(|(labels, s)| (labels, Value::Gauge(f64::from(s.in_flight()))));
        self.add("plimsoll_server_in_flight", "Requests that the server works on", in_flight);
        let said = |of: fn(&Load) -> &Said| {
            let said = move |server: &Server| of(&server.load).get(now).map(|(number, _)| number);
            servers().filter_map(move |(labels, s)| Some((labels, Value::Gauge(said(&s)?))))
        };
        let help = "How long a request waits at the server, as the server said last";
        self.add("plimsoll_server_queue_delay_seconds", help, said(|load| &load.queue_delay_s));
        let help = "Requests that the server works on, as the server said last";
        self.add("plimsoll_server_in_service", help, said(|load| &load.in_service));
        let help = "How busy the server's CPUs are, as the server said last";
        self.add("plimsoll_server_cpu_utilization", help, said(|load| &load.cpu_utilization));
    }

    fn of_threads(&mut self, threads: &[ThreadStats]) {
        for (name, help, value) in ThreadStats::totals(threads) {
            let (name, value) = match name {
                "in_flight" => ("requests_in_flight", Value::Gauge(value as f64)),
                "accepted" => ("connections_accepted", Value::Counter(value)),
                name => (name, Value::Counter(value)),
            };
            let help = help.trim().trim_end_matches('.');
            self.add(&format!("plimsoll_{name}"), help, [(Labels::new(), value)].into_iter());
        }
    }

    fn of_connections(&mut self, shared: &Shared, routing: &Routing) {
        let mut gauge = |name, help, n: u32| {
            self.add(name, help, [(Labels::new(), Value::Gauge(f64::from(n)))].into_iter());
        };
        gauge("plimsoll_connections_open", "Client connections that are open", shared.connections());
        let most = routing.config.sentry.max_connections;
        gauge("plimsoll_connections_limit", "Client connections that may be open at most", most);
    }

    fn of_process(&mut self, admin: &Admin) {
        let one = |value| [(Labels::new(), value)].into_iter();
        let reloads = [("done", &admin.reloads.done), ("failed", &admin.reloads.failed)];
        let reloads =
            reloads.map(|(result, n)| (vec![("result", result.to_owned())], Value::Counter(n.load(Relaxed))));
        self.add(
            "plimsoll_reloads",
            "Reloads of the config, and those that changed nothing because it was wrong",
            reloads.into_iter(),
        );
        let help = "Workers that died before this one";
        self.add("plimsoll_worker_restarts", help, one(Value::Counter(admin.restarts)));
        let help = "Share that the worker used over the last second of the CPU time that it may have: a core a thread, or the quota of \
                    its control group";
        self.add("plimsoll_sentry_busy", help, one(Value::Gauge(admin.shared.busy())));
        if admin.shared.routing().load().config.sentry.rates.is_some() {
            let rates = &admin.shared.rates;
            let help = "Whether a controller that sets rates is listened to";
            let connected = f64::from(u8::from(rates.connected.load(Relaxed)));
            self.add("plimsoll_rates_connected", help, one(Value::Gauge(connected)));
            let help = "Answers of controllers that lead no more, none of which was listened to";
            self.add("plimsoll_rates_stale", help, one(Value::Counter(rates.stale.load(Relaxed))));
            let help = "Rates that could not be, and were left out";
            self.add("plimsoll_rates_nonsense", help, one(Value::Counter(rates.nonsense.load(Relaxed))));
        }
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        self.add("plimsoll_build_info", "Always 1", [(version, Value::Gauge(1.0))].into_iter());
        let up = clock::now().since(admin.started);
        self.add("plimsoll_uptime_seconds", "Since the worker started", one(Value::seconds(up)));
        if let Some(bytes) = process::resident_bytes() {
            self.add(
                "process_resident_memory_bytes",
                "Memory of the worker",
                one(Value::Gauge(bytes as f64)),
            );
        }
        if let Some(open) = process::open_descriptors() {
            self.add(
                "process_open_fds",
                "Open files and sockets of the worker",
                one(Value::Gauge(open as f64)),
            );
        }
        if let Some(cpu) = process::cpu_seconds() {
            self.add("process_cpu_seconds", "Time that the worker computed", one(Value::Seconds(cpu)));
        }
    }
}

impl Value {
    fn seconds(time: Nanos) -> Value {
        Value::Gauge(time.as_secs_f64())
    }

    fn of(durations: &Durations) -> Value {
        let mut below = 0;
        let mut buckets: Vec<(f64, u64)> = BUCKETS_MS
            .iter()
            .map(|&ms| {
                let at_most = durations.at_most(Nanos::from_millis(ms));
                let count = at_most - below;
                below = at_most;
                (ms as f64 / 1_000.0, count)
            })
            .collect();
        buckets.push((f64::INFINITY, durations.count() - below));
        Value::Histogram { sum: durations.sum.as_secs_f64(), buckets }
    }
}

impl Value {
    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Value::Counter(n) => metric.encode_counter::<NoLabelSet, _, f64>(n, None),
            Value::Seconds(s) => metric.encode_counter::<NoLabelSet, _, f64>(s, None),
            Value::Gauge(n) => metric.encode_gauge(n),
            Value::Histogram { sum, buckets } => {
                let count = buckets.iter().map(|(_, n)| n).sum();
                metric.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
            }
        }
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for Family { name, help, rows } in &self.families {
            let kind = match rows[0].1 {
                Value::Counter(_) | Value::Seconds(_) => MetricType::Counter,
                Value::Gauge(_) => MetricType::Gauge,
                Value::Histogram { .. } => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, value) in rows {
                if labels.is_empty() {
                    value.encode(&mut family)?;
                } else {
                    value.encode(&mut family.encode_family(labels)?)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
