//! What must hold of every simulated application, whatever happens in it and whoever intervenes.

use plimsoll_cancellation::{Controller, Kind, Order, Scene};
use plimsoll_core::rng::seeded;
use plimsoll_core::{Nanos, Rng};
use plimsoll_simulator::application::case::Comes;
use plimsoll_simulator::application::ran::Done;
use plimsoll_simulator::application::{Case, Fate, Ran, Record, run};
use rand::RngExt;

/// Three things contended at once, and something that disturbs all of them.
const CASE: &str = r#"
    [case]
    id = "all"
    title = "everything at once"
    length = "4s"
    warmup = "500ms"
    connections = 60
    backlog = 40

    [[resource]]
    name = "cpu"
    kind = "cpu"
    cores = 4

    [[resource]]
    name = "disk"
    kind = "io"
    bytes_per_s = "50MiB"
    stream_bytes_per_s = "20MiB"

    [[resource]]
    name = "workers"
    kind = "queue"
    permits = 12

    [[resource]]
    name = "table"
    kind = "lock"

    [[resource]]
    name = "log"
    kind = "lock"

    [[resource]]
    name = "pages"
    kind = "memory"
    pages = 200
    miss = { device = "disk", bytes = "16KiB", evict = "4KiB" }

    [[resource]]
    name = "heap"
    kind = "heap"
    units = 1000
    pause = "1ms"
    pause_per_unit = "5us"
    cpu = "cpu"

    [[class]]
    name = "request"
    rate = 300.0
    steps = [{ enter = "workers" }, { touch = "pages", pages = 3.0, within = [0, 150] }, { churn = "heap", units = 2.0 }, { share = "table" }, { cpu = "4ms", sigma = 0.5 }, { unlock = "table" }, { commit = "log", bytes = "4KiB" }, { leave = "workers" }]

    [[class]]
    name = "scan"
    trigger = true
    at = ["1s"]
    count = 2
    cancel_after = "5ms"
    rerunnable = true
    steps = [{ enter = "workers" }, { repeat = 200.0, steps = [{ touch = "pages", pages = 8.0, within = [200, 4000], in_order = true }, { keep = "heap", units = 2.0 }, { cpu = "1ms" }, { done = 8 }] }, { leave = "workers" }]

    [[class]]
    name = "alter"
    trigger = true
    at = ["2s"]
    background = true
    cancel_after = "5ms"
    steps = [{ lock = "table" }, { repeat = 100.0, steps = [{ cpu = "20ms" }] }, { unlock = "table" }]
    undo = [{ cpu = "30ms" }]
"#;

fn case() -> Case {
    Case::parse(CASE).unwrap()
}

/// Holds every scene against what must be true of it, and gives the orders of a script.
struct Watch<S> {
    script: S,
    last: Option<Nanos>,
    finished: u64,
}

impl<S: FnMut(Nanos, &Scene) -> Vec<Order>> Watch<S> {
    fn with(script: S) -> Watch<S> {
        Watch { script, last: None, finished: 0 }
    }
}

impl<S: FnMut(Nanos, &Scene) -> Vec<Order>> Controller for Watch<S> {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn look(&mut self, now: Nanos, scene: &Scene, orders: &mut Vec<Order>) {
        let elapsed = now.since(self.last.replace(now).unwrap_or(Nanos::ZERO)).0;
        self.finished += scene.completions();
        let tasks = scene.tasks.len() as u64;
        for (r, resource) in (0u32..).zip(&scene.resources) {
            let uses = || scene.uses.iter().filter(move |used| used.resource == r);
            let held: u64 = uses().map(|used| used.held).sum();
            match resource.kind {
                Kind::Queue => assert!(held <= resource.capacity, "{now}: {held} permits are taken"),
                Kind::Cpu => {
                    let most = resource.capacity * elapsed;
                    assert!(
                        resource.use_ns <= most + tasks,
                        "{now}: {} ns of CPU in {elapsed}",
                        resource.use_ns
                    );
                }
                _ => {}
            }
            if resource.kind.is_held() {
                let recent: u64 = uses().map(|used| used.recent).sum();
                assert!(recent <= resource.use_ns, "{now}: {recent} ns held by those who are left");
            }
            // Whoever ended since the last look may have waited, too, but nobody longer than since then.
            let waiting: u64 = uses().map(|used| used.waiting_ns.min(elapsed)).sum();
            if resource.kind != Kind::Memory {
                assert!(resource.delay_ns >= waiting, "{now}: {r}: {} < {waiting}", resource.delay_ns);
            }
        }
        assert!(scene.uses.is_sorted_by_key(|used| (used.task, used.resource)));
        for used in &scene.uses {
            assert!(used.held > 0 || used.held_ns == 0, "{now}: {used:?}");
            let age = now.0 - scene.tasks[used.task as usize].started_ns;
            assert!(
                used.held_ns <= age && used.waiting_ns <= age && used.recent <= used.used,
                "{now}: {used:?}"
            );
        }
        for task in scene.tasks.iter().filter(|task| task.total > 0) {
            assert!(task.done <= task.total, "{now}: {task:?}");
        }
        orders.extend((self.script)(now, scene));
    }
}

fn of_class(scene: &Scene, class: u32) -> Option<u64> {
    scene.tasks.iter().find(|task| task.class == class).map(|task| task.id)
}

/// Whoever intervenes, and however, at random.
#[test]
fn what_is_shown_is_consistent_whatever_is_ordered() {
    let case = case();
    for seed in 0..12 {
        let mut draws = seeded(seed, 9);
        let script = |_: Nanos, scene: &Scene| {
            let mut orders = Vec::new();
            for task in scene.tasks.iter().filter(|_| seed > 0).map(|task| task.id) {
                let one_in = |rng: &mut Rng, n: u32| rng.random_range(0..n) == 0;
                if one_in(&mut draws, 400) {
                    orders.push(Order::Cancel { task, resource: 0 });
                }
                if one_in(&mut draws, 50) {
                    orders.push(Order::Drop { task });
                }
                if one_in(&mut draws, 50) {
                    orders.push(Order::Delay { task, pause: Nanos::from_millis(draws.random_range(0..30)) });
                }
                if one_in(&mut draws, 300) {
                    let (resource, class) = (draws.random_range(0..8), draws.random_range(0..4));
                    orders.push(Order::Cap { resource, class, units: draws.random_range(1..1_000) });
                }
                if one_in(&mut draws, 100) {
                    orders.push(Order::Rerun { task: draws.random_range(0..task + 1) });
                }
            }
            orders
        };
        let mut watch = Watch::with(script);
        let ran = run(&case, seed, true, Some(&mut watch));
        let (finished, last) = (watch.finished, watch.last.unwrap());
        let answered = ran.records.iter().filter(|record| {
            record.fate == Fate::Done
                && record.ended <= last
                && !case.classes[record.class as usize].background
        });
        // What ended at the very moment of the last look may be on either side of it.
        assert!(finished.abs_diff(answered.count() as u64) <= 1, "seed {seed}");
        assert!(ran.records.iter().all(|record| record.ended >= record.came), "seed {seed}");
    }
}

#[test]
fn looking_changes_nothing_and_a_seed_is_a_run() {
    let case = case();
    for seed in 1..4 {
        let alone = run(&case, seed, true, None);
        let watched = run(&case, seed, true, Some(&mut Watch::with(|_, _| Vec::new())));
        assert_eq!(alone.records, watched.records, "seed {seed}");
        assert_eq!(run(&case, seed, true, None).records, alone.records, "seed {seed}");
        let calm = run(&case, seed, false, None);
        let requests = |ran: &Ran| -> Vec<Nanos> {
            ran.records.iter().filter(|record| record.class == 0).map(|record| record.came).collect()
        };
        assert_eq!(requests(&calm), requests(&alone), "seed {seed}");
        assert!(calm.records.iter().all(|record| record.class == 0));
        assert!(calm.p99_ms(&case) < alone.p99_ms(&case), "seed {seed}");
    }
}

#[test]
fn what_is_cancelled_puts_back_what_it_did_and_then_frees_what_it_holds() {
    let case = case();
    let alter = case.class("alter").unwrap();
    let order = |now: Nanos, scene: &Scene| {
        let late = now >= Nanos::from_millis(2_200);
        let task = of_class(scene, alter).filter(|_| late);
        task.map(|task| Order::Cancel { task, resource: 3 }).into_iter().collect()
    };
    let ran = run(&case, 1, true, Some(&mut Watch::with(order)));
    let record = ran.records.iter().find(|record| record.class == alter).unwrap();
    assert_eq!(record.fate, Fate::Cancelled);
    let after = record.ended - Nanos::from_millis(2_200);
    // 5 ms until it finds out, at most 20 ms of work times a few to the next point at which it looks, and 30 ms to put back.
    assert!(after >= Nanos::from_millis(35) && after <= Nanos::from_millis(400), "{after}");
    assert_eq!(ran.acts.iter().filter(|act| act.what == Done::Cancelled).count(), 1);
    let answered = |from: Nanos| {
        let done = |record: &&Record| record.class == 0 && record.fate == Fate::Done;
        ran.records.iter().filter(done).filter(|record| record.came >= from).count()
    };
    assert!(answered(Nanos::from_millis(2_700)) > 250, "the others go on");
}

#[test]
fn what_was_cancelled_is_run_again_or_given_up_as_ordered() {
    let case = case();
    let scan = case.class("scan").unwrap();
    let (mut told, mut reruns) = (Vec::new(), 0);
    let script = |now: Nanos, scene: &Scene| {
        let scans: Vec<_> = scene.tasks.iter().filter(|task| task.class == scan).copied().collect();
        if told.is_empty() {
            told = scans.iter().map(|task| task.id).collect();
            return told.iter().map(|&task| Order::Cancel { task, resource: 5 }).collect();
        }
        if now == Nanos::from_millis(1_500) {
            return vec![Order::Rerun { task: told[0] }, Order::Abandon { task: told[1] }];
        }
        if now > Nanos::from_millis(1_500) {
            assert!(scans.iter().all(|task| !task.cancellable && !task.rerunnable));
            reruns += scans.len();
            return scans.iter().map(|task| Order::Cancel { task: task.id, resource: 5 }).collect();
        }
        Vec::new()
    };
    // Without what stops everything else, so that it has time.
    let mut case = case.clone();
    case.classes[2].comes = Comes::At { times: vec![Nanos::from_millis(3_990)], count: 1 };
    let ran = run(&case, 1, true, Some(&mut Watch::with(script)));
    assert!(reruns > 0);
    let count = |what| ran.acts.iter().filter(|act| act.what == what).count();
    assert_eq!((count(Done::Cancelled), count(Done::Rerun), count(Done::Abandoned)), (2, 1, 1));
    let fates: Vec<Fate> =
        ran.records.iter().filter(|record| record.class == scan).map(|record| record.fate).collect();
    assert!(
        fates.contains(&Fate::Cancelled) && fates.iter().any(|&fate| fate != Fate::Cancelled),
        "{fates:?}"
    );
}

#[test]
fn only_who_waits_can_be_dropped() {
    let case = case();
    let everybody = |_: Nanos, scene: &Scene| {
        scene.tasks.iter().map(|task| Order::Drop { task: task.id }).collect::<Vec<_>>()
    };
    let ran = run(&case, 1, false, Some(&mut Watch::with(everybody)));
    let fates = |fate| ran.records.iter().filter(|record| record.fate == fate).count();
    assert!(fates(Fate::Done) > fates(Fate::Dropped), "{} are dropped", fates(Fate::Dropped));
    let mut held = Vec::new();
    let disturbed = |_: Nanos, scene: &Scene| {
        held.extend(scene.uses.iter().filter(|used| used.waiting_ns > 0).map(|used| used.task));
        everybody(Nanos::ZERO, scene)
    };
    let ran = run(&case, 1, true, Some(&mut Watch::with(disturbed)));
    assert!(ran.acts.iter().all(|act| act.what == Done::Dropped) && !held.is_empty());
}

#[test]
fn what_is_wrong_in_a_case_is_told_with_its_place() {
    let told = |from: &str, to: &str| {
        let text = CASE.replacen(from, to, 1);
        assert_ne!(text, CASE, "{from}");
        Case::parse(&text).unwrap_err()
    };
    for (from, to, says) in [
        (
            "enter = \"workers\"",
            "enter = \"worker\"",
            "class `request`: step 1: there is no resource `worker`",
        ),
        ("enter = \"workers\"", "enter = \"table\"", "class `request`: step 1: `table` is Lock and no Pool"),
        ("share = \"table\" }", "share = \"table\", unlock = \"table\" }", "step 4: does 2 things"),
        ("churn = \"heap\", units = 2.0", "churn = \"heap\"", "step 3: write units as well"),
        ("rate = 300.0", "rate = -1.0", "class `request`: rate is out of range"),
        ("rate = 300.0", "", "class `request`: write either rate or at"),
        ("permits = 12", "permits = 0", "resource `workers`: permits is 0"),
        ("bytes_per_s = \"50MiB\"", "bytes_per_s = \"50\"", "`50` is not a size"),
        ("name = \"log\"", "name = \"table\"", "resource `table` is there twice"),
        ("warmup = \"500ms\"", "warmup = \"5s\"", "a warmup shorter than its length"),
        ("within = [0, 150]", "within = [0, 0]", "step 2: within is out of range"),
        ("cores = 4", "cores = 4\ncolour = 1", "unknown field `colour`"),
    ] {
        let error = told(from, to);
        assert!(error.contains(says), "{from} -> {to}: {error}");
    }
}
