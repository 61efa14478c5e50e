//! A source that says what it is told to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_cancellation::{Resource, Task, Use};
use plimsoll_core::config::{CancelBudget, Rate};
use plimsoll_core::{Percentile, Slo};

use super::*;
use crate::event::What;

#[derive(Default)]
struct Scripted {
    warnings: Vec<&'static str>,
    starts_over: bool,
    /// What it was asked.
    asked: Vec<String>,
}

impl Source for Scripted {
    async fn look(&mut self, _: &mut Scene) -> Result<Nanos, Trouble> {
        Ok(clock::now())
    }

    fn judged(&mut self, _: State, _: bool) -> Duration {
        Duration::from_secs(1)
    }

    fn warnings(&mut self) -> Vec<String> {
        self.warnings.drain(..).map(str::to_owned).collect()
    }

    fn starts_over(&mut self) -> bool {
        std::mem::take(&mut self.starts_over)
    }

    fn resource(&self, index: u32) -> String {
        format!("resource {index}")
    }

    async fn words(&mut self, tasks: &[u64]) -> Vec<Words> {
        self.asked.push(format!("who is {tasks:?}"));
        tasks.iter().map(|_| Words::default()).collect()
    }

    async fn cancel(&mut self, task: u64, _: u32, _: &str, _: u32) -> Sent {
        self.asked.push(format!("end {task}"));
        Sent::Told
    }

    fn is_silent(&self) -> bool {
        true
    }
}

fn promise() -> Promise {
    Promise {
        app: "main".to_owned(),
        name: "main".to_owned(),
        source: "scripted",
        slo: Slo::new([(Percentile::P99, Nanos::from_millis(50))]).unwrap(),
        mode: Mode::Enforce,
        budget: CancelBudget { interval: Nanos::ZERO, rate: Rate { per_s: 1.0 }, ratio: 1.0, burst: 1 },
        sentry: None,
    }
}

#[test]
fn warnings_that_hold_no_more_are_taken_back_and_those_that_hold_again_are_not_told_again() {
    let told = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&told);
    let is_error = format!("\"{}\"", serde_json::to_value(What::AdapterError).unwrap().as_str().unwrap());
    let (events, writer) = Events::call(move |line| {
        assert!(line.contains(&is_error), "{line}");
        counted.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    let promise = promise();
    let (board, _) = Board::new();
    let outlets = Outlets { events, board, recorder: None, sentry: None };
    let mut watch = Watch::new(Scripted::default(), promise, &outlets);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut looked = |warnings: &[&'static str], starts_over| {
        watch.source = Scripted { warnings: warnings.to_vec(), starts_over, ..Scripted::default() };
        let now = clock::now();
        runtime.block_on(watch.looked(now, now));
        watch.status.warnings.clone()
    };
    assert_eq!(looked(&["no right", "no view"], true), ["no right", "no view"]);
    assert_eq!(looked(&[], false), ["no right", "no view"], "they still hold");
    assert_eq!(looked(&["no right"], false), ["no right", "no view"], "told once");
    // Another connection: one right has been granted.
    assert_eq!(looked(&["no view"], true), ["no view"]);
    assert!(looked(&[], true).is_empty());
    assert_eq!(looked(&["no right"], false), ["no right"], "taken away again, which is news");
    drop((watch, outlets));
    writer.finish();
    assert_eq!(told.load(Ordering::Relaxed), 3);
}

/// 100 ms of a pool of two workers, and who has had them since, or whether requests wait for them.
fn scene(now_ms: u64, since_ms: Option<u64>) -> Scene {
    let ns = |ms: u64| ms * 1_000_000;
    let quiet = Resource::quiet(Kind::Queue, 2);
    let Some(since_ms) = since_ms else {
        let done = Resource { gets: 10, ended: 10, ended_ns: ns(10), use_ns: ns(10), ..quiet };
        return Scene { resources: vec![done], finished: vec![(ns(1), 10)], ..Scene::default() };
    };
    let task = |id, request| Task {
        id,
        class: 0,
        started_ns: ns(since_ms),
        deadline_ns: 0,
        done: 0,
        total: 0,
        request,
        cancellable: true,
        rerunnable: false,
    };
    let mut scene = Scene {
        resources: vec![Resource { delay_ns: ns(2_000), use_ns: ns(200), ..quiet }],
        ..Scene::default()
    };
    for id in 0..22 {
        let has_one = id < 2;
        scene.tasks.push(task(id, !has_one));
        let (held_ns, waiting_ns) =
            if has_one { (ns(now_ms - since_ms), 0) } else { (0, ns(now_ms - since_ms)) };
        let recent = held_ns.min(ns(100));
        scene.uses.push(Use {
            task: id as u32,
            held: u64::from(has_one),
            held_ns,
            used: held_ns,
            recent,
            waiting_ns,
            resource: 0,
        });
    }
    scene
}

#[test]
fn who_is_to_blame_is_told_to_end_before_anybody_else_is_asked_about_and_soon_looked_at() {
    let (events, writer) = Events::call(|_| {}).unwrap();
    let (board, _) = Board::new();
    let outlets = Outlets { events, board, recorder: None, sentry: None };
    let budget = CancelBudget { interval: Nanos::from_millis(40), ..promise().budget };
    let mut watch = Watch::new(Scripted::default(), Promise { budget, ..promise() }, &outlets);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut look = |now_ms: u64, since_ms| {
        watch.scene = scene(now_ms, since_ms);
        let wait = runtime.block_on(watch.looked(Nanos::from_millis(now_ms), clock::now()));
        (wait, std::mem::take(&mut watch.source.asked))
    };
    for at in 1..20 {
        assert_eq!(look(100 * at, None), (Duration::from_secs(1), vec![]));
    }
    let (wait, asked) =
        (20..30).map(|at| look(100 * at, Some(1_900))).find(|(_, asked)| !asked.is_empty()).unwrap();
    assert_eq!(asked, ["who is [1]", "end 1", "who is [0]"]);
    assert_eq!(wait, Duration::from_millis(40));
    drop((watch, outlets));
    writer.finish();
}
