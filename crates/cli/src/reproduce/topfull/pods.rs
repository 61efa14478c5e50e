//! Fig. 18 for real: of the 35 instances of Train Ticket's `station` 25 are killed in the middle of what they do, and as many are started later.

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::bed::Entry;
use super::course::{Course, Ran};
use super::scene::Scene;
use super::{MODEL, runs};

/// Who fails, and how many are left.
const SERVICE: &str = "station";
const LEFT: u32 = 10;
/// What is asked of ours: the part of what the rest can carry, and the time until rates are right after either change.
const SHARE: f64 = 0.9;
const SOON_S: f64 = 2.0;

/// Goodput while they are gone, and after.
pub fn fig18(settings: Settings) -> Result<Findings, String> {
    let scene = Scene::new(include_str!("../../../../../paper/topfull/train-ticket-pods-fail.toml"), |_| ())?;
    let all = scene.plan.services.iter().find(|service| service.name == SERVICE);
    let all = all.ok_or("there is no station")?.instances;
    let s = Nanos::from_secs;
    let (fails, back, end) = if settings.quick { (s(6), s(14), s(20)) } else { (s(15), s(40), s(60)) };
    // All are known to be gone after a few seconds.
    let settled = fails + Nanos(back.since(fails).0 / 3);
    let course = Course {
        calm: 1.0,
        surge: fails,
        end,
        window: (settled, back),
        changes: vec![(fails, SERVICE, LEFT), (back, SERVICE, all)],
        retries: 0,
    };
    let entries = [Entry::Open, MODEL];
    let ran = runs(&scene, &entries, &course, settings.seed)?;
    let optimum = scene.optimum(&[(SERVICE, LEFT)])?;
    let best: f64 = optimum.iter().sum();
    let strain = ran[0].strain.and(ran[1].strain);
    let goodput = |ran: &Ran| ran.goodput(&scene, settled, back).iter().sum::<f64>();
    let (open, model) = (goodput(&ran[0]), goodput(&ran[1]));
    let last = Nanos(end.0 - end.since(back).0 / 3);
    let after =
        ran[1].goodput(&scene, last, end).iter().sum::<f64>() / scene.optimum(&[])?.iter().sum::<f64>();
    let beside = |what: &str, found: f64| Row::beside(what, None, Some(found));
    let mut rows = vec![
        strain.judge(Row::no_less("model: goodput while they are gone, of the optimum", SHARE, model / best)),
        strain.judge(Row::no_less("model: goodput once they are back, of the optimum", SHARE, after)),
        strain.judge(Row::no_more(
            "model: steady, s after they have failed",
            SOON_S,
            ran[1].converged_s(&scene, fails, back),
        )),
        strain.judge(Row::no_more(
            "model: steady, s after they are back",
            SOON_S,
            ran[1].converged_s(&scene, back, end),
        )),
        strain.judge(Row::no_more("model: APIs that are limited at the end", 0.0, ran[1].limited as f64)),
        beside("sent, requests/s", scene.offered().sum()),
        beside("optimum while they are gone, requests/s", best),
        beside("without a sentry: goodput while they are gone, requests/s", open),
        beside("model: goodput while they are gone, requests/s", model),
    ];
    rows.extend(strain.rows());
    let line = |(entry, ran): (&Entry, &Ran)| Line {
        name: entry.name().to_owned(),
        points: ran.timeline(&scene, end, |_| true),
    };
    let lines = entries.iter().zip(&ran).map(line).collect();
    let chart = Chart::new("Train Ticket: 25 of 35 stations fail", "s", "goodput, requests/s", lines)
        .with_level("optimum with 10", best);
    Ok(Findings { rows, figures: vec![Figure { name: "fig18-live".to_owned(), charts: vec![chart] }] })
}
