//! A surge on a whole shop of services, without anybody who decides what may enter and with a sentry and a controller before it.
//!
//! Two copies of the same shop: requests go to the entry of the first as they come, and to the second through a sentry. The controller
//! knows nothing of the shop but what that tells anybody: spans of its requests, and how busy its workers are. What is told of the requests is
//! what the load generator saw.

mod outcome;
mod stage;
mod view;

use std::cell::RefCell;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_loadgen::{HttpVersion, Plan};

use super::{Args, PATIENCE, Side, draw, program};
use crate::observed;
use outcome::Outcome;
use stage::{APIS, DEADLINE_MS, Stage};
use view::View;

/// How many times what comes in calm comes in the surge, unless somebody says otherwise.
const FACTOR: f64 = 4.0;
/// From one look at the controller to the next.
const LOOK: Duration = Duration::from_millis(250);

/// When the surge begins, and when all is over.
#[derive(Clone, Copy)]
pub struct Phases {
    surge: Nanos,
    end: Nanos,
    factor: f64,
}

impl Phases {
    /// A surge that lasts so long, after a calm in which the controller learns who calls whom.
    fn before(surge: Nanos, factor: f64) -> Phases {
        let calm = Nanos(surge.0 / 6).max(CALM);
        Phases { surge: calm, end: calm + surge, factor }
    }
}

/// The shortest calm: a trace waits a second for its pieces.
const CALM: Nanos = Nanos::from_secs(4);

/// The surge, from start to end.
pub async fn perform(args: &Args) -> Result<(), String> {
    let phases = Phases::before(args.duration, args.factor.unwrap_or(FACTOR));
    eprintln!(
        "Starting the same shop of services twice, and before one of them a sentry and a controller ..."
    );
    let stage = Stage::set(phases).await?;
    let calm: f64 = APIS.iter().map(|api| api.calm_per_s).sum();
    let optimum = stage::optimum(phases)?;
    eprintln!(
        "{calm:.0} requests/s go to each. After {} come {} times as many for {}; seed {}. Of those {:.0}/s could be answered at best.\n\
         What counts is answered within {DEADLINE_MS} ms. The controller is told who calls whom by spans, and how busy each service is.\n\
         Live page: {}   What may enter, and why: {}\n",
        phases.surge,
        phases.factor,
        args.duration,
        args.seed,
        optimum.iter().sum::<f64>(),
        stage.live_page(),
        stage.plan_page(),
    );
    let rate = format!("0s:{calm:.1},{}:{:.1}", phases.surge, phases.factor * calm);
    let view = RefCell::new(View::new(phases));
    let names = APIS.map(|api| api.name);
    let [bare, sentry] = stage.targets();
    let one = |side: Side, target| {
        let (rate, view) = (&rate, &view);
        async move {
            let mut plan = Plan::new(target, stage::mix(), rate.parse()?, phases.end, HttpVersion::Http1);
            (plan.timeout, plan.seed) = (PATIENCE, args.seed);
            observed::load(plan, &names, |now, ended| view.borrow_mut().observe(side, now, ended)).await
        }
    };
    let both = async { tokio::try_join!(one(Side::Without, bare), one(Side::With, sentry)) };
    let watch = async {
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            ticks.tick().await;
            if let Some(limits) = stage.limits().await {
                view.borrow_mut().limited(limits);
            }
        }
    };
    let reports = tokio::select! {
        reports = both => reports?,
        never = watch => never,
    };
    let outcome = Outcome::new(phases, view.into_inner().finish(), optimum);
    draw(args, &outcome.figure())?;
    if args.json {
        println!(
            "{}",
            serde_json::json!({
                "factor": phases.factor, "seed": args.seed, "deadline_ms": DEADLINE_MS,
                "apis": outcome.apis_json(), "in_time_per_s": outcome.totals_json(),
                "without": reports.0, "with": reports.1,
            })
        );
    }
    eprint!("{outcome}");
    let program = program();
    eprintln!(
        "\n\
         Next: docs/telemetry.md says where to point your collector and your Prometheus, docs/rates.md what is decided and how it is kept.\n  \
           {program} fleet run paper/topfull/online-boutique.toml                      # any fleet, in simulated time\n  \
           {program} fleet run paper/topfull/online-boutique.toml --controller dagor\n  \
           {program} reproduce topfull --quick"
    );
    Ok(())
}
