//! What a sample and a query cost: hosts of 1,000 and 20,000 threads of which a part is active, in one group and in a hundred. CPU time of
//! the one thread; time comes in as an argument.
//!
//! ```text
//! cargo bench -p plimsoll-cpufutures --bench futures             # a line a case: median and quartiles in us
//! cargo bench -p plimsoll-cpufutures --bench futures -- --json
//! ```

use std::hint::black_box;

use plimsoll_core::Nanos;
use plimsoll_cpufutures::{Futures, Group, Host, Policy, Settings, TaskId, TaskSample};
use rustix::time::{ClockId, clock_gettime};

const PERIOD: Nanos = Nanos::from_millis(100);

/// CPU time of this thread, in ns.
#[allow(clippy::disallowed_methods)] // a benchmark measures time
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Median and quartiles of what `f` takes, in us.
fn measure(times: usize, mut f: impl FnMut(usize)) -> [f64; 3] {
    let mut us: Vec<f64> = (0..times)
        .map(|time| {
            let before = cpu_ns();
            f(time);
            (cpu_ns() - before) as f64 / 1e3
        })
        .collect();
    us.sort_unstable_by(f64::total_cmp);
    [us.len() / 2, us.len() / 4, us.len() * 3 / 4].map(|at| us[at])
}

fn main() {
    let timed = std::env::args().any(|a| a == "--bench");
    let json = std::env::args().any(|a| a == "--json");
    let times = if timed { 200 } else { 5 };
    let say = |what: &str, tasks: usize, active: usize, groups: usize, [median, low, high]: [f64; 3]| {
        if json {
            println!(
                "{{\"what\":\"{what}\",\"tasks\":{tasks},\"active\":{active},\"groups\":{groups},\"p50_us\":{median},\"p25_us\":{low},\"p75_us\":{high}}}"
            );
        } else {
            println!(
                "{what:>9}, {tasks:>6} tasks, {active:>5} active, {groups:>3} groups: {median:8.2} us [{low:.2}, {high:.2}]"
            );
        }
    };
    for (tasks, active, groups) in
        [(1_000, 30, 1), (1_000, 100, 100), (1_000, 1_000, 1), (20_000, 200, 100), (20_000, 20_000, 100)]
    {
        let mut host = Host::plain(8);
        host.groups.extend((1..groups).map(|_| Group { quota_cpus: None, ..Group::ROOT }));
        let mut futures = Futures::new(Settings::default());
        let mut samples: Vec<TaskSample> = (0..tasks)
            .map(|at| TaskSample {
                id: TaskId { pid: at as u32 / 8, tid: at as u32, started: 1 },
                run_ns: 0,
                wait_ns: 0,
                born: None,
                policy: Policy::Normal,
                nice: (at % 7) as i8,
                group: (at % groups) as u32,
                cpus: 0,
            })
            .collect();
        let mut now = Nanos::ZERO;
        let mut step = |futures: &mut Futures, _: usize| {
            now += PERIOD;
            for (at, sample) in samples.iter_mut().take(active).enumerate() {
                sample.run_ns += 8 * PERIOD.0 / active as u64;
                sample.wait_ns += (at as u64 % 90) * PERIOD.0 / 100;
            }
            futures.sample(now, &host, black_box(&samples));
        };
        (0..20).for_each(|at| step(&mut futures, at));
        say("sample", tasks, active, groups, measure(times, |at| step(&mut futures, at)));
        let id = |at: usize| TaskId { pid: at as u32 / 8, tid: at as u32, started: 1 };
        let query = measure(times, |time| {
            for at in 0..100 {
                black_box(futures.of(&id((97 * at + time) % tasks)).expect("one that lives"));
            }
        });
        say("query", tasks, active, groups, query.map(|us| us / 100.0));
        let takers = measure(times.min(50), |time| drop(black_box(futures.takers(&id(time % active), 5))));
        say("takers", tasks, active, groups, takers);
        let nice = |time: usize| -((time % 20) as i8);
        let reweigh = measure(times.min(50), |time| {
            assert!(futures.reweigh(&id(0), Policy::Normal, nice(time)));
        });
        say("reweigh", tasks, active, groups, reweigh);
    }
}
