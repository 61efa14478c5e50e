//! A whole store: shard and broker processes of this very program, which end with the process that started
//! them.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use plimsoll_core::Nanos;

use super::Options;
use crate::clock::Clock;

/// How long a process may take to end by itself.
const PATIENCE: Nanos = Nanos::from_secs(2);

/// One broker and its shards, each a process of its own. They are ended when it is dropped, and end by
/// themselves if this process dies.
pub struct Cluster {
    broker: Node,
    shards: Vec<Node>,
}

impl Cluster {
    /// Starts `program`, which must be a `plimsoll`, once for each shard and once for the broker, which
    /// listens on `listen`. Returns when all are ready.
    ///
    /// # Errors
    /// Where a process cannot be started or ends at once; it has said why on stderr.
    pub fn start(program: &Path, options: &Options, listen: SocketAddr) -> io::Result<Cluster> {
        let any_port = SocketAddr::new(listen.ip(), 0);
        let starting: Vec<Starting> = (0..options.shard.shards)
            .map(|index| {
                let role = ["--role".into(), "shard".into(), "--index".into(), index.to_string()];
                Starting::spawn(program, options, any_port, &role)
            })
            .collect::<io::Result<_>>()?;
        let shards: Vec<Node> = starting.into_iter().map(Starting::ready).collect::<io::Result<_>>()?;
        let mut role = vec!["--role".into(), "broker".into()];
        for shard in &shards {
            role.extend(["--shard-addr".into(), shard.addr.to_string()]);
        }
        let broker = Starting::spawn(program, options, listen, &role)?.ready()?;
        Ok(Cluster { broker, shards })
    }

    /// Where the broker takes queries.
    pub fn broker(&self) -> SocketAddr {
        self.broker.addr
    }

    /// Where the shards are, in the order of their index.
    pub fn shards(&self) -> impl Iterator<Item = SocketAddr> {
        self.shards.iter().map(|shard| shard.addr)
    }

    /// Fails where a process is gone.
    ///
    /// # Errors
    /// Names it.
    pub fn check(&mut self) -> io::Result<()> {
        for node in self.shards.iter_mut().chain([&mut self.broker]) {
            if let Some(status) = node.process.0.try_wait()? {
                return Err(io::Error::other(format!("the process at {} has ended: {status}", node.addr)));
            }
        }
        Ok(())
    }
}

struct Node {
    addr: SocketAddr,
    process: Process,
}

/// A process that has been started and has not said yet where it listens. All shards generate their parts
/// at the same time.
struct Starting(Process);

impl Starting {
    fn spawn(program: &Path, options: &Options, listen: SocketAddr, role: &[String]) -> io::Result<Starting> {
        let mut command = Command::new(program);
        command.args(["testbed", "graph", "--child", "--json", "--listen", &listen.to_string()]);
        command.args(options.to_args()).args(role);
        // Its end of the pipe closes when this process ends, however it ends: the child's sign to go.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map(|child| Starting(Process(child)))
    }

    fn ready(mut self) -> io::Result<Node> {
        let mut line = String::new();
        if let Some(stdout) = self.0.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let ready: Option<serde_json::Value> = serde_json::from_str(&line).ok();
        let addr = ready.and_then(|ready| ready["addr"].as_str()?.parse().ok());
        let addr = addr.ok_or_else(|| io::Error::other("a process of the graph store did not start"))?;
        Ok(Node { addr, process: self.0 })
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let clock = Clock::start();
        while clock.now() < PATIENCE {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            clock.sleep_until(clock.now() + Nanos::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
