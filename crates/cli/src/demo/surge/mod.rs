//! The same surge on the same server, without and with the load line, side by side.
//!
//! Two copies of `testbed pages` stand behind one sentry: requests that say so go to the first through a pool whose
//! admission is off, the others to the second through a pool that enforces. So the live page shows both,
//! and all that differs is the decision.

mod stage;
mod view;

use std::cell::RefCell;
use std::ops::ControlFlow;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{Mix, Request};
use plimsoll_loadgen::{HttpVersion, Plan, Rate, Report, Table};

use super::{Args, PATIENCE, Side, draw, find_capacity, program};
use stage::{ROUTES, SIDE_HEADER, Stage};
use view::View;

/// How many times its capacity the server is sent, unless somebody says otherwise.
const FACTOR: f64 = 3.0;

/// The surge, from start to end.
pub async fn perform(args: &Args) -> Result<(), String> {
    eprintln!("Starting two copies of a small web service and a sentry in front of them ...");
    let stage = Stage::set().await?;
    let capacity = find_capacity(stage.bare_server(), mix(Side::Without)?).await?;
    let factor = args.factor.unwrap_or(FACTOR);
    eprintln!(
        "Its capacity is {capacity:.0} requests/s. Sending {factor} times that for {} to each copy.\n\
         The promise: half of the answers within {} ms, nine of ten within {} ms.\n\
         Both go through the sentry: `without` where its admission is off, `with` where it enforces, with an \
         allowance of {} a route.\n\
         Live page: {}\n",
        args.duration,
        stage::P50_MS,
        stage::P90_MS,
        stage::ALLOWANCE,
        stage.live_page()
    );
    let view = RefCell::new(View::new(args.duration));
    let rate = factor * capacity;
    let one = |side: Side| {
        let (plan, view) = (plan(&stage, side, rate, args), &view);
        async move {
            let plan = plan?;
            plimsoll_loadgen::run(&plan, |progress| {
                view.borrow_mut().show(side, progress);
                ControlFlow::Continue(())
            })
            .await
        }
    };
    let (without, with) = tokio::try_join!(one(Side::Without), one(Side::With))?;
    draw(args, &view.into_inner().finish())?;
    report(args, capacity, &without, &with);
    Ok(())
}

fn plan(stage: &Stage, side: Side, rate: f64, args: &Args) -> Result<Plan, String> {
    let mut plan =
        Plan::new(stage.sentry(), mix(side)?, Rate::constant(rate), args.duration, HttpVersion::Http1);
    plan.timeout = PATIENCE;
    plan.seed = args.seed;
    Ok(plan)
}

fn mix(side: Side) -> Result<Mix, String> {
    let header = (HeaderName::from_static(SIDE_HEADER), HeaderValue::from_static(side.as_str()));
    let request = |route: &stage::Route| Request {
        name: route.name.to_owned(),
        method: Method::GET,
        path: PathAndQuery::from_static(route.path),
        share: route.share,
        body: String::new(),
        headers: vec![header.clone()],
        deadline: Some(Nanos::from_millis(stage::P90_MS)),
    };
    Ok(Mix { requests: ROUTES.iter().map(request).collect() })
}

fn report(args: &Args, capacity: f64, without: &Report, with: &Report) {
    if args.json {
        let outcome = serde_json::json!({
            "capacity_per_s": capacity, "factor": args.factor.unwrap_or(FACTOR), "seed": args.seed,
            "without": without, "with": with,
        });
        println!("{outcome}");
    }
    let table = |side: Side, table: &Table| view::outcome(side, table);
    eprint!("{}{}", table(Side::Without, &without.table), table(Side::With, &with.table));
    let program = program();
    let (bare, protected) = (without.table.total.goodput_per_s, with.table.total.goodput_per_s);
    eprintln!(
        "\nAnswered within their objective: {bare:.0}/s without, {protected:.0}/s with the load line.\n\
         \n\
         Next:\n  \
           {program} demo --crowd                     # a flash crowd: who gets in, and servers that follow the load\n  \
           {program} demo --fleet                     # the same surge on a shop of many services\n  \
           {program} check plimsoll.toml              # the sample config in this repository\n  \
           {program} sentry --config plimsoll.toml    # in front of your own service\n  \
           {program} simulate paper/bouncer.toml --load 1.3 --policy bouncer --policy maxql,limit=400\n  \
           {program} simulate --replay access.csv     # the same on your own access log\n\
         docs/config.md has every key, ARCHITECTURE.md how it works."
    );
}
