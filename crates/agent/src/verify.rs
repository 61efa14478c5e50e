//! Shows a [record](crate::record) to fresh relievers, which are the very objects that the simulator drives.

use std::path::Path;

use plimsoll_cancellation::decision::Outcome;
use plimsoll_cancellation::{Reliever, Terms, budget};
use plimsoll_core::{Nanos, Slo, Statistic};
use plimsoll_engine::tape;
use serde::Serialize;

use crate::record::{FORMAT, Line, exact};

/// What a record held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// What was watched.
    pub watches: u32,
    /// Scenes that were shown.
    pub looks: u64,
    /// Tasks that were cancelled, or would have been.
    pub cancelled: u64,
}

/// Whether a file is a record of the agent's.
pub fn is_ours(path: &Path) -> bool {
    tape::begins_with(path, FORMAT)
}

/// Shows a record to fresh relievers.
///
/// # Errors
/// Where it cannot be read, or at the first decision that differs: its line, what was recorded and what was decided now.
pub fn verify(path: &Path) -> Result<Summary, String> {
    let (mut relievers, mut summary) = (Vec::new(), Summary::default());
    tape::read(path, |line| put(line, &mut relievers, &mut summary))?;
    Ok(summary)
}

fn put(line: Line, relievers: &mut Vec<Reliever>, summary: &mut Summary) -> Result<(), String> {
    match line {
        Line::Record { format } if format == FORMAT => {}
        Line::Record { format } => return Err(format!("{format} is another format than {FORMAT}")),
        Line::Watch { watch, slo, interval_ns, rate_per_s, ratio, burst, .. } => {
            if watch as usize != relievers.len() {
                return Err(format!("watch {watch} out of order"));
            }
            let target = |(statistic, ns): (String, u64)| Ok((statistic.parse::<Statistic>()?, Nanos(ns)));
            let targets = slo.into_iter().map(target).collect::<Result<Vec<_>, String>>()?;
            let mut terms = Terms::new(Slo::new(targets)?);
            terms.budget = budget::Terms {
                interval: Nanos(interval_ns),
                rate_per_s: f64::from_bits(rate_per_s),
                ratio: f64::from_bits(ratio),
                burst: f64::from(burst),
            };
            relievers.push(Reliever::new(terms));
            summary.watches += 1;
        }
        Line::Look { watch, now, scene, decision } => {
            let reliever = relievers.get_mut(watch as usize).ok_or_else(|| format!("no watch {watch}"))?;
            let decided = reliever.look(Nanos(now), &scene);
            summary.looks += 1;
            summary.cancelled += u64::from(decided.cancel.is_some());
            let decided = exact(decided);
            if decided != decision {
                return Err(format!("recorded {decision}, decided {decided}"));
            }
        }
        Line::Outcome { watch, task, outcome } => {
            let reliever = relievers.get_mut(watch as usize).ok_or_else(|| format!("no watch {watch}"))?;
            let outcome = match outcome.as_str() {
                "cancelled" => Outcome::Cancelled,
                "finished" => Outcome::Finished,
                "failed" => Outcome::Failed,
                other => return Err(format!("{other} is no outcome")),
            };
            reliever.outcome(task, outcome);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use plimsoll_cancellation::Scene;
    use plimsoll_cancellation::scene::{Kind, Resource, Task, Use};
    use plimsoll_core::Percentile;
    use plimsoll_core::config::{Config, parse};

    use super::*;
    use crate::record::Recorder;
    use crate::watch::terms;

    /// A lock that one task holds from 1 s on while requests pile up behind it.
    fn scene(now_ms: u64) -> Scene {
        let task = |id, started_ms: u64| Task {
            id,
            class: 0,
            started_ns: (started_ms + 10_000) * 1_000_000,
            deadline_ns: 0,
            done: 0,
            total: 0,
            request: true,
            cancellable: true,
            rerunnable: true,
        };
        let held_ms = now_ms.saturating_sub(1_000);
        let waiting: Vec<u64> = (1_000..now_ms).step_by(10).collect();
        let mut tasks = vec![task(1, 1_000)];
        tasks.extend(waiting.iter().map(|&ms| task(ms, ms)));
        let mut scene = Scene::default();
        if held_ms > 0 {
            let held_ns = held_ms * 1_000_000;
            let holder = Use { held: 1, held_ns, used: held_ns, recent: 20_000_000, ..Use::default() };
            let waits = (1..tasks.len()).map(|i| Use { task: i as u32, waiting_ns: 1, ..Use::default() });
            scene.uses = std::iter::once(holder).chain(waits).collect();
            scene.tasks = tasks;
        } else {
            scene.finished = vec![(5_000_000, 2)];
            scene.finished_ns = 10_000_000;
        }
        let delay_ns = waiting.len() as u64 * 20_000_000;
        scene.resources = vec![Resource { delay_ns, ..Resource::quiet(Kind::Lock, 1) }];
        scene
    }

    fn record(path: &Path) {
        let text = "[app.a]\nslo = { p99 = \"50ms\" }\nbudget = { ratio = 0.3 }";
        let app = parse::<Config>(text, "").unwrap().0.apps.remove(0);
        assert_eq!(app.slo, Slo::new([(Percentile::P99, Nanos::from_millis(50))]).unwrap());
        let recorder = Recorder::create(path).unwrap();
        let watch = recorder.watch("a", &app.slo, &app.budget);
        let mut reliever = Reliever::new(terms(&app.slo, &app.budget));
        for ms in (0..1_500).step_by(20) {
            let (now, scene) = (Nanos::from_millis(ms + 10_000), scene(ms));
            recorder.look(watch, now, &scene, reliever.look(now, &scene));
            if ms == 1_200 {
                recorder.outcome(watch, 1, Outcome::Failed);
                reliever.outcome(1, Outcome::Failed);
            }
        }
    }

    #[test]
    fn what_was_decided_is_decided_again_and_a_change_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        record(&path);
        assert!(is_ours(&path));
        let summary = verify(&path).unwrap();
        assert_eq!((summary.watches, summary.looks), (1, 75));
        assert!(summary.cancelled >= 1, "{summary:?}");
        assert!(Recorder::create(&path).is_err(), "a record is never overwritten");

        let text = std::fs::read_to_string(&path).unwrap();
        let cancelled = text.lines().position(|line| line.contains("cancel 1 0")).unwrap();
        std::fs::write(&path, text.replace("cancel 1 0", "cancel 2 0")).unwrap();
        let error = verify(&path).unwrap_err();
        assert!(error.contains(&format!(":{}: recorded", cancelled + 1)), "{error}");
        // A line that the agent was killed in is no difference.
        std::fs::write(&path, &text[..text.len() - 10]).unwrap();
        assert!(verify(&path).is_ok());
        assert!(!is_ours(Path::new("/dev/null")));
    }
}
