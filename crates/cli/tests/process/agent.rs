//! The agent going over to another config: what is changed is watched anew, and all else goes on.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Log, Scratch, field, get, kill, wait_for};

/// A running agent.
pub struct Agent {
    child: Child,
    log: Log,
    config: PathBuf,
    admin: SocketAddr,
    _scratch: Scratch,
}

impl Agent {
    /// With the whole text of its config.
    pub fn start(config: &str) -> Agent {
        let scratch = Scratch::new();
        let path = scratch.0.join("agent.toml");
        std::fs::write(&path, config).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["agent", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Log::of(child.stderr.take().unwrap());
        let admin = field(&log.line("msg=\"agent ready\"", 1), "admin").parse().unwrap();
        Agent { child, log, config: path, admin, _scratch: scratch }
    }

    fn rewrite(&self, config: &str) {
        let new = self.config.with_extension("new");
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, &self.config).unwrap();
    }

    fn watched(&self, name: &str) -> Value {
        let status: Value = serde_json::from_str(&get(self.admin, "/status").unwrap().body).unwrap();
        status["watched"][name].clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the agent\n{}", self.log.lines().join("\n"));
        }
    }
}

/// On a port that is free, and of this host's threads nothing.
fn watching(tables: &[String]) -> String {
    let tables = tables.concat();
    format!("[agent]\nadmin = \"127.0.0.1:0\"\n[herald]\nreader = \"off\"\n{tables}")
}

/// A server that is not there; that, too, is watched.
fn server(name: &str, mode: &str) -> String {
    format!("[phpfpm.{name}]\nstatus = \"127.0.0.1:1\"\nslo = {{ p99 = \"50ms\" }}\nmode = \"{mode}\"\n")
}

#[test]
fn an_agent_goes_over_to_another_config_and_what_that_does_not_change_goes_on() {
    let agent = Agent::start(&watching(&[server("shop", "shadow"), server("news", "enforce")]));
    let failures = |name: &str| agent.watched(name)["errors"].as_u64().unwrap_or(0);
    wait_for("looks at both", || failures("shop") >= 4 && failures("news") >= 4);
    let before = failures("news");

    agent.rewrite(&watching(&[
        server("shop", "enforce"),
        server("news", "enforce"),
        server("blog", "shadow"),
    ]));
    agent.log.line("msg=reloaded", 1);
    assert_eq!(agent.watched("shop")["mode"], "enforce");
    wait_for("what is new to be watched", || failures("blog") > 0);
    assert!(failures("news") >= before, "it was left alone");
    assert!(failures("shop") < 4, "it was begun anew");

    agent.rewrite(&watching(&["[phpfpm.shop]\nstatus = 7\n".to_owned()]));
    kill(agent.child.id(), "-HUP");
    agent.log.line("agent.toml:6:10 error=\"`status`: 7 is not", 1);
    agent.log.line("msg=\"not reloaded; the running config stays\"", 1);
    agent.rewrite(&watching(&[]));
    kill(agent.child.id(), "-HUP");
    assert!(agent.log.line("msg=\"config cannot be used\"", 1).contains("nothing to watch"));
    assert_eq!(agent.watched("shop")["mode"], "enforce");

    agent.rewrite(&watching(&[server("news", "off")]));
    kill(agent.child.id(), "-HUP");
    agent.log.line("msg=reloaded", 2);
    wait_for("nothing to be watched", || {
        ["shop", "news", "blog"].iter().all(|name| agent.watched(name).is_null())
    });
    let metrics = get(agent.admin, "/metrics").unwrap().body;
    assert!(metrics.contains("plimsoll_agent_reloads_total{result=\"done\"} 2"), "{metrics}");
    assert!(!metrics.contains("plimsoll_agent_up{"), "{metrics}");
}

#[test]
fn what_an_agent_cannot_change_while_it_runs_is_said_and_its_token_can() {
    let agent = Agent::start(&watching(&[server("shop", "shadow")]));
    assert_eq!(get(agent.admin, "/status").unwrap().status, 200);
    agent.rewrite(&format!("[agent]\nadmin_token = \"correct-horse\"\n{}", server("shop", "shadow")));
    kill(agent.child.id(), "-HUP");
    let line = agent.log.line("takes effect when the agent is started anew", 1);
    assert!(line.contains("what=\"[agent] admin, [herald]\""), "{line}");
    assert_eq!(get(agent.admin, "/status").unwrap().status, 401);
    assert!(!agent.log.lines().join("").contains("correct-horse"));
}
