//! A case, set up and run: undisturbed, or with its culprit and nobody who does anything about it.

use std::time::Duration;

use plimsoll_core::Nanos;

use super::cases::{Case, Dose};
use super::load::{Kind, Load};
use super::loading::Loading;
use super::request::{Figures, Request};
use super::server::{Options, Server};
use super::session::Session;
use super::tables::{Scale, fill};
use super::task::{Ending, Task};

/// Keeps figures of each kind of statement, where it is installed; whoever watches the server may use them.
const STATEMENTS: &str = "pg_stat_statements";
/// How long those who overload the server may take to end after the load has.
const PATIENCE: Duration = Duration::from_millis(100);

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Requests a second.
    pub rate_per_s: f64,
    /// Before what counts: after a checkpoint the first change of every page is dear, and caches are cold.
    pub warm_up: Nanos,
    /// What counts.
    pub length: Nanos,
    /// When the culprit begins, from the beginning of what counts; never in an undisturbed run.
    pub trigger_at: Option<Nanos>,
    /// How much it does.
    pub dose: Dose,
    /// Whether somebody slow but innocent works beside it, from the beginning of what counts.
    pub innocent: bool,
    /// Decides what comes and when.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            rate_per_s: 400.0,
            warm_up: Nanos::from_secs(5),
            length: Nanos::from_secs(30),
            trigger_at: Some(Nanos::from_secs(8)),
            dose: Dose::default(),
            innocent: false,
            seed: 1,
        }
    }
}

/// What came of a run. Times are since the beginning of what counts.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The requests that count, in the order in which they were to be sent.
    pub requests: Vec<Request>,
    /// How the tasks ended, in the order in which they came; an innocent one is the first.
    pub endings: Vec<Ending>,
    /// Figures of all requests.
    pub figures: Figures,
}

/// A server on which a case is ready to happen.
pub struct Stage {
    case: Case,
    scale: Scale,
    /// The server.
    pub server: Server,
}

impl Stage {
    /// Starts a server as the case needs it, and fills its tables. Where `options` says something about the same it goes before.
    ///
    /// # Errors
    /// Where the server does not start, or this machine has no slow disk to give where the case needs one.
    pub async fn set(case: Case, options: &Options) -> Result<Stage, String> {
        let ground = case.ground();
        let server = Server::start(&Options {
            settings: [ground.settings, options.settings.clone()].concat(),
            memory_bytes: options.memory_bytes.or(ground.memory_bytes),
            ..options.clone()
        })?;
        let session = Session::connect(&server.config("setup")).await?;
        fill(&session, ground.scale).await?;
        if server.preloaded().iter().any(|library| library == STATEMENTS) {
            session.run(&format!("create extension {STATEMENTS}")).await?;
        }
        if let Some(disk) = ground.disk {
            server.slow_down(disk)?;
        }
        Ok(Stage { case, scale: ground.scale, server })
    }

    /// What everybody asks: half of the requests change an account, three tenths read one, two tenths add to the history.
    pub fn load(&self, plan: &Plan) -> Load {
        let account = (1, i64::from(self.scale.accounts));
        let kind = |share, sql: &str, parameters: &[(i64, i64)]| Kind {
            text: sql.to_owned(),
            share,
            parameters: parameters.to_vec(),
        };
        let amount = (-100, 100);
        Load {
            rate_per_s: plan.rate_per_s,
            length: plan.warm_up + plan.length,
            connections: 32,
            // As many as come in two seconds and a half.
            queue: (plan.rate_per_s * 2.5).ceil() as usize,
            seed: plan.seed,
            kinds: vec![
                kind(5.0, "update account set balance = balance + $1 where id = $2", &[amount, account]),
                kind(3.0, "select balance from account where id = $1", &[account]),
                kind(2.0, "insert into history (account, delta) values ($1, $2)", &[account, amount]),
            ],
        }
    }

    /// Runs the load, and the culprit if the plan has one.
    ///
    /// # Errors
    /// Where the load or the culprit cannot begin.
    pub async fn run(&self, plan: &Plan) -> Result<Outcome, String> {
        let loading = self.load(plan).start(self.server.client("load")).await?;
        let tasks = self.disturb(plan, &loading).await?;
        Ok(Outcome::of(plan, loading, tasks).await)
    }

    /// Starts the tasks of the plan when their time has come.
    ///
    /// # Errors
    /// Where one cannot begin.
    pub async fn disturb(&self, plan: &Plan, loading: &Loading) -> Result<Vec<Task>, String> {
        let clock = loading.clock();
        let until = async |at: Nanos| tokio::time::sleep((plan.warm_up + at).since(clock.now()).into()).await;
        let mut tasks = Vec::new();
        if plan.innocent {
            until(Nanos::ZERO).await;
            tasks.push(Case::innocent(&self.server, plan.length, clock).await?);
        }
        if let Some(at) = plan.trigger_at {
            until(at).await;
            tasks.extend(self.case.trigger(&self.server, plan.dose, clock).await?);
        }
        Ok(tasks)
    }
}

impl Outcome {
    /// Waits for the load, and for the tasks if they are about to end, too.
    pub async fn of(plan: &Plan, loading: Loading, tasks: Vec<Task>) -> Outcome {
        let requests = loading.finished().await;
        let mut endings = Vec::new();
        for task in tasks {
            endings.push(task.ended(PATIENCE).await);
        }
        let counts = requests.iter().filter(|request| request.at >= plan.warm_up);
        let requests: Vec<Request> =
            counts.map(|request| Request { at: request.at.since(plan.warm_up), ..*request }).collect();
        let endings = endings.into_iter().map(|ending| Ending {
            from: ending.from.since(plan.warm_up),
            to: ending.to.since(plan.warm_up),
            ..ending
        });
        let figures = Figures::between(&requests, Nanos::ZERO, plan.length);
        Outcome { endings: endings.collect(), figures, requests }
    }
}
