//! Somebody holds what everybody needs: the same on two servers side by side, one of which the agent watches.
//!
//! They are PostgreSQL as it comes ([`postgres`]), or, where there is none, the testbed's server on the SDK ([`hogs`]). What is told of
//! the requests is what those saw who sent them; the agent is only asked what it did and why.

mod agent;
mod figures;
mod hogs;
mod outcome;
mod postgres;
mod stage;
mod view;

use std::cell::RefCell;

use plimsoll_core::Nanos;
use serde_json::json;

use super::{Args, Side, draw, program};
use crate::processes::directory;
use agent::Agent;
use hogs::Hogs;
use outcome::Outcome;
use postgres::Postgres;
use stage::{Phases, Server};
use view::View;

/// In less there is no time for all that is to be seen.
const SHORTEST: Nanos = Nanos::from_secs(8);

/// What the culprit holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A real PostgreSQL, as it comes.
    Postgresql,
    /// A small web service of our own, which keeps account of what its requests hold.
    Testbed,
}

/// The culprit, from start to end.
pub async fn perform(args: &Args) -> Result<(), String> {
    if args.duration < SHORTEST {
        return Err(format!("a culprit needs time to be seen: write --duration {SHORTEST} or more"));
    }
    match args.server.unwrap_or_else(choose) {
        Kind::Postgresql => on::<Postgres>(args).await,
        Kind::Testbed => on::<Hogs>(args).await,
    }
}

fn choose() -> Kind {
    match Postgres::is_there() {
        Ok(()) => {
            eprintln!(
                "There is a PostgreSQL on this machine. (`--server testbed` takes a small web service of our own.)"
            );
            Kind::Postgresql
        }
        Err(why) => {
            eprintln!("This shows a small web service of our own, for {why}.");
            Kind::Testbed
        }
    }
}

async fn on<S: Server>(args: &Args) -> Result<(), String> {
    let phases = Phases::within(args.duration);
    eprintln!("Starting two {} ...", S::STORY.servers);
    let directory = directory()?;
    let without = S::start(directory.path(), Side::Without).await?;
    let with = S::start(directory.path(), Side::With).await?;
    let agent = Agent::start(directory.path(), &with.watched()).await?;
    eprintln!(
        "{:.0} requests/s go to each for {}; seed {}. {}
\
         The agent watches the second one, and knows one thing: 99 of 100 requests are to take at most {} ms. {}
\
         After {} {}. Without help it lasts {}.
",
        S::RATE_PER_S,
        args.duration,
        args.seed,
        S::STORY.load,
        S::SLO_MS,
        S::STORY.agent,
        phases.culprit,
        S::STORY.plot,
        phases.hold(),
    );
    let view = RefCell::new(View::new(phases, S::STORY.comes));
    let events = RefCell::new(agent.events());
    let one = |server, side| {
        let (view, events) = (&view, &events);
        S::perform(server, phases, args.seed, move |now, ended| {
            let mut view = view.borrow_mut();
            view.observe(side, now, ended);
            if side == Side::With {
                events.borrow_mut().read().iter().for_each(|event| view.tell(now, event));
            }
        })
    };
    let runs = tokio::try_join!(one(&without, Side::Without), one(&with, Side::With))?;
    let mut events = events.into_inner();
    events.read();
    let outcome = Outcome::new(phases, [runs.0, runs.1], events.all());
    view.into_inner().finish();
    draw(args, &outcome.figure(S::SLO_MS))?;
    if args.json {
        let [without, with] = [Side::Without, Side::With].map(|side| outcome.side_json(side));
        println!(
            "{}",
            json!({
                "server": S::STORY.name, "seed": args.seed, "rate_per_s": S::RATE_PER_S, "slo_ms": S::SLO_MS,
                "culprit_at_s": phases.culprit.as_secs_f64(), "holds_s": phases.hold().as_secs_f64(),
                "without": without, "with": with, "events": outcome.events(),
            })
        );
    }
    eprint!("{outcome}");
    let seen = outcome.verdict()?;
    let program = program();
    eprintln!(
        "{seen}\n\
         {}\n\
         \n\
         Next: docs/postgres.md has the ten lines that watch a PostgreSQL, docs/agent.md those for a program of yours, at first without cancelling anybody.\n  \
           {program} agent --config plimsoll.toml --events -\n  \
           {program} reproduce atropos --quick",
        S::STORY.spared,
    );
    Ok(())
}
