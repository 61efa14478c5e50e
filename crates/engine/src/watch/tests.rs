//! A source that says what it is told to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::Percentile;
use plimsoll_core::config::Rate;

use super::*;
use crate::event::What;

#[derive(Default)]
struct Scripted {
    warnings: Vec<&'static str>,
    starts_over: bool,
}

impl Source for Scripted {
    async fn look(&mut self, _: &mut Scene) -> Result<Nanos, Trouble> {
        Ok(clock::now())
    }

    fn judged(&mut self, _: State, _: bool) -> Duration {
        Duration::ZERO
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
        tasks.iter().map(|_| Words::default()).collect()
    }

    async fn cancel(&mut self, _: u64, _: u32, _: &str, _: u32) -> Sent {
        Sent::Gone
    }

    fn is_silent(&self) -> bool {
        true
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
    let promise = Promise {
        app: "main".to_owned(),
        name: "main".to_owned(),
        source: "scripted",
        slo: Slo::new([(Percentile::P99, Nanos::from_millis(50))]).unwrap(),
        mode: Mode::Enforce,
        budget: CancelBudget { interval: Nanos::ZERO, rate: Rate { per_s: 1.0 }, ratio: 1.0, burst: 1 },
        sentry: None,
    };
    let (board, _) = Board::new();
    let outlets = Outlets { events, board, recorder: None, sentry: None };
    let mut watch = Watch::new(Scripted::default(), promise, &outlets);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut looked = |warnings: &[&'static str], starts_over| {
        watch.source = Scripted { warnings: warnings.to_vec(), starts_over };
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
