//! A flash crowd on a whole platform: ten times what the servers can do at first, from three classes of users.
//!
//! One sentry polices what comes, one controller starts servers while the crowd lasts and gives them back in the lull after it. What
//! is told of the requests is what the load generator saw of them; the sentry is only asked who refuses, the controller how many servers
//! there are.

mod outcome;
mod stage;
mod view;

use std::cell::RefCell;

use plimsoll_core::Nanos;
use plimsoll_loadgen::{HttpVersion, Plan};
use plimsoll_sentry::admin::model::Overview;

use super::{Args, PATIENCE, draw, find_capacity, program};
use crate::observed;
use crate::platform::{PoolNow, mix};
use crate::processes::{Page, uri};
use outcome::Outcome;
use stage::{TIERS, Tier};
use view::View;

/// How many times the capacity of the first server is sent, unless somebody says otherwise.
const FACTOR: f64 = 10.0;
/// Before the crowd and after it, as shares of that capacity.
const CALM: f64 = 0.6;
const LULL: f64 = 0.3;

/// When the crowd comes, when it leaves, and when all is over.
#[derive(Clone, Copy)]
pub struct Phases {
    crowd: Nanos,
    lull: Nanos,
    end: Nanos,
}

impl Phases {
    /// Around a crowd that lasts so long.
    fn around(crowd: Nanos) -> Phases {
        let begins = Nanos(crowd.0 / 5);
        Phases { crowd: begins, lull: begins + crowd, end: Nanos(2 * crowd.0) }
    }

    /// Each with its name, where it begins and where it ends.
    fn each(&self) -> [(&'static str, Nanos, Nanos); 3] {
        [("calm", Nanos::ZERO, self.crowd), ("crowd", self.crowd, self.lull), ("lull", self.lull, self.end)]
    }
}

/// The crowd, from start to end.
pub async fn perform(args: &Args) -> Result<(), String> {
    let tiers = TIERS.map(|tier| (tier.name, tier.share));
    let target = Nanos::from_millis(stage::TARGET_MS);
    eprintln!("Finding out what one server can do ...");
    let capacity = {
        let page = Page::start(stage::WORKERS)?;
        find_capacity(&page, mix(tiers, None)).await?
    };
    let factor = args.factor.unwrap_or(FACTOR);
    eprintln!(
        "It can do {capacity:.0} requests/s. Starting a sentry, a controller and, through it, the server ..."
    );
    let platform = stage::set(args.duration).await?;
    let phases = Phases::around(args.duration);
    eprintln!(
        "After {} a crowd comes, {factor} times that for {}; seed {}. The controller may start {} servers more.\n\
         {}\
         What is let in is to be answered within {} ms. Live page: {}\n",
        phases.crowd,
        args.duration,
        args.seed,
        stage::MOST - 1,
        TIERS.map(|tier| format!("  {tier}\n")).concat(),
        stage::TARGET_MS,
        uri(platform.admin)
    );
    let rate = format!(
        "0s:{:.1},{}:{:.1},{}:{:.1}",
        CALM * capacity,
        phases.crowd,
        factor * capacity,
        phases.lull,
        LULL * capacity
    );
    let mix = mix(tiers, Some(target));
    let mut plan = Plan::new(platform.target(), mix, rate.parse()?, phases.end, HttpVersion::Http1);
    plan.timeout = PATIENCE;
    plan.seed = args.seed;
    let view = RefCell::new(View::new(phases));
    let observe = |now, ended| view.borrow_mut().observe(now, ended);
    let look = |pools: Vec<PoolNow>, overview: Option<Overview>| {
        let mut view = view.borrow_mut();
        pools.into_iter().for_each(|pool| view.platform(pool, overview.as_ref()));
    };
    let names = TIERS.map(|tier| tier.name);
    let report = platform.watched(observed::load(plan, &names, observe), look).await?;
    let (requests, looks) = view.into_inner().finish();
    let outcome = Outcome::of(&requests, &looks, phases);
    draw(args, &outcome.figure(&requests, &looks))?;
    if args.json {
        println!(
            "{}",
            serde_json::json!({
                "capacity_per_s": capacity, "factor": factor, "seed": args.seed, "target_ms": stage::TARGET_MS,
                "phases": outcome.phases_json(), "servers": outcome.servers, "load": report,
            })
        );
    }
    eprint!("{outcome}");
    let late = report.table.total.late_ms_p99.unwrap_or(0.0);
    let program = program();
    eprintln!(
        "The load generator itself was at most {late:.0} ms late with 99 of 100 requests.\n\
         \n\
         Next: docs/controller.md has what decides how many servers there are, docs/config.md `policing`, `priority`, `revenue` and `min_rate`.\n  \
           {program} check plimsoll.toml\n  \
           {program} reproduce cataclysm --quick"
    );
    Ok(())
}

/// What is said of a class before it starts.
impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tier { name, share, revenue, promised_per_s } = self;
        let percent = 100.0 * share;
        write!(
            f,
            "{name:<8}{percent:>3.0} % of the requests, worth {revenue} each, {promised_per_s}/s promised"
        )
    }
}
