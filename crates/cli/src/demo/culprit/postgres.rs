//! A stock PostgreSQL. Somebody has read a table and keeps the transaction open, which harms nobody; a migration wants to change that
//! table, and waits; and behind the migration everybody waits.

use std::path::Path;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_testbed::postgres as testbed;
use plimsoll_testbed::postgres::agent::{ROLE, make_role};
use plimsoll_testbed::postgres::request::{CANCELLED, TERMINATED};
use plimsoll_testbed::postgres::stage::Outcome;
use plimsoll_testbed::postgres::{Case, Dose, How, Options, Plan, Stage};
use tokio::time::interval;

use super::super::Side;
use super::stage::{Ending, Fate, Other, Phases, Request, Run, Server, Story};

/// From one look at the load to the next.
const LOOK: Duration = Duration::from_millis(250);

/// A server with its tables.
pub struct Postgres(Stage);

impl Postgres {
    /// Whether this machine has one.
    pub fn is_there() -> Result<(), String> {
        testbed::Server::is_there(&Options::default())
    }
}

impl Server for Postgres {
    const STORY: Story = Story {
        name: "postgresql",
        servers: "servers, PostgreSQL as it comes, and filling their tables",
        load: "They read and change single rows of the table `account`.",
        agent: "Its role is a member of pg_monitor and pg_signal_backend, and of nothing else.",
        plot: "somebody reads that table and forgets to end the transaction. Then a migration wants to alter it",
        comes: "a migration waits for a forgotten transaction, and everybody else for the migration",
        spared: "Those who waited and the forgotten transaction were left alone. The migration may be tried again.",
    };
    const RATE_PER_S: f64 = 300.0;
    const SLO_MS: u64 = 50;

    async fn start(_: &Path, _: Side) -> Result<Postgres, String> {
        let stage = Stage::set(Case::AlterIdle, &Options::default()).await?;
        make_role(&stage.server).await?;
        Ok(Postgres(stage))
    }

    fn watched(&self) -> String {
        let port = self.0.server.port();
        format!(
            "\n[postgres.bank]\n\
             dsn = \"postgres://{ROLE}@127.0.0.1:{port}/postgres\"\n\
             slo = {{ p99 = \"{}ms\" }}\n",
            Self::SLO_MS
        )
    }

    async fn perform(
        &self,
        phases: Phases,
        seed: u64,
        mut observe: impl FnMut(Nanos, Vec<Request>),
    ) -> Result<Run, String> {
        let Postgres(stage) = self;
        let plan = Plan {
            rate_per_s: Self::RATE_PER_S,
            warm_up: Nanos::ZERO,
            length: phases.end,
            trigger_at: Some(phases.culprit),
            dose: Dose { hold: phases.hold(), ..Dose::default() },
            innocent: false,
            seed,
        };
        let loading = stage.load(&plan).start(stage.server.client("load")).await?;
        let watch = async {
            let (mut ticks, mut seen) = (interval(LOOK), 0);
            while loading.now() < phases.end {
                ticks.tick().await;
                let ended = loading.ended_after(seen);
                seen += ended.len();
                observe(loading.now(), ended.iter().map(request).collect());
            }
            Ok::<(), String>(())
        };
        let (tasks, ()) = tokio::try_join!(stage.disturb(&plan, &loading), watch)?;
        let Outcome { requests, endings, .. } = Outcome::of(&plan, loading, tasks).await;
        let [bystander, culprit]: [Other; 2] = endings
            .into_iter()
            .map(other)
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|_| "there are to be a transaction and a migration")?;
        Ok(Run { requests: requests.iter().map(request).collect(), culprit, bystander })
    }
}

fn request(request: &testbed::Request) -> Request {
    use testbed::request::Outcome;
    let fate = match request.outcome {
        Outcome::Ok => Fate::Answered,
        Outcome::Failed(CANCELLED | TERMINATED) | Outcome::Ended => Fate::Cancelled,
        Outcome::Failed(_) | Outcome::Status(_) | Outcome::Refused | Outcome::Lost | Outcome::Unanswered => {
            Fate::Lost
        }
    };
    Request { at: request.at, latency: request.latency, fate }
}

fn other(testbed::Ending { pid, from, to, how, .. }: testbed::Ending) -> Other {
    let ending = match how {
        How::Finished => Ending::Finished,
        How::Cancelled | How::Terminated => Ending::Cancelled,
        How::Failed(why) => Ending::Failed(why),
        How::Abandoned => Ending::Failed("it did not end".to_owned()),
    };
    Other { name: format!("backend {pid}"), lasted: to.since(from), ending }
}
