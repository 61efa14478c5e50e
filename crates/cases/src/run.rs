//! One run of a case: its server, its load, its tasks, and one remedy or none.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::Escalate;
use plimsoll_core::config::case::{CaseFile, CaseStep, Switch};
use plimsoll_testbed::clock::Clock;
use plimsoll_testbed::database::load::{Kind, Load};
use plimsoll_testbed::database::request::{Figures, Request};
use plimsoll_testbed::database::task::{Ending, Step, Task};
use plimsoll_testbed::envoy::Envoy;
use serde_json::Value;

use crate::protego::Protego;
use crate::stand::Stand;

/// How long tasks may take to end after the load has.
const PATIENCE: Duration = Duration::from_millis(100);
/// Requests that may wait for a connection: as many as come in so many seconds.
const QUEUE_S: f64 = 2.5;

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Remedy {
    /// Nothing.
    None,
    /// An agent watches.
    Plimsoll,
    /// Who waits in vain is given up, whoever is to blame.
    Protego,
    /// The server's time limits on statements, which is what people do today.
    Timeout,
    /// What else the server has for it.
    Native,
}

impl Remedy {
    /// As the command line has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Remedy::None => "none",
            Remedy::Plimsoll => "plimsoll",
            Remedy::Protego => "protego",
            Remedy::Timeout => "timeout",
            Remedy::Native => "native",
        }
    }

    /// Statements by which a server's administrator sets it up; nothing where the case has none.
    fn statements(self, case: &CaseFile) -> &[String] {
        match self {
            Remedy::None | Remedy::Plimsoll | Remedy::Protego => &[],
            Remedy::Timeout => &case.remedy.timeout,
            Remedy::Native => &case.remedy.native,
        }
    }

    /// Whether the case has it.
    pub fn applies(self, case: &CaseFile) -> bool {
        match self {
            Remedy::None | Remedy::Plimsoll => true,
            Remedy::Protego => Protego::applies(case.server.kind),
            Remedy::Native if self.is_envoy(case) => true,
            Remedy::Timeout | Remedy::Native => !self.statements(case).is_empty(),
        }
    }

    /// Whether it is an Envoy.
    fn is_envoy(self, case: &CaseFile) -> bool {
        self == Remedy::Native && case.remedy.envoy == Switch::Yes
    }

    /// Whether this machine has what it takes.
    ///
    /// # Errors
    /// What is missing, and the command that installs it.
    pub fn is_there(self, case: &CaseFile) -> Result<(), String> {
        if self.is_envoy(case) { Envoy::is_there() } else { Ok(()) }
    }
}

/// How long runs are, and who runs in them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Before what counts.
    pub warm_up: Nanos,
    /// What counts.
    pub length: Nanos,
    /// When the first task begins, from the beginning of what counts.
    pub trigger_at: Nanos,
    /// Decides what comes and when.
    pub seed: u64,
    /// The program whose `agent` watches.
    pub program: PathBuf,
}

/// What came of a run. Times are since the beginning of what counts.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The requests that count, in the order in which they were to be sent.
    pub requests: Vec<Request>,
    /// How the tasks ended, in the order of the file.
    pub endings: Vec<Ending>,
    /// What the agent said, if one watched.
    pub events: Vec<Value>,
    /// The time of day at which what counts began, in seconds since 1970.
    pub began_s: f64,
    /// What the server calls itself.
    pub version: String,
}

impl Outcome {
    /// Of all requests that count.
    pub fn figures(&self, plan: &Plan) -> Figures {
        Figures::between(&self.requests, Nanos::ZERO, plan.length)
    }
}

/// Runs a case with a remedy, which comes with what 99 % of the requests are promised; or undisturbed: without its tasks.
///
/// # Errors
/// What could not be started, in words.
pub async fn run(case: &CaseFile, remedy: Option<(Remedy, Nanos)>, plan: &Plan) -> Result<Outcome, String> {
    let watches = matches!(remedy, Some((Remedy::Plimsoll, _)));
    let mut stand = Stand::set(case, watches).await?;
    let version = stand.version().await?;
    if let Some((remedy, _)) = remedy {
        stand.administer(remedy.statements(case)).await?;
        if remedy.is_envoy(case) {
            stand.put_envoy_before()?;
        }
    }
    let agent = match remedy {
        Some((Remedy::Plimsoll, slo)) => {
            stand.put_sentry_before(case, &plan.program)?;
            Some(stand.watch(case, slo, &plan.program)?)
        }
        _ => None,
    };
    let protego = match remedy {
        Some((Remedy::Protego, slo)) => {
            Some(Protego::start(&stand.watched(case, slo, Escalate::Never), slo)?)
        }
        _ => None,
    };
    let loading = stand.load(load(case, plan)).await?;
    let clock = loading.clock();
    let began_s = clock.began_s() + plan.warm_up.as_secs_f64();
    let mut tasks = Vec::new();
    if remedy.is_some() {
        for (name, task) in &case.task.0 {
            sleep_until(clock, plan.warm_up + plan.trigger_at + task.after).await;
            let admin = task.admin == Switch::Yes;
            for _ in 0..task.copies {
                let steps = vec![steps(&task.steps); task.times as usize].concat();
                tasks.push(stand.task(name, admin, steps, clock).await?);
            }
        }
    }
    let requests = loading.finished().await;
    let endings = ended(tasks, plan.warm_up).await;
    protego.map_or(Ok(()), Protego::stop)?;
    let events = agent.map_or(Ok(Vec::new()), plimsoll_testbed::agent::Agent::stop)?;
    let counts = requests.into_iter().filter(|request| request.at >= plan.warm_up);
    let requests = counts.map(|request| Request { at: request.at.since(plan.warm_up), ..request }).collect();
    Ok(Outcome { requests, endings, events, began_s, version })
}

/// What is asked of its server, for the length of a run.
pub fn load(case: &CaseFile, plan: &Plan) -> Load {
    let kinds = case.request.0.iter().map(|(_, request)| Kind {
        text: request.text(),
        share: request.share,
        parameters: request.parameters.iter().map(|span| (span.from, span.to)).collect(),
    });
    let rate_per_s = case.load.rate.per_s;
    Load {
        rate_per_s,
        length: plan.warm_up + plan.length,
        connections: case.load.connections as usize,
        queue: (rate_per_s * QUEUE_S).ceil().max(1.0) as usize,
        seed: plan.seed,
        kinds: kinds.collect(),
    }
}

fn steps(steps: &[CaseStep]) -> Vec<Step> {
    let step = |step: &CaseStep| match step {
        CaseStep::Run(sql) => Step::Run(sql.clone()),
        CaseStep::Call(call) => Step::Run(call.to_string()),
        CaseStep::Wait(length) => Step::Idle(*length),
    };
    steps.iter().map(step).collect()
}

async fn ended(tasks: Vec<Task>, warm_up: Nanos) -> Vec<Ending> {
    let mut endings = Vec::new();
    for task in tasks {
        let ending = task.ended(PATIENCE).await;
        endings.push(Ending { from: ending.from.since(warm_up), to: ending.to.since(warm_up), ..ending });
    }
    endings
}

async fn sleep_until(clock: Clock, at: Nanos) {
    tokio::time::sleep(at.since(clock.now()).into()).await;
}
