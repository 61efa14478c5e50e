//! CPU futures with real processes, most of them a real Apache and its neighbours: the four metrics (Fig. 1 and 4), Empathy (section 5.2, Fig. 6 to
//! 8) and SheepDog (section 5.3).
//!
//! | part | does |
//! | --- | --- |
//! | `apache` | a private server |
//! | `clients` | closed-loop load |
//! | `job` | what runs beside it, held back in one way or another |
//! | `alternating` | Fig. 6 |
//! | `rising` | Fig. 7 |
//! | `limits` | Fig. 8 |
//! | `turns` | what comes of settings that take turns |
//! | `sheepdog`, `workers` | how many workers, and how they fare |
//! | `cost` | what it costs to know; without Apache |
//! | `accuracy` | how near what is told of tasks comes to the truth; without Apache |
//! | `growing` | Fig. 1 and 4; without Apache |

mod accuracy;
mod alternating;
mod apache;
mod clients;
mod cost;
mod growing;
mod job;
mod limits;
mod rising;
mod sheepdog;
mod turns;
mod workers;

use plimsoll_simulator::reproduce::findings::{Findings, Row};
use plimsoll_simulator::reproduce::{Experiment, Settings};

use apache::Apache;
use job::Job;

/// What these need beside this program.
const MISSING: &str =
    "not measured: apache2 is not here; apt-get install apache2 libapache2-mod-php8.2 xz-utils";
const NO_MODULE: &str =
    "not measured: the module is not here; apt-get install apache2-dev, and make -C sdk/httpd install";
/// They take minutes, and a machine of their own.
const LEFT_OUT: &str =
    "not measured: the quick form leaves out what wants a calm machine for minutes; leave out --quick";

/// The experiments that need Apache, and those that need nothing but processes.
pub fn experiments(settings: Settings) -> Vec<Experiment> {
    let of = |id, missing: fn() -> Option<&'static str>, run: fn(Settings) -> Result<Findings, String>| {
        let run = move || {
            let why_not = if settings.quick { Some(LEFT_OUT) } else { missing() };
            match why_not {
                None => run(settings),
                Some(why) => Ok(Findings { rows: vec![Row::beside(why, None, None)], figures: Vec::new() }),
            }
        };
        Experiment { id, run: Box::new(run) }
    };
    vec![
        of("fig1-live", nothing, growing::fig1_live),
        of("fig4-live", nothing, growing::fig4_live),
        of("fig6", apache, alternating::fig6),
        of("fig7", apache, rising::fig7),
        of("fig8", apache, limits::fig8),
        of("sheepdog", apache_and_module, sheepdog::sheepdog),
        of("cost", nothing, cost::cost),
        Experiment { id: "accuracy-live", run: Box::new(move || accuracy::accuracy_live(settings)) },
    ]
}

/// What is missing for those that need nothing but processes,
fn nothing() -> Option<&'static str> {
    None
}

/// for those that need a server and a job beside it,
fn apache() -> Option<&'static str> {
    (!Apache::is_here() || !Job::is_here()).then_some(MISSING)
}

/// and for those that need our module as well.
fn apache_and_module() -> Option<&'static str> {
    apache().or_else(|| (!Apache::has_module()).then_some(NO_MODULE))
}

/// Carries out what waits for sockets, on this thread: children end with the thread that started them.
fn wait_for<T>(what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(what)
}
