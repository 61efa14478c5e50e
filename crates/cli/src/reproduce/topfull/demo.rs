//! The paper's demo (section 5) for real: 127 services, 25 APIs, 43 paths, 13 services overloaded, and three times as much as before at once.

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::bed::Entry;
use super::course::Course;
use super::scene::Scene;
use super::{MODEL, runs};

/// Our targets: the part of the optimum, and how many times the goodput of a fleet that takes whatever comes.
const SHARE: f64 = 0.9;
const TIMES: f64 = 1.8;

/// Goodput with and without.
pub fn demo(settings: Settings) -> Result<Findings, String> {
    let scene = Scene::new(include_str!("../../../../../paper/topfull/trace-demo.toml"), |_| ())?;
    let optimum = scene.optimum(&[])?;
    let s = Nanos::from_secs;
    let (surge, end) = if settings.quick { (s(8), s(20)) } else { (s(15), s(60)) };
    let window = (Nanos(end.0 - end.since(surge).0 / 3), end);
    let course = Course { calm: 1.0 / 3.0, surge, end, window, changes: Vec::new() };
    let entries = [Entry::Open, MODEL];
    let ran = runs(&scene, &entries, &course, settings.seed)?;
    let goodput: Vec<f64> =
        ran.iter().map(|ran| ran.goodput(&scene, window.0, window.1).iter().sum()).collect();
    let strain = ran[0].strain.and(ran[1].strain);
    let best: f64 = optimum.iter().sum();
    let beside = |what: &str, found: f64| Row::beside(what, None, Some(found));
    let mut rows = vec![
        strain.judge(Row::no_less("model: goodput, of the optimum", SHARE, goodput[1] / best)),
        strain.judge(Row::no_less(
            "model: goodput, times that without a sentry",
            TIMES,
            goodput[1] / goodput[0],
        )),
        beside("sent in the surge, requests/s", scene.offered().sum()),
        beside("optimum, requests/s", best),
        beside("without a sentry: goodput, requests/s", goodput[0]),
        beside("model: goodput, requests/s", goodput[1]),
        beside("model: steady, s after the surge began", ran[1].converged_s(&scene, surge, end)),
        beside("without a sentry: calls of services, /s", ran[0].calls_per_s),
        beside("model: calls of services, /s", ran[1].calls_per_s),
    ];
    rows.extend(strain.rows());
    let line = |(entry, ran): (&Entry, &super::Ran)| Line {
        name: entry.name().to_owned(),
        points: ran.timeline(&scene, end, |_| true),
    };
    let lines = entries.iter().zip(&ran).map(line).collect();
    let chart = Chart::new("127 services", "s", "goodput, requests/s", lines).with_level("optimum", best);
    Ok(Findings { rows, figures: vec![Figure { name: "demo-live".to_owned(), charts: vec![chart] }] })
}
