//! The fleets of the paper, as large as fits here: the same shape, with every rate and every capacity smaller by one factor.

use std::path::Path;

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Api, Offered, Scenario, Service, Work};
use plimsoll_core::config::parse;
use plimsoll_core::config::workload::Service as ServiceTimes;
use plimsoll_simulator::fleet::optimum::{Asked, Best};
use plimsoll_simulator::fleet::plan::Plan;
use plimsoll_simulator::fleet::text::to_toml;

/// Calls a second of all services together, if all that is sent were let in. A call takes some 50 us of CPU here, with what sends and what
/// receives it, so two processors are far from full: the services are what is short.
const MOST_CALLS_PER_S: f64 = 9_000.0;
/// A call of a service that has room takes no longer than this: fewer instances would do with fewer calls, but not more slowly.
const LONGEST: Nanos = Nanos::from_millis(40);

/// A fleet, and what is sent to it at the height of the surge.
pub struct Scene {
    /// As it runs.
    pub plan: Plan,
    /// The file of it.
    pub text: String,
}

impl Scene {
    /// Of a scenario of the simulator; at the height of the surge is what it has at its end. `change` may be made to it first.
    ///
    /// # Errors
    /// Where it is none.
    pub fn new(text: &str, change: impl FnOnce(&mut Scenario)) -> Result<Scene, String> {
        let (mut scenario, _) = parse::<Scenario>(text, "scenario").map_err(|errors| errors.to_string())?;
        change(&mut scenario);
        fit(&mut scenario, MOST_CALLS_PER_S);
        let plan = Plan::new(&scenario, Path::new(""))?;
        Ok(Scene { plan, text: to_toml(&scenario)? })
    }

    /// Requests a second of each API at the height of the surge.
    pub fn offered(&self) -> impl Iterator<Item = f64> {
        self.plan.apis.iter().map(|api| api.offered.at(Nanos::ZERO))
    }

    /// Which API has this name.
    ///
    /// # Errors
    /// Where none has.
    pub fn api(&self, name: &str) -> Result<usize, String> {
        let place = self.plan.apis.iter().position(|api| api.name == name);
        place.ok_or_else(|| format!("there is no API {name}"))
    }

    /// The most that can be had of each API at the height of the surge, where some services have another number of instances.
    ///
    /// # Errors
    /// Where it is not found.
    pub fn optimum(&self, instances: &[(&str, u32)]) -> Result<Vec<f64>, String> {
        let capacity = self.plan.services.iter().map(|service| {
            let other = instances.iter().find(|(name, _)| *name == service.name);
            service.instance_per_s() * f64::from(other.map_or(service.instances, |&(_, n)| n))
        });
        let asked = self.plan.apis.iter().enumerate().map(|(place, api)| Asked {
            offered_per_s: api.offered.at(Nanos::ZERO),
            min_per_s: api.min_rate.unwrap_or(0.0),
            priority: api.priority,
            load: self.plan.load(place),
        });
        Best { capacity_per_s: capacity.collect(), apis: asked.collect() }.solve()
    }
}

/// Makes a fleet as much smaller as it must be.
fn fit(scenario: &mut Scenario, most_calls_per_s: f64) {
    let end = scenario.duration;
    let surge = |api: &Api| api.offered.at(end);
    let calls = |api: &Api| -> f64 {
        api.branches.iter().map(|b| b.share * b.stages.iter().flatten().count() as f64).sum()
    };
    let all: f64 = scenario.apis.iter().map(|api| surge(api) * calls(api)).sum();
    let factor = (most_calls_per_s / all).min(1.0);
    let mut demand = vec![0.0; scenario.services.len()];
    for api in &mut scenario.apis {
        let per_s = surge(api) * factor;
        for branch in &api.branches {
            for &(service, cost) in branch.stages.iter().flatten() {
                demand[service] += per_s * branch.share * cost;
            }
        }
        api.offered = Offered::constant(per_s);
        api.min_rate = api.min_rate.map(|rate| rate * factor);
    }
    for (service, demand) in scenario.services.iter_mut().zip(demand) {
        shrink(service, factor, demand);
    }
}

/// Fewer workers first, then fewer instances, then longer calls: a factor that is no whole number of workers still comes out exact. One that
/// has room for all that comes gets more of it rather than calls that take for ever.
fn shrink(service: &mut Service, factor: f64, demand: f64) {
    let ServiceTimes::Exponential { mean } = service.work.times else { return };
    let workers = f64::from(service.work.workers) * f64::from(service.instances);
    let per_s = factor * workers / mean.as_secs_f64();
    // Those that shall fail stay as many.
    if service.failures.is_empty() {
        let wanted = (per_s * mean.as_secs_f64()).round().max(1.0);
        service.instances = service.instances.min(wanted as u32).max(1);
        service.work.workers = (wanted / f64::from(service.instances)).round().max(1.0) as u32;
    }
    let workers = f64::from(service.work.workers) * f64::from(service.instances);
    let mut exact = Nanos::from_secs_f64(workers / per_s);
    if demand < 0.95 * per_s {
        exact = exact.min(LONGEST.max(mean));
    }
    service.work = Work { workers: service.work.workers, times: ServiceTimes::Exponential { mean: exact } };
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: &str = "duration = \"10s\"\n[service.wide]\nworkers = 4\nservice = { dist = \"exponential\", mean = \"10ms\" }\ninstances = 10\n\
        [service.narrow]\ncapacity = \"1000/s\"\n[service.idle]\nworkers = 1\nservice = { dist = \"exponential\", mean = \"50ms\" }\n\
        [api.one]\npath = [\"wide\", \"narrow\"]\noffered = [[\"0s\", \"1/s\"], [\"5s\", \"3000/s\"]]\nmin_rate = \"300/s\"\n\
        [api.two]\nbranches = [{ share = 0.5, path = [\"wide\"] }, { share = 0.5, path = [\"wide\", \"narrow\", \"idle\"] }]\noffered = \"0.1/s\"\n";

    #[test]
    fn a_fleet_shrinks_and_keeps_its_shape() {
        let mut scenario = parse::<Scenario>(FLEET, "").unwrap().0;
        let before = scenario.clone();
        fit(&mut scenario, 600.0);
        let plan = |scenario: &Scenario| Plan::new(scenario, Path::new("")).unwrap();
        let (before, after) = (plan(&before), plan(&scenario));
        let factor = after.apis[0].offered.at(Nanos::ZERO) / 3_000.0;
        assert!((factor - 0.1).abs() < 0.001, "{factor}");
        assert!((after.apis[0].min_rate.unwrap() - 300.0 * factor).abs() < 1e-6);
        let all = |plan: &Plan, service: usize| {
            plan.services[service].instance_per_s() * f64::from(plan.services[service].instances)
        };
        for service in [0, 1] {
            let ratio = all(&after, service) / all(&before, service);
            assert!((ratio / factor - 1.0).abs() < 1e-3, "{service}: {ratio}");
        }
        assert!(after.services[0].instances > 1);
        // Nobody needs all that it can do, and nobody shall wait for it.
        assert!(after.services[2].time.mean_ns() <= 50e6);
    }

    #[test]
    fn all_of_them_are_what_the_paper_says() {
        let demo = Scene::new(include_str!("../../../../../paper/topfull/trace-demo.toml"), |_| ()).unwrap();
        assert_eq!((demo.plan.services.len(), demo.plan.apis.len(), demo.plan.paths.len()), (127, 25, 43));
        let mut demand = vec![0.0; 127];
        for (api, offered) in demo.offered().enumerate() {
            demo.plan.load(api).iter().zip(&mut demand).for_each(|(load, sum)| *sum += load * offered);
        }
        let calls: f64 = demand.iter().sum();
        assert!(calls <= 1.001 * MOST_CALLS_PER_S, "{calls}");
        let can = |service: usize| {
            demo.plan.services[service].instance_per_s() * f64::from(demo.plan.services[service].instances)
        };
        assert_eq!((0..127).filter(|&service| demand[service] > can(service)).count(), 13);
        for text in [
            include_str!("../../../../../paper/topfull/online-boutique.toml"),
            include_str!("../../../../../paper/topfull/train-ticket.toml"),
            include_str!("../../../../../paper/topfull/train-ticket-pods-fail.toml"),
        ] {
            let scene = Scene::new(text, |_| ()).unwrap();
            assert!(scene.optimum(&[]).unwrap().iter().sum::<f64>() > 0.0);
            assert!(parse::<Scenario>(&scene.text, "").is_ok());
        }
    }
}
