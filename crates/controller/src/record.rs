//! The proof that what sets rates in production is what the simulator drives: a controller can write down what it saw of the fleet and what
//! it decided, step by step, and `plimsoll verify` shows the same to a fresh [`RateControl`] and demands the same rates.
//!
//! One JSON object a line; times are nanoseconds. What is no number is written as `null`, and counts as little as what was not heard of.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use plimsoll_core::Nanos;
use plimsoll_core::config::ControllerRates;
use plimsoll_engine::tape::{self, Tape};
use plimsoll_ratecontrol::{
    Api, ApiId, ApiSignal, Branch, Observation, OwnTime, RateControl, ServiceId, ServiceSignal, Topology,
};
use serde::{Deserialize, Serialize};

use crate::decide;

/// What the first line says.
const FORMAT: &str = "plimsoll controller 1";

/// As [`ServiceSignal`] and [`ApiSignal`].
type OfService = (Option<f64>, Option<u64>, Option<f64>);
/// See [`OfService`].
type OfApi = (Option<f64>, Option<f64>, Option<f64>, Option<u64>);

/// As [`Api`]; a branch is its share and its services.
#[derive(Debug, Serialize, Deserialize)]
struct OneApi {
    branches: Vec<(f64, Vec<u32>)>,
    slo: u64,
    priority: u32,
    min_per_s: f64,
}

/// One line of a record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    /// The first.
    Record { format: String },
    /// From here on somebody decides who knows nothing yet.
    Decide { by: String, weights: Option<PathBuf> },
    /// The fleet, where it is another than before: APIs, and how long a service works for one, by how many calls that is known.
    Fleet { services: usize, apis: Vec<OneApi>, own_times: Vec<(u32, u32, f64, f64)> },
    /// What was seen of services and APIs, in the order of their signals' fields, and the rates that followed.
    Step { now: u64, services: Vec<OfService>, apis: Vec<OfApi>, rates: Vec<Option<f64>> },
}

/// Writes down what is decided.
#[derive(Clone)]
pub struct Recorder(Rc<RefCell<Tape>>);

impl Recorder {
    /// Records to a new file.
    ///
    /// # Errors
    /// Where it cannot be written, or is there already.
    pub fn create(path: &Path) -> Result<Recorder, String> {
        let recorder = Recorder(Rc::new(RefCell::new(Tape::create(path)?)));
        recorder.write(&Line::Record { format: FORMAT.to_owned() });
        Ok(recorder)
    }

    /// Somebody decides from here on, as the config says.
    pub fn decides(&self, rates: &ControllerRates) {
        let by = rates.decide.as_str().to_owned();
        self.write(&Line::Decide { by, weights: rates.weights.clone() });
    }

    /// The fleet is another from here on.
    pub fn fleet(&self, topology: &Topology) {
        let branch = |branch: &Branch| (branch.share, branch.services.iter().map(|it| it.0).collect());
        let api = |api: &Api| OneApi {
            branches: api.branches.iter().map(branch).collect(),
            slo: api.slo.0,
            priority: api.priority,
            min_per_s: api.min_per_s,
        };
        let own =
            |(api, service, own): (ApiId, ServiceId, OwnTime)| (api.0, service.0, own.mean_s, own.calls);
        self.write(&Line::Fleet {
            services: topology.services(),
            apis: topology.apis().iter().map(api).collect(),
            own_times: topology.own_times().map(own).collect(),
        });
    }

    /// A step.
    pub fn step(&self, now: Nanos, seen: &Observation<'_>, rates: &[Option<f64>]) {
        let service = |it: &ServiceSignal| (it.utilization, it.queue_delay.map(|ns| ns.0), it.served_per_s);
        let api = |it: &ApiSignal| {
            (it.offered_per_s, it.admitted_per_s, it.goodput_per_s, it.tail_latency.map(|ns| ns.0))
        };
        self.write(&Line::Step {
            now: now.0,
            services: seen.services.iter().map(service).collect(),
            apis: seen.apis.iter().map(api).collect(),
            rates: rates.to_vec(),
        });
    }

    fn write(&self, line: &Line) {
        self.0.borrow_mut().write(line);
    }
}

/// What a record held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Times that somebody began to decide.
    pub deciders: u32,
    /// Steps.
    pub steps: u64,
    /// Steps after which an API was limited.
    pub limited: u64,
}

/// Whether a file is a record of a controller's.
pub fn is_ours(path: &Path) -> bool {
    tape::begins_with(path, FORMAT)
}

/// Shows a record to fresh controls.
///
/// # Errors
/// Where it cannot be read, or the weights that it names cannot; at the first step whose rates differ: its line, what was recorded and what
/// was decided now.
pub fn verify(path: &Path) -> Result<Summary, String> {
    let (mut control, mut topology) = (None, Topology::default());
    let mut summary = Summary::default();
    tape::read(path, |line| match line {
        Line::Record { format } if format == FORMAT => Ok(()),
        Line::Record { format } => Err(format!("{format} is another format than {FORMAT}")),
        Line::Decide { by, weights } => {
            let settings = decide::named(by.parse()?, weights.as_deref())?;
            control = Some(RateControl::new(settings.ok_or_else(|| format!("{by} decides nothing"))?));
            summary.deciders += 1;
            Ok(())
        }
        Line::Fleet { services, apis, own_times } => {
            topology = fleet(services, apis, own_times);
            Ok(())
        }
        Line::Step { now, services, apis, rates } => {
            let control = control.as_mut().ok_or("a step before anybody decides")?;
            let (services, apis) = signals(services, apis);
            let seen = Observation { services: &services, apis: &apis };
            let decided = control.step(Nanos(now), &topology, &seen).rates;
            if decided != rates {
                return Err(format!("recorded {rates:?}, decided {decided:?}"));
            }
            summary.steps += 1;
            summary.limited += u64::from(rates.iter().any(Option::is_some));
            Ok(())
        }
    })?;
    Ok(summary)
}

fn fleet(services: usize, apis: Vec<OneApi>, own_times: Vec<(u32, u32, f64, f64)>) -> Topology {
    let branch = |(share, services): (f64, Vec<u32>)| Branch {
        share,
        services: services.into_iter().map(ServiceId).collect(),
    };
    let api = |api: OneApi| Api {
        branches: api.branches.into_iter().map(branch).collect(),
        slo: Nanos(api.slo),
        priority: api.priority,
        min_per_s: api.min_per_s,
    };
    let own = |(api, service, mean_s, calls)| (ApiId(api), ServiceId(service), OwnTime { mean_s, calls });
    Topology::new(services, apis.into_iter().map(api).collect())
        .with_own_times(own_times.into_iter().map(own))
}

fn signals(services: Vec<OfService>, apis: Vec<OfApi>) -> (Vec<ServiceSignal>, Vec<ApiSignal>) {
    let service = |(utilization, queue, served_per_s): OfService| ServiceSignal {
        utilization,
        queue_delay: queue.map(Nanos),
        served_per_s,
    };
    let api = |(offered_per_s, admitted_per_s, goodput_per_s, tail): OfApi| ApiSignal {
        offered_per_s,
        admitted_per_s,
        goodput_per_s,
        tail_latency: tail.map(Nanos),
    };
    (services.into_iter().map(service).collect(), apis.into_iter().map(api).collect())
}
