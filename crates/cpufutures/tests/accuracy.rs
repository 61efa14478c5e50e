//! How near predictions come to what a scheduler does that knows nothing of them.

mod machine;

use machine::{Habit, Machine};
use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Allocations, CpuSet, Futures, Group, Host, Policy, Settings, TaskId};

const SECOND: Nanos = Nanos::from_secs(1);
const PERIOD: Nanos = Nanos::from_millis(100);

struct Observed {
    machine: Machine,
    futures: Futures,
}

impl Observed {
    fn new(host: Host, seed: u64) -> Observed {
        Observed { machine: Machine::new(host, seed), futures: Futures::new(Settings::default()) }
    }

    fn run(&mut self, time: Nanos) {
        for _ in 0..time.0 / PERIOD.0 {
            self.machine.run(PERIOD);
            self.sample();
        }
    }

    fn sample(&mut self) {
        self.futures.sample(self.machine.now(), &self.machine.host, &self.machine.samples());
    }

    fn of(&self, id: TaskId) -> Allocations {
        self.futures.of(&id).expect("a thread that lives")
    }

    fn ran_ns(&self, id: TaskId) -> f64 {
        self.machine.samples().iter().find(|sample| sample.id == id).map_or(0, |sample| sample.run_ns) as f64
    }

    /// What was predicted of each and what it then got, in ms/s.
    fn next_second(&mut self, ids: &[TaskId]) -> Vec<(f64, f64)> {
        let before: Vec<(f64, f64)> =
            ids.iter().map(|&id| (self.of(id).predicted_ms_per_s, self.ran_ns(id))).collect();
        self.run(SECOND);
        before
            .iter()
            .zip(ids)
            .map(|(&(predicted, ran), &id)| (predicted, (self.ran_ns(id) - ran) / 1e6))
            .collect()
    }
}

/// How far off, relative to what was got; below 5 ms/s relative to that.
fn error((predicted, got): (f64, f64)) -> f64 {
    (predicted - got).abs() / got.max(5.0)
}

fn quantile(errors: &mut [f64], q: f64) -> f64 {
    errors.sort_unstable_by(f64::total_cmp);
    errors[((errors.len() - 1) as f64 * q).round() as usize]
}

const HABITS: [Habit; 4] = [
    Habit::Hog,
    Habit::Duty(3_000.0, 7_000.0),
    Habit::Duty(6_000.0, 4_000.0),
    Habit::Duty(30_000.0, 70_000.0),
];

/// What each gets where it is alone, in ms/s.
fn alone(habit: Habit) -> f64 {
    let mut observed = Observed::new(Host::plain(1), 1);
    let id = observed.machine.start(habit, 0, 0, 0);
    observed.run(Nanos::from_secs(20));
    observed.ran_ns(id) / 20e6
}

#[test]
fn steady_loads() {
    let (mut errors, mut wanted) = (Vec::new(), Vec::new());
    for cpus in [1, 2] {
        for (others, seed) in [1, 4, 16].into_iter().zip(100..) {
            for habit in HABITS {
                for other in HABITS {
                    let mut observed = Observed::new(Host::plain(cpus), seed);
                    let target = observed.machine.start(habit, 0, 0, 0);
                    for _ in 0..others {
                        observed.machine.start(other, 0, 0, 0);
                    }
                    observed.run(Nanos::from_secs(6));
                    let mut desired = 0.0;
                    for _ in 0..4 {
                        desired += observed.of(target).desired_ms_per_s / 4.0;
                        errors.push(error(observed.next_second(&[target])[0]));
                    }
                    let truth = alone(habit);
                    wanted.push((desired / truth - 1.0).abs());
                    if (desired / truth - 1.0).abs() > 0.05 {
                        println!(
                            "seed {seed}, {cpus} CPUs, {habit:?} beside {others} {other:?}: desired {desired:.0} for {truth:.0}"
                        );
                    }
                }
            }
        }
    }
    let [median, p95] = [0.5, 0.95].map(|q| quantile(&mut errors, q));
    let [desired_median, desired_p95] = [0.5, 0.95].map(|q| quantile(&mut wanted, q));
    println!(
        "predicted: median {median:.4}, p95 {p95:.4}; desired: median {desired_median:.4}, p95 {desired_p95:.4}"
    );
    assert!(median <= 0.05 && p95 <= 0.15, "median {median}, p95 {p95}");
    assert!(desired_median <= 0.03 && desired_p95 <= 0.05, "median {desired_median}, p95 {desired_p95}");
}

/// The threads beside the one that is looked at: habit, nice value, group and set of CPUs of each.
type Others = Vec<(Habit, i8, u32, u32)>;
/// What happens at the step, by name.
type Event = (&'static str, fn(&mut Observed, TaskId, &[TaskId]));

fn after_step(
    host: Host,
    setup: &[(Habit, i8, u32, u32)],
    habit: Habit,
    event: Event,
    seed: u64,
) -> Vec<f64> {
    let mut observed = Observed::new(host, seed);
    let target = observed.machine.start(habit, 0, 0, 0);
    let others: Vec<TaskId> = setup
        .iter()
        .map(|&(habit, nice, group, set)| observed.machine.start(habit, nice, group, set))
        .collect();
    observed.run(Nanos::from_secs(4));
    // Not just when a sample is taken.
    observed.machine.run(Nanos::from_millis(seed % 100));
    event.1(&mut observed, target, &others);
    observed.machine.run(Nanos::from_millis(100 - seed % 100));
    observed.sample();
    observed.run(Nanos::from_millis(300));
    let found = observed.next_second(&[target]);
    let off = error(found[0]);
    println!("seed {seed}, {}, {habit:?}, {} others: {off:.3} {found:.1?}", event.0, others.len());
    vec![off]
}

fn come(observed: &mut Observed, hogs: usize) {
    for _ in 0..hogs {
        observed.machine.start(Habit::Hog, 0, 0, 0);
    }
}

#[test]
fn after_a_step() {
    let hog = |n: usize| vec![(Habit::Hog, 0, 0, 0); n];
    let asleep = |n: usize| vec![(Habit::Asleep, 0, 0, 0); n];
    let events: [(Event, Others); 7] = [
        (("one comes", |o, _, _| come(o, 1)), hog(0)),
        (("one more comes", |o, _, _| come(o, 1)), hog(2)),
        (("four come", |o, _, _| come(o, 4)), hog(1)),
        (("one goes", |o, _, others| o.machine.stop(others[0])), hog(2)),
        (("all go", |o, _, others| others.iter().for_each(|&id| o.machine.stop(id))), hog(6)),
        (
            ("two wake up", |o, _, others| others.iter().for_each(|&id| o.machine.change(id, Habit::Hog))),
            asleep(2),
        ),
        (
            ("nicer", |o, target, _| {
                o.machine.renice(target, Policy::Normal, 5);
                o.futures.reweigh(&target, Policy::Normal, 5);
            }),
            hog(3),
        ),
    ];
    let mut errors = Vec::new();
    for cpus in [1, 2] {
        for (event, setup) in &events {
            for habit in HABITS {
                for seed in [3, 25, 50, 77] {
                    errors.extend(after_step(Host::plain(cpus), setup, habit, *event, seed));
                }
            }
        }
    }
    let [median, p90, p95] = [0.5, 0.9, 0.95].map(|q| quantile(&mut errors, q));
    println!("after a step: median {median:.4}, p90 {p90:.4}, p95 {p95:.4}");
    assert!(median <= 0.05 && p90 <= 0.10, "median {median}, p90 {p90}");
}

#[test]
fn groups_and_affinities() {
    let mut errors = Vec::new();
    let group = |weight| Group { parent: 0, weight, idle: false, quota_cpus: None };
    for (seed, cpus) in [(11, 1), (12, 2), (13, 4)] {
        let mut host = Host::plain(cpus);
        host.groups.extend([group(1024), group(2048)]);
        host.sets.push(CpuSet::first(1));
        let mut observed = Observed::new(host, seed);
        let ids: Vec<TaskId> = [
            (Habit::Hog, 1, 0),
            (Habit::Hog, 1, 0),
            (Habit::Hog, 2, 0),
            (Habit::Hog, 0, 0),
            (Habit::Duty(3e3, 7e3), 2, 1),
        ]
        .into_iter()
        .map(|(habit, group, set)| observed.machine.start(habit, 0, group, set))
        .collect();
        observed.run(Nanos::from_secs(5));
        errors.extend(observed.next_second(&ids).into_iter().map(error));
        let found = observed.next_second(&ids);
        println!("seed {seed}, {cpus} CPUs, steady: {found:.1?}");
        observed.machine.host.groups[1].weight = 8192;
        observed.run(Nanos::from_millis(300));
        let found = observed.next_second(&ids);
        println!("seed {seed}, {cpus} CPUs, weight changed: {found:.1?}");
        errors.extend(found.into_iter().map(error));
    }
    let [median, p90] = [0.5, 0.9].map(|q| quantile(&mut errors, q));
    println!("groups: median {median:.4}, p90 {p90:.4}");
    assert!(median <= 0.05 && p90 <= 0.2, "median {median}, p90 {p90}");
}
