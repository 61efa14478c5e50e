//! What one look costs when there is most to see: 4,096 tasks, each with an account of all 64 resources, all of them contended and
//! many of the tasks to blame. CPU time of the one thread; time comes in as an argument.
//!
//! ```text
//! cargo bench -p plimsoll-cancellation --bench look             # a line a case: name, median and quartiles in us
//! cargo bench -p plimsoll-cancellation --bench look -- --json
//! ```

use std::hint::black_box;

use plimsoll_cancellation::{Kind, Reliever, Resource, Scene, Task, Terms, Use};
use plimsoll_core::{Nanos, Percentile, Slo};
use rustix::time::{ClockId, clock_gettime};

const LOOK: Nanos = Nanos::from_millis(20);

/// CPU time of this thread, in ns.
#[allow(clippy::disallowed_methods)] // a benchmark measures time
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Every task has taken something of every resource just now.
fn scene(tasks: u32, resources: u32, now: Nanos) -> Scene {
    let mut scene = Scene::default();
    for r in 0..resources {
        let kind = Kind::ALL[r as usize % Kind::ALL.len()];
        scene.resources.push(Resource {
            gets: 100_000,
            slows: 50_000,
            delay_ns: u64::from(tasks) * LOOK.0,
            use_ns: u64::from(tasks) * LOOK.0 / 2,
            ended: 10,
            ended_ns: 10_000_000,
            ..Resource::quiet(kind, 1)
        });
    }
    for t in 0..tasks {
        let age_ns = 1_000_000 * (1 + u64::from(t));
        scene.tasks.push(Task {
            id: u64::from(t),
            class: 0,
            started_ns: now.0.saturating_sub(age_ns),
            deadline_ns: 0,
            done: u64::from(t % 97),
            total: 100,
            request: true,
            cancellable: t % 8 != 0,
            rerunnable: false,
        });
        for r in 0..resources {
            let used = age_ns / u64::from(1 + (t * 31 + r * 17) % 29);
            let recent = used.min(LOOK.0);
            let (task, resource, held) = (t, r, 1 + used % 50);
            scene.uses.push(Use { task, resource, held, held_ns: used, used, recent, waiting_ns: 0 });
        }
    }
    scene
}

/// Median and quartiles of a look, in us.
fn measure(tasks: u32, resources: u32, looks: u32) -> [f64; 3] {
    let slo = Slo::new([(Percentile::P99, Nanos::from_millis(50))]).expect("an objective");
    let mut reliever = Reliever::new(Terms::new(slo));
    let calm = Scene { finished: vec![(1_000_000, 10)], ..scene(0, resources, LOOK) };
    let mut now = Nanos::from_secs(10);
    for _ in 0..100 {
        now += LOOK;
        reliever.look(now, &calm);
    }
    let scene = scene(tasks, resources, now);
    let mut blamed = 0;
    let mut us: Vec<f64> = (0..looks)
        .map(|_| {
            now += LOOK;
            let before = cpu_ns();
            blamed += black_box(reliever.look(now, black_box(&scene))).candidates.len();
            (cpu_ns() - before) as f64 / 1e3
        })
        .collect();
    assert!(blamed > 0, "nobody was to blame, so not all of a look was measured");
    us.sort_unstable_by(f64::total_cmp);
    [us.len() / 2, us.len() / 4, us.len() * 3 / 4].map(|at| us[at])
}

fn main() {
    let timed = std::env::args().any(|a| a == "--bench");
    let json = std::env::args().any(|a| a == "--json");
    for (tasks, resources) in [(64, 8), (512, 64), (4_096, 8), (4_096, 64)] {
        let [median, low, high] = measure(tasks, resources, if timed { 200 } else { 5 });
        if json {
            println!(
                "{{\"what\":\"look\",\"tasks\":{tasks},\"resources\":{resources},\"p50_us\":{median},\"p25_us\":{low},\"p75_us\":{high}}}"
            );
        } else {
            println!("{tasks:>6} tasks x {resources:>2} resources: {median:8.1} us [{low:.1}, {high:.1}]");
        }
    }
}
