//! `[service.NAME]` of a fleet: who does the work, how fast, and how many there are of it.

use crate::Nanos;
use crate::config::report::Report;
use crate::config::table::{choice, table};
use crate::config::units::Rate;
use crate::config::value::Node;
use crate::config::workload::Service as ServiceTimes;

table! {
    /// A service.
    pub struct ServiceTable {
        /// Requests that all its instances together can serve; or `workers` and `service`. It has as many workers then as take about 5ms
        /// each for a request, at times that are distributed exponentially.
        capacity: Option<Rate>,
        /// Requests that one instance works on at once.
        workers: Option<u32> [1..=100000],
        /// How long a worker takes for a request.
        service: Option<ServiceTimes>,
        /// Instances it begins with. Requests go to the shorter queue of two that are drawn.
        instances: u32 [1..=10000] = 1,
        /// Requests that wait at one instance at most; one more is refused. Left out, what it serves in two seconds.
        max_queue: Option<u32> [1..=10000000],
        /// Instances come and go with utilisation, as the horizontal pod autoscaler of Kubernetes has it.
        autoscale: Option<Autoscale>,
        /// Instances that end in the middle of what they do, and come back.
        failures: Option<Vec<Failure>>,
    }
}

table! {
    /// An autoscaler of instances: as many as would be used to `target` if the work were the same.
    pub struct Autoscale {
        /// Utilisation that it aims at, in 0..1.
        target: f64 [0.05..=1.0] = 0.7,
        /// Fewest instances.
        min: u32 [1..=10000] = 1,
        /// Most instances.
        max: u32 [1..=10000] = 10,
        /// How long an instance takes to start: 41s to 124s where a machine starts first (section 7), seconds where it does not.
        start: Nanos ["0s"..="1h"] = "30s",
        /// How often it looks, and over how long: 15s as Kubernetes has it.
        every: Nanos ["1s"..="1h"] = "15s",
        /// How long it has to have wanted fewer instances before it takes any away: 5m as Kubernetes has it.
        calm: Nanos ["0s"..="24h"] = "5m",
        /// What it takes for the load: the work that was "admitted", or all that was "offered", with what was refused at the entry.
        sees: Sees = "admitted",
    }
}

choice! {
    /// What an autoscaler takes for the load.
    pub enum Sees {
        /// The work that is done: utilisation as it is measured.
        Admitted = "admitted",
        /// That, and what was refused at the entry.
        Offered = "offered",
    }
}

table! {
    /// Instances that end in the middle of what they do.
    pub struct Failure {
        /// When, since the start of the run.
        at: Nanos ["0s"..="24h"],
        /// How many of them.
        instances: u32 [1..=10000],
        /// How long until as many are back; left out, they stay away.
        back_after: Option<Nanos> ["1ms"..="24h"],
    }
}

/// A service of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// As the file has it.
    pub name: String,
    /// What one instance does.
    pub work: Work,
    /// Instances it begins with; at least one.
    pub instances: u32,
    /// Requests that wait at one instance at most; at least one. Left out, what it serves in two seconds.
    pub max_queue: Option<u32>,
    /// Instances come and go with utilisation.
    pub autoscale: Option<Autoscale>,
    /// Instances that end.
    pub failures: Vec<Failure>,
}

/// What one instance of a service does.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Requests it works on at once; at least one.
    pub workers: u32,
    /// How long each takes.
    pub times: ServiceTimes,
}

/// How long a request takes at a service that is known by its capacity.
const USUAL_TIME_S: f64 = 0.005;

impl Work {
    /// The instance that serves so many a second, above zero, at exponential times of about 5 ms.
    pub fn of_capacity(per_s: f64) -> Work {
        let workers = (per_s * USUAL_TIME_S).round().clamp(1.0, 100_000.0);
        let mean = Nanos::from_secs_f64(workers / per_s).max(Nanos(1));
        Work { workers: workers as u32, times: ServiceTimes::Exponential { mean } }
    }
}

impl ServiceTable {
    pub(super) fn resolve(
        self,
        name: &str,
        duration: Nanos,
        node: Node<'_>,
        report: &mut Report,
    ) -> Option<Service> {
        let ServiceTable { capacity, workers, service, instances, max_queue, autoscale, failures } = self;
        let mut wrong = |keys: &[&str], message: String| {
            report.error(node.at(keys), message);
        };
        let work = match (capacity, workers, service) {
            (Some(rate), None, None) if rate.per_s > 0.0 => {
                Some(Work::of_capacity(rate.per_s / f64::from(instances)))
            }
            (Some(_), None, None) => {
                wrong(
                    &["capacity"],
                    "a service that serves nothing is no service; write for example capacity = \"1000/s\""
                        .into(),
                );
                None
            }
            (None, Some(workers), Some(times)) => Some(Work { workers, times }),
            (Some(_), ..) => {
                let message =
                    "a service has either a `capacity` or `workers` and `service`; remove one of them";
                wrong(&["capacity"], message.into());
                None
            }
            (None, ..) => {
                let example = "capacity = \"1000/s\", or workers = 10 and service = { dist = \"exponential\", mean = \"10ms\" }";
                wrong(
                    &[],
                    format!("[service.{name}] does not say what it can do; write for example {example}"),
                );
                None
            }
        };
        if let Some(scale) = &autoscale {
            let (low, high) = (scale.min, scale.max);
            if !(low..=high).contains(&instances) {
                let message = format!(
                    "{instances} instances are not within {low} to {high}; change `instances`, `min` or `max`"
                );
                wrong(&["autoscale"], message);
            }
        }
        for failure in failures.iter().flatten() {
            if failure.at >= duration {
                let message = format!("the run ends after {duration}, before this; write a time before that");
                wrong(&["failures"], message);
            }
        }
        Some(Service {
            name: name.to_owned(),
            work: work?,
            instances,
            max_queue,
            autoscale,
            failures: failures.unwrap_or_default(),
        })
    }
}
