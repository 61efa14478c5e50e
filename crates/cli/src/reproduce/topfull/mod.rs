//! TopFull on the real testbed: real services, a sentry, a controller and a load generator, each a process of its own on loopback.
//!
//! | part | does |
//! | --- | --- |
//! | `scene` | the paper's fleets, as large as fits this machine |
//! | `bed` | the processes |
//! | `front` | sentries in front of services |
//! | `course` | one run, and whether the machine was fit for it |
//! | `demo` | the 127 services under a surge |
//! | `boutique` | Fig. 8, 11, 12 and 13 |
//! | `pods` | Fig. 18 |
//!
//! Baselines that every service would have to take part in (DAGOR, Breakwater) are the simulator's to compare with; here are those that stand
//! at the entry.

mod bed;
mod boutique;
mod course;
mod demo;
mod front;
mod pods;
mod scene;

use std::rc::Rc;

use plimsoll_simulator::reproduce::findings::Findings;
use plimsoll_simulator::reproduce::{Experiment, Settings};

use bed::{Entry, Signals};
use course::{Course, Ran};
use scene::Scene;

/// What stands at the entry, in the order in which it is compared: what ours are held against, and ours, the default last.
const ENTRIES: [Entry; 5] = [
    Entry::Open,
    Entry::Held("mimd", Signals::Queues),
    Entry::Held("topfull-bw", Signals::Queues),
    Entry::Held("learned", Signals::Queues),
    MODEL,
];
const OURS: usize = 2;
/// The default.
const MODEL: Entry = Entry::Held("model", Signals::Queues);

/// The real experiments; none unless they are asked for: they take ten minutes, and a machine of their own.
pub fn experiments(settings: Settings) -> Vec<Experiment> {
    if !settings.real {
        return Vec::new();
    }
    let of = |id, run: fn(Settings) -> Result<Findings, String>| Experiment {
        id,
        run: Box::new(move || run(settings)),
    };
    let priorities = Rc::new(boutique::Priorities::new(settings));
    let both = Rc::clone(&priorities);
    vec![
        of("demo-live", demo::demo),
        of("fig8-live", boutique::fig8),
        Experiment { id: "fig11-live", run: Box::new(move || priorities.fig11()) },
        Experiment { id: "fig12-live", run: Box::new(move || both.fig12()) },
        of("fig13-live", boutique::fig13),
        of("fig18-live", pods::fig18),
    ]
}

impl Entry {
    fn name(self) -> &'static str {
        match self {
            Entry::Open => "no sentry",
            Entry::Held(decide, Signals::Queues) => decide,
            Entry::Held(_, Signals::Sentries(_)) => "with sentries before what is narrow",
            Entry::Held(_, Signals::Prometheus) => "with a Prometheus of 1 s",
        }
    }
}

/// One run after the other, on this thread: children end with the thread that started them.
fn runs(scene: &Scene, entries: &[Entry], course: &Course, seed: u64) -> Result<Vec<Ran>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(async {
        let mut runs = Vec::new();
        for &entry in entries {
            runs.push(course::run(scene, entry, course, seed).await?);
        }
        Ok(runs)
    })
}
