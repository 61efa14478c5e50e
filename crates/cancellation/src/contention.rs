//! How much of the requests' time is lost to each resource (section 3.4; normalised as in section 3.5: `C_r = D_r / T_exec`).
//!
//! Who waits for a worker waits for what the workers wait for. Behind a lock that somebody holds, all workers end up waiting for
//! the lock and all other requests for a worker, so that nearly all time is lost in a queue whose holders are victims, too. So what is
//! lost to a queue counts for the resources that its holders lose their time to, in that part. The paper takes each resource by itself.
use plimsoll_core::Nanos;

use crate::fading::{self, Pair};
use crate::scene::{Kind, Resource, Scene};

/// How long what happened counts: an overload that began 300 ms ago is most of what is seen.
pub const SPAN: Nanos = Nanos::from_millis(200);

#[derive(Clone, Copy, Debug, Default)]
struct Pressure {
    delay_ns: f64,
    use_ns: f64,
    /// Units taken, units evicted.
    evictions: Pair,
}

/// Contention of every resource, as it was over the last [`SPAN`].
#[derive(Debug, Default)]
pub struct Contention {
    pressures: Vec<Pressure>,
    exec_ns: f64,
    /// The sum of the ages of the requests that ran at the last look, in ns.
    ages_ns: f64,
    measured: Vec<f64>,
    levels: Vec<f64>,
}

impl Contention {
    /// Takes in what happened in the last `elapsed`.
    pub fn look(&mut self, now: Nanos, elapsed: Nanos, scene: &Scene) {
        let factor = fading::factor(elapsed, SPAN);
        self.exec_ns = self.exec_ns * factor + self.executed(now, elapsed, scene);
        self.pressures.resize(self.pressures.len().max(scene.resources.len()), Pressure::default());
        for (pressure, resource) in self.pressures.iter_mut().zip(&scene.resources) {
            pressure.delay_ns = pressure.delay_ns * factor + resource.delay_ns as f64;
            pressure.use_ns = pressure.use_ns * factor + resource.use_ns as f64;
            pressure.evictions.add(factor, resource.gets as f64, resource.slows as f64);
        }
        self.measured.clear();
        let exec_ns = self.exec_ns.max(1.0);
        let lost = |(resource, pressure): (&Resource, &Pressure)| pressure.lost_ns(resource) / exec_ns;
        self.measured.extend(scene.resources.iter().zip(&self.pressures).map(lost));
        self.attribute(&scene.resources);
    }

    /// Moves what is lost to queues to what their holders lose their time to.
    fn attribute(&mut self, resources: &[Resource]) {
        self.levels.clone_from(&self.measured);
        let exec_ns = self.exec_ns.max(1.0);
        let behind = |index: &usize| resources[*index].kind != Kind::Queue;
        let lost_behind: f64 = (0..resources.len()).filter(behind).map(|i| self.measured[i]).sum();
        if lost_behind <= 0.0 {
            return;
        }
        for (queue, _) in resources.iter().enumerate().filter(|(_, r)| r.kind == Kind::Queue) {
            let held = self.pressures[queue].use_ns / exec_ns;
            let part = if held > 0.0 { (lost_behind / held).min(1.0) } else { 0.0 };
            let moved = self.measured[queue] * part;
            self.levels[queue] -= moved;
            for index in (0..resources.len()).filter(behind) {
                self.levels[index] += moved * self.measured[index] / lost_behind;
            }
        }
    }

    /// For how long requests ran since the last look, all of them together. What ended says how long it took, what runs how old
    /// it is: the difference of two looks is exact, however short the requests are.
    fn executed(&mut self, now: Nanos, elapsed: Nanos, scene: &Scene) -> f64 {
        let ages = || scene.tasks.iter().filter(|t| t.request).map(|t| now.0.saturating_sub(t.started_ns));
        let ages_ns: f64 = ages().map(|age| age as f64).sum();
        let executed = scene.finished_ns as f64 + ages_ns - self.ages_ns;
        self.ages_ns = ages_ns;
        // A source that cannot see every end still sees who is there.
        let seen: f64 = ages().map(|age| age.min(elapsed.0) as f64).sum();
        executed.max(seen)
    }

    /// The contention of each resource of the last scene, 0 where nothing is lost. About 1 where all time is.
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// For how long requests ran lately, all of them together, in ns: levels are parts of this.
    pub fn ran_ns(&self) -> f64 {
        self.exec_ns.max(1.0)
    }

    /// The same with what is lost to a queue left there, as the paper has it.
    pub fn measured(&self) -> &[f64] {
        &self.measured
    }
}

impl Pressure {
    /// Time lost, in ns. Of MEMORY, the time of evictions weighted by how often taking a unit meant one.
    fn lost_ns(&self, resource: &Resource) -> f64 {
        match resource.kind {
            Kind::Memory => self.delay_ns * self.evictions.ratio().min(1.0),
            Kind::Lock | Kind::Queue | Kind::Cpu | Kind::Io => self.delay_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at_ms, request};

    fn level(resource: Resource, latencies_ms: &[u64]) -> f64 {
        let finished: Vec<_> = latencies_ms.iter().map(|ms| (ms * 1_000_000, 1)).collect();
        let finished_ns = finished.iter().map(|&(ns, _)| ns).sum();
        let scene = Scene { resources: vec![resource], finished, finished_ns, ..Scene::default() };
        let mut contention = Contention::default();
        contention.look(at_ms(100), Nanos::from_millis(100), &scene);
        contention.levels()[0]
    }

    #[test]
    fn it_is_the_part_of_the_execution_time_that_is_lost() {
        let waits = |kind| Resource { delay_ns: 30_000_000, ..Resource::quiet(kind, 1) };
        assert_eq!(level(waits(Kind::Lock), &[40, 60]), 0.3);
        assert_eq!(level(waits(Kind::Queue), &[40, 60]), 0.3);
        let evicts = |slows| Resource { gets: 100, slows, ..waits(Kind::Memory) };
        assert_eq!(level(evicts(50), &[40, 60]), 0.15, "weighted by the share of evictions");
        assert_eq!(level(evicts(1_000), &[40, 60]), 0.3, "never by more than one");
    }

    #[test]
    fn a_request_that_never_ends_counts_as_it_runs() {
        let mut contention = Contention::default();
        for ms in (20..=1_000).step_by(20) {
            let lost = Resource { delay_ns: 10_000_000, ..Resource::quiet(Kind::Lock, 1) };
            let scene = Scene { tasks: vec![request(1, 0)], resources: vec![lost], ..Scene::default() };
            contention.look(at_ms(ms), Nanos::from_millis(20), &scene);
        }
        assert!((contention.levels()[0] - 0.5).abs() < 1e-9, "{:?}", contention.levels());
    }

    #[test]
    fn who_waits_for_a_worker_waits_for_what_the_workers_wait_for() {
        let look = |lock_ns: u64| {
            let workers =
                Resource { delay_ns: 60_000_000, use_ns: 80_000_000, ..Resource::quiet(Kind::Queue, 4) };
            let lock = Resource { delay_ns: lock_ns, ..Resource::quiet(Kind::Lock, 1) };
            let disk = Resource { delay_ns: 10_000_000, ..Resource::quiet(Kind::Io, 0) };
            let resources = vec![workers, lock, disk];
            let scene = Scene {
                resources,
                finished: vec![(160_000_000, 1)],
                finished_ns: 160_000_000,
                ..Scene::default()
            };
            let mut contention = Contention::default();
            contention.look(at_ms(20), Nanos::from_millis(20), &scene);
            let percent =
                |levels: &[f64]| levels.iter().map(|l| (l * 1e3).round() / 10.0).collect::<Vec<_>>();
            (percent(contention.measured()), percent(contention.levels()))
        };
        // All of the 80 ms that workers were held they waited, seven eighths of it for the lock.
        assert_eq!(look(70_000_000), (vec![37.5, 43.8, 6.3], vec![0.0, 76.6, 10.9]));
        // A quarter of it they waited, half of that for the lock: three quarters of what is lost to the queue stay there.
        assert_eq!(look(10_000_000), (vec![37.5, 6.3, 6.3], vec![28.1, 10.9, 10.9]));
    }

    #[test]
    fn what_is_over_fades() {
        let mut contention = Contention::default();
        let busy = Resource { delay_ns: 10_000_000, ..Resource::quiet(Kind::Lock, 1) };
        for ms in (20..=3_000).step_by(20) {
            let resource = if ms <= 1_000 { busy } else { Resource::quiet(Kind::Lock, 1) };
            let scene = Scene {
                resources: vec![resource],
                finished: vec![(20_000_000, 1)],
                finished_ns: 20_000_000,
                ..Scene::default()
            };
            contention.look(at_ms(ms), Nanos::from_millis(20), &scene);
        }
        assert!(contention.levels()[0] < 0.001, "{:?}", contention.levels());
    }
}
