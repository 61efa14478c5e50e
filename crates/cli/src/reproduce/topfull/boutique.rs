//! Online Boutique for real: what stands at the entry under overload (Fig. 8), priorities and who starves (Fig. 11 and 12), and how soon rates
//! are right (Fig. 13 and Table 2).

use std::cell::OnceCell;

use plimsoll_core::Nanos;
use plimsoll_core::config::fleet::{Offered, Scenario};
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::bed::{Entry, Signals, has_prometheus};
use super::course::{Course, Ran, Strain};
use super::scene::Scene;
use super::{ENTRIES, MODEL, OURS, runs};

const BOUTIQUE: &str = include_str!("../../../../../paper/topfull/online-boutique.toml");
/// What the most important one comes too often for.
const NARROW: [&str; 3] = ["checkout", "email", "payment"];
/// The paper's API 1 to 4, from the most important one on (section 6.2).
const BY_PRIORITY: [&str; 4] = ["postcheckout", "getproduct", "getcart", "postcart"];
/// What is asked of ours: the part of the optimum of each level of priority, and the time until rates are right, with signals of 250 ms and
/// with a Prometheus of a second.
const SHARE: f64 = 0.9;
const SOON_S: f64 = 2.0;
const SOON_BY_PROMETHEUS_S: f64 = 6.0;
/// And for how long services may be asked for more than 1.1 times what they can do.
const OVER_S: f64 = 1.0;
/// The paper's (Table 2).
const PAPER_S: f64 = 5.0;

/// A tenth of the surge, then all of it.
fn course(settings: Settings, calm: f64) -> Course {
    let s = Nanos::from_secs;
    let (surge, end) = if settings.quick { (s(6), s(15)) } else { (s(10), s(40)) };
    let window = (Nanos(end.0 - end.since(surge).0 / 3), end);
    Course { calm, surge, end, window, changes: Vec::new(), retries: 0 }
}

fn worst(ran: &[Ran]) -> Strain {
    ran.iter().map(|ran| ran.strain).reduce(Strain::and).unwrap_or_default()
}

/// Goodput under overload, with one entry after the other.
pub fn fig8(settings: Settings) -> Result<Findings, String> {
    let scene = Scene::new(BOUTIQUE, |_| ())?;
    let course = course(settings, 0.1);
    let (from, to) = course.window;
    let best: f64 = scene.optimum(&[])?.iter().sum();
    let ran = runs(&scene, &ENTRIES, &course, settings.seed)?;
    let goodput: Vec<f64> = ran.iter().map(|ran| ran.goodput(&scene, from, to).iter().sum()).collect();
    let (ours, strain) = (goodput[goodput.len() - 1], worst(&ran));
    let others = goodput[..goodput.len() - OURS].iter().copied().fold(0.0, f64::max);
    let mut rows = vec![
        strain.judge(Row::no_less("model: goodput, of the optimum", SHARE, ours / best)),
        strain.judge(Row::no_less("model: goodput, of the best of the others", 1.0, ours / others)),
        Row::beside("optimum, requests/s", None, Some(best)),
    ];
    for (entry, goodput) in ENTRIES.iter().zip(&goodput) {
        rows.push(Row::beside(format!("{}: goodput, requests/s", entry.name()), None, Some(*goodput)));
    }
    rows.extend(strain.rows());
    let line = |(entry, ran): (&Entry, &Ran)| Line {
        name: entry.name().to_owned(),
        points: ran.timeline(&scene, course.end, |_| true),
    };
    let lines = ENTRIES.iter().zip(&ran).map(line).collect();
    let chart = Chart::new("Online Boutique", "s", "goodput, requests/s", lines).with_level("optimum", best);
    Ok(Findings { rows, figures: vec![Figure { name: "fig8-live".to_owned(), charts: vec![chart] }] })
}

/// The runs of Fig. 11 and 12, made once.
pub struct Priorities {
    settings: Settings,
    ran: OnceCell<Result<(Scene, Vec<Ran>), String>>,
}

const PRIORITIES: [Entry; 2] = [Entry::Open, MODEL];

impl Priorities {
    /// Nothing was run yet.
    pub fn new(settings: Settings) -> Priorities {
        Priorities { settings, ran: OnceCell::new() }
    }

    fn ran(&self) -> Result<&(Scene, Vec<Ran>), String> {
        let run = || {
            let scene = Scene::new(BOUTIQUE, |scenario| {
                for api in &mut scenario.apis {
                    let place = BY_PRIORITY.iter().position(|name| *name == api.name);
                    api.priority = 1 + place.unwrap_or(BY_PRIORITY.len()) as u32;
                }
            })?;
            let ran = runs(&scene, &PRIORITIES, &course(self.settings, 0.1), self.settings.seed)?;
            Ok((scene, ran))
        };
        self.ran.get_or_init(run).as_ref().map_err(Clone::clone)
    }

    /// Goodput by API, the most important first.
    pub fn fig11(&self) -> Result<Findings, String> {
        let (scene, ran) = self.ran()?;
        let (from, to) = course(self.settings, 0.1).window;
        let optimum = scene.optimum(&[])?;
        let strain = worst(ran);
        let [open, model] = [0, 1].map(|run: usize| ran[run].goodput(scene, from, to));
        let first = scene.api(BY_PRIORITY[0])?;
        let mut rows = vec![
            strain.judge(Row::no_less(
                "model: goodput of each priority and all above it, the least of the optimum",
                SHARE,
                ran[1].share(scene, &optimum, from, to),
            )),
            strain.judge(Row::no_less(
                "model: goodput of the most important API, of what its path can carry",
                SHARE,
                model[first] / optimum[first],
            )),
        ];
        for name in BY_PRIORITY {
            let api = scene.api(name)?;
            for (who, goodput) in [("optimum", &optimum), ("no sentry", &open), ("model", &model)] {
                rows.push(Row::beside(format!("{name}: {who}, requests/s"), None, Some(goodput[api])));
            }
        }
        rows.extend(strain.rows());
        Ok(Findings { rows, figures: Vec::new() })
    }

    /// API 1, which the checkout holds up, and API 2, which gets what API 1 cannot use.
    pub fn fig12(&self) -> Result<Findings, String> {
        let (scene, ran) = self.ran()?;
        let course = course(self.settings, 0.1);
        let (from, to) = course.window;
        let [one, two] = [scene.api(BY_PRIORITY[0])?, scene.api(BY_PRIORITY[1])?];
        let optimum = scene.optimum(&[])?;
        let (model, strain) = (ran[1].goodput(scene, from, to), worst(ran));
        let rows = vec![strain.judge(Row::no_less(
            "model: goodput of API 2, of the optimum: what API 1 leaves",
            SHARE,
            model[two] / optimum[two],
        ))];
        let chart = |(entry, ran): (&Entry, &Ran)| {
            let line = |(name, api): (&str, usize)| Line {
                name: name.to_owned(),
                points: ran.timeline(scene, course.end, |seen| seen == api),
            };
            let lines = [("API 1", one), ("API 2", two)].into_iter().map(line).collect();
            Chart::new(entry.name(), "s", "goodput, requests/s", lines)
                .with_level("optimum of API 1", optimum[one])
                .with_level("optimum of API 2", optimum[two])
        };
        let charts = PRIORITIES.iter().zip(ran).map(chart).collect();
        Ok(Findings { rows, figures: vec![Figure { name: "fig12-live".to_owned(), charts }] })
    }
}

/// One API alone comes ten times as often from one moment to the next.
pub fn fig13(settings: Settings) -> Result<Findings, String> {
    let scene = Scene::new(BOUTIQUE, |scenario: &mut Scenario| {
        for api in scenario.apis.iter_mut().filter(|api| api.name != BY_PRIORITY[0]) {
            api.offered = Offered::constant(0.0);
        }
    })?;
    let course = course(settings, 0.1);
    let by_sentries = Entry::Held("model", Signals::Sentries(&NARROW));
    let by_prometheus = Entry::Held("model", Signals::Prometheus);
    let mut entries = vec![MODEL, by_sentries, Entry::Held("mimd", Signals::Queues)];
    entries.extend(has_prometheus().then_some(by_prometheus));
    let ran = runs(&scene, &entries, &course, settings.seed)?;
    let optimum = scene.optimum(&[])?;
    let mut rows = Vec::new();
    for (entry, ran) in entries.iter().zip(&ran) {
        let soon_s = ran.converged_s(&scene, course.surge, course.end);
        let what = format!("{}: steady, s after the surge began", entry.name());
        rows.push(match *entry {
            entry if entry == MODEL || entry == by_sentries => {
                ran.strain.judge(Row::no_more(what, SOON_S, soon_s))
            }
            entry if entry == by_prometheus => {
                ran.strain.judge(Row::no_more(what, SOON_BY_PROMETHEUS_S, soon_s))
            }
            _ => Row::beside(what, None, Some(soon_s)),
        });
        let share = ran.share(&scene, &optimum, course.window.0, course.window.1);
        let what = format!("{}: goodput, of the optimum", entry.name());
        rows.push(match *entry {
            entry if entry == MODEL || entry == by_sentries => {
                ran.strain.judge(Row::no_less(what, SHARE, share))
            }
            _ => Row::beside(what, None, Some(share)),
        });
        let what = format!("{}: asked for more than 1.1 times what a service can do, s", entry.name());
        rows.push(match *entry {
            entry if entry == MODEL || entry == by_sentries => {
                ran.strain.judge(Row::no_more(what, OVER_S, ran.over_s))
            }
            _ => Row::beside(what, None, Some(ran.over_s)),
        });
    }
    if !has_prometheus() {
        rows.push(Row::beside("not measured with a Prometheus: apt-get install prometheus", None, None));
    }
    rows.push(Row::beside("the paper's, s", Some(PAPER_S), None));
    rows.extend(worst(&ran).rows());
    let line = |(entry, ran): (&Entry, &Ran)| Line {
        name: entry.name().to_owned(),
        points: ran.timeline(&scene, course.end, |_| true),
    };
    let lines = entries.iter().zip(&ran).map(line).collect();
    let chart = Chart::new("Post Checkout alone", "s", "goodput, requests/s", lines)
        .with_level("optimum", optimum.iter().sum());
    Ok(Findings { rows, figures: vec![Figure { name: "fig13-live".to_owned(), charts: vec![chart] }] })
}
