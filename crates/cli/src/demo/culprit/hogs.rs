//! The testbed's web service on the SDK. One of its requests takes the lock of the table and keeps it; all others need it for a moment.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use http::Method;
use http::uri::PathAndQuery;
use plimsoll_core::Nanos;
use plimsoll_core::config::mix::{self, Mix};
use plimsoll_loadgen::{Entry, HttpVersion, Outcome, Plan, Rate};
use plimsoll_testbed::clock::Clock;

use super::super::{PATIENCE, Side};
use super::stage::{Ending, Fate, Other, Phases, Request, Run, Server, Story};
use crate::processes::{Process, ask, plimsoll, uri};

const CULPRIT: &str = "/hog/lock";
const BYSTANDER: &str = "/slow";

/// A web service with its account.
pub struct Hogs {
    addr: SocketAddr,
    /// What it calls itself in its ledger.
    app: String,
    ledgers: PathBuf,
    _process: Process,
}

impl Server for Hogs {
    const STORY: Story = Story {
        name: "testbed",
        servers: "copies of a small web service that accounts through the SDK for what its requests hold",
        load: "Each of them (/item) needs the lock of a table for a moment.",
        agent: "It reads the service's account, and asks it to cancel.",
        plot: "a request takes that lock and keeps it (/hog/lock). Another is as slow and innocent (/slow)",
        comes: "/hog/lock takes the lock that everybody needs",
        spared: "Those who waited and the slow request beside them were left alone.",
    };
    // While it stands still and clients wait, it has all of them to keep.
    const RATE_PER_S: f64 = 100.0;
    // On a machine that is busy with something else a request may have the lock for long just because it has no processor.
    const SLO_MS: u64 = 500;

    async fn start(directory: &Path, side: Side) -> Result<Hogs, String> {
        let ledgers = directory.join(side.as_str());
        let mut command = plimsoll()?;
        command.args(["testbed", "hogs", "--listen", "127.0.0.1:0"]).env("PLIMSOLL_DIR", &ledgers);
        let (process, ready) = Process::start_testbed(command, "the web service")?;
        let addr = ready["addr"].as_str().and_then(|addr| addr.parse().ok());
        match (addr, ready["app"].as_str()) {
            (Some(addr), Some(app)) => Ok(Hogs { addr, app: app.to_owned(), ledgers, _process: process }),
            _ => Err(format!("the web service did not say where it is: {ready}")),
        }
    }

    fn watched(&self) -> String {
        let Hogs { app, ledgers, .. } = self;
        format!("ledgers = [{ledgers:?}]\n\n[app.{app}]\nslo = {{ p99 = \"{}ms\" }}\n", Self::SLO_MS)
    }

    async fn perform(
        &self,
        phases: Phases,
        seed: u64,
        mut observe: impl FnMut(Nanos, Vec<Request>),
    ) -> Result<Run, String> {
        let rate = Rate::constant(Self::RATE_PER_S);
        let mut plan = Plan::new(uri(self.addr), items(), rate, phases.end, HttpVersion::Http1);
        (plan.timeout, plan.seed, plan.tells_each) = (PATIENCE, seed, true);
        let mut requests = Vec::new();
        let load = plimsoll_loadgen::run(&plan, |progress| {
            let ended: Vec<Request> = progress.ended().map(|(_, entry)| request(entry)).collect();
            requests.extend_from_slice(&ended);
            observe(progress.elapsed, ended);
            ControlFlow::Continue(())
        });
        let others = async {
            tokio::time::sleep(phases.culprit.into()).await;
            let one = |path| other(self.addr, path, phases.hold());
            Ok::<_, String>(tokio::join!(one(CULPRIT), one(BYSTANDER)))
        };
        let (_, (culprit, bystander)) = tokio::try_join!(load, others)?;
        requests.sort_by_key(|request| request.at);
        Ok(Run { requests, culprit, bystander })
    }
}

fn items() -> Mix {
    let item = mix::Request {
        name: "item".to_owned(),
        method: Method::GET,
        path: PathAndQuery::from_static("/item"),
        share: 1.0,
        body: String::new(),
        headers: Vec::new(),
        deadline: None,
    };
    Mix { requests: vec![item] }
}

fn request(&Entry { at, outcome, latency }: &Entry) -> Request {
    let fate = match outcome {
        Outcome::Ok => Fate::Answered,
        // It says 503 to what was cancelled, and to nothing else.
        Outcome::Rejected | Outcome::RefusedOther => Fate::Cancelled,
        Outcome::Error(_) => Fate::Lost,
    };
    Request { at, latency, fate }
}

/// A request that is to last so long.
async fn other(addr: SocketAddr, path: &str, hold: Nanos) -> Other {
    let clock = Clock::start();
    let ending = match ask(addr, &format!("{path}?seconds={}", hold.as_secs_f64())).await {
        Ok((200, _)) => Ending::Finished,
        Ok((503, _)) => Ending::Cancelled,
        Ok((status, text)) => Ending::Failed(format!("{status} {}", text.trim_end())),
        Err(error) => Ending::Failed(error.to_string()),
    };
    Other { name: format!("GET {path}"), lasted: clock.now(), ending }
}
