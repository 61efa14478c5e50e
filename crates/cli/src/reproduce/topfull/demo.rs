//! The paper's demo (section 5) for real: 127 services, 25 APIs, 43 paths, 13 services overloaded, and three times as much as before at once.

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::bed::Entry;
use super::course::{Course, Ran};
use super::scene::Scene;
use super::{MODEL, runs};

/// Our targets: the part of the optimum, and how many times the goodput of a fleet that takes whatever comes.
const SHARE: f64 = 0.9;
const TIMES: f64 = 1.8;
/// How often clients that try again do so, 100 and 200 ms after they were refused.
const RETRIES: u32 = 2;

/// Goodput with and without, of clients that go when they are refused and of those that try again.
pub fn demo(settings: Settings) -> Result<Findings, String> {
    let scene = Scene::new(include_str!("../../../../../paper/topfull/trace-demo.toml"), |_| ())?;
    let optimum = scene.optimum(&[])?;
    let s = Nanos::from_secs;
    let (surge, end) = if settings.quick { (s(8), s(20)) } else { (s(15), s(60)) };
    let window = (Nanos(end.0 - end.since(surge).0 / 3), end);
    let course = Course { calm: 1.0 / 3.0, surge, end, window, changes: Vec::new(), retries: 0 };
    let best: f64 = optimum.iter().sum();
    let mut rows = vec![
        beside("sent in the surge, requests/s", scene.offered().sum()),
        beside("optimum, requests/s", best),
    ];
    let mut charts = Vec::new();
    for (clients, retries) in [("refused, gone", 0), ("refused, tries again", RETRIES)] {
        let course = Course { retries, ..course.clone() };
        let entries = [Entry::Open, MODEL];
        let ran = runs(&scene, &entries, &course, settings.seed)?;
        rows.extend(judged(clients, [&ran[0], &ran[1]], &scene, &course, best));
        let line = |(entry, ran): (&Entry, &Ran)| Line {
            name: entry.name().to_owned(),
            points: ran.timeline(&scene, end, |_| true),
        };
        let lines = entries.iter().zip(&ran).map(line).collect();
        let title = format!("127 services; {clients}");
        charts.push(Chart::new(title, "s", "goodput, requests/s", lines).with_level("optimum", best));
    }
    Ok(Findings { rows, figures: vec![Figure { name: "demo-live".to_owned(), charts }] })
}

/// What came of a run without a sentry and one with.
fn judged(clients: &str, [open, model]: [&Ran; 2], scene: &Scene, course: &Course, best: f64) -> Vec<Row> {
    let (from, to) = course.window;
    let [without, with] = [open, model].map(|ran| ran.goodput(scene, from, to).iter().sum::<f64>());
    let strain = open.strain.and(model.strain);
    let what = |what: &str| format!("{clients}: {what}");
    let beside = |row: &str, found: f64| beside(what(row), found);
    let times = what("model: goodput, times that without a sentry");
    let mut rows = vec![
        strain.judge(Row::no_less(what("model: goodput, of the optimum"), SHARE, with / best)),
        // Nobody can be held to more than the optimum is.
        match best / without >= TIMES {
            true => strain.judge(Row::no_less(times, TIMES, with / without)),
            false => Row::beside(times, None, Some(with / without)),
        },
        beside("the optimum, times that without a sentry", best / without),
        beside("without a sentry: goodput, requests/s", without),
        beside("model: goodput, requests/s", with),
        beside("model: steady, s after the surge began", model.converged_s(scene, course.surge, course.end)),
        beside("model: a service was asked for more than 1.1 times what it can do, s", model.over_s),
        beside("without a sentry: calls of services, /s", open.calls_per_s),
        beside("model: calls of services, /s", model.calls_per_s),
    ];
    rows.extend(strain.rows().map(|row| Row { what: what(&row.what), ..row }));
    rows
}

fn beside(what: impl Into<String>, found: f64) -> Row {
    Row::beside(what, None, Some(found))
}
