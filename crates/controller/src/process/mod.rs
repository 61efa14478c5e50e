//! Servers that are processes on this host.
//!
//! Each has a port. It is started, found ready, and offered to the sentries; when it is given back the sentries are told first,
//! then it finishes what it has, then it is asked to end, then it is killed. One that dies is replaced, ever more slowly where
//! that keeps happening. When the controller ends they stay, and the next one adopts them.

mod child;
mod notes;

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use http::uri::PathAndQuery;
use plimsoll_core::Nanos;
use plimsoll_core::config::{Scheme, Server};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::child::Process;
use self::notes::{Note, Notes};
use crate::ask::ask;
use crate::backoff::Backoff;
use crate::more_sentries::NextShare;
use crate::provider::{Provider, Reality, Traffic};

/// How long a server that should be ready may take to say so. A tick waits for it, so it is not long.
const PATIENCE: Duration = Duration::from_secs(1);
/// A server that has been ready for so long was no failure, whatever becomes of it.
const PROVEN: Nanos = Nanos::from_secs(30);

/// What is started, and where.
#[derive(Clone, Debug)]
pub struct Spec {
    /// What the log calls it.
    pub name: String,
    /// The program and its arguments; `{port}` becomes the port, and a sentry's `{share}` its share.
    pub command: Vec<String>,
    /// Ports of 127.0.0.1, one a process.
    pub ports: Vec<u16>,
    /// What a server that is ready answers to GET with 2xx; without, it must accept a connection.
    pub ready: Option<PathAndQuery>,
    /// Most processes at once, in whatever phase.
    pub most: u32,
    /// How long one may take until it is ready.
    pub start_timeout: Nanos,
    /// How long the sentries may take until nothing of theirs is there any more.
    pub drain_timeout: Nanos,
    /// How long one may take to end.
    pub stop_timeout: Nanos,
    /// Where the processes are sentries, what only they need.
    pub sentries: Option<NextShare>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Not ready since then.
    Starting(Nanos),
    /// Ready since then.
    Ready(Nanos),
    /// Given back: nothing new reaches it since then.
    Leaving(Nanos),
    /// Asked to end then; whether it has been killed as well.
    Ending(Nanos, bool),
}

struct Instance {
    port: u16,
    process: Process,
    phase: Phase,
    /// Its place among all servers; one that was adopted when there were too many has none.
    _place: Option<OwnedSemaphorePermit>,
}

impl Instance {
    fn ask_to_end(&mut self, spec: &Spec, now: Nanos) {
        match spec.sentries {
            // A worker that is asked beside its parent would stop accepting before the parent has left the port.
            Some(_) => self.process.terminate_alone(),
            None => self.process.terminate(),
        }
        self.phase = Phase::Ending(now, false);
    }
}

/// The processes of one pool.
pub struct Processes {
    spec: Spec,
    notes: Notes,
    /// Places for servers of all pools.
    places: Arc<Semaphore>,
    /// The oldest first.
    instances: Vec<Instance>,
    backoff: Backoff,
    /// The port that was tried last: the next attempt is made elsewhere.
    last_port: u16,
    trouble: Option<String>,
    failures: u64,
    /// Whether one more could be started, but for its share.
    waits: bool,
}

impl Processes {
    /// Adopts what an earlier controller left. `directory` is this pool's own.
    ///
    /// # Errors
    /// Where the directory cannot be made.
    pub fn open(spec: Spec, directory: &Path, places: Arc<Semaphore>, now: Nanos) -> io::Result<Processes> {
        let notes = Notes::open(directory)?;
        let mut instances = Vec::new();
        for (port, note) in notes.read() {
            match Process::adopt(note.identity) {
                Some(process) => {
                    log::info!(pool:% = spec.name, port, pid = process.pid(); "server adopted");
                    let phase = match (spec.ports.contains(&port), note.ready) {
                        // It has requests, and must not be missing until it has been asked.
                        (true, true) => Phase::Ready(now),
                        (true, false) => Phase::Starting(now),
                        // Where the ports are others now it is not offered, and ends.
                        (false, _) => Phase::Leaving(now),
                    };
                    let place = Arc::clone(&places).try_acquire_owned().ok();
                    instances.push(Instance { port, process, phase, _place: place });
                }
                None => notes.remove(port),
            }
        }
        Ok(Processes {
            last_port: spec.ports.last().copied().unwrap_or(0),
            spec,
            notes,
            places,
            instances,
            backoff: Backoff::default(),
            trouble: None,
            failures: 0,
            waits: false,
        })
    }

    fn failed(&mut self, now: Nanos, what: String) {
        log::warn!(pool:% = self.spec.name, what:%; "server failed");
        self.failures += 1;
        self.backoff.failed(now);
        self.trouble = Some(what);
    }

    /// Takes note of those that have ended.
    fn bury(&mut self, now: Nanos) {
        let (alive, dead): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.instances).into_iter().partition(|instance| instance.process.is_alive());
        self.instances = alive;
        for Instance { port, process, phase, .. } in dead {
            self.notes.remove(port);
            let how = process.bury();
            match phase {
                Phase::Starting(_) => {
                    self.failed(now, format!("port {port}: ended before it was ready ({how})"))
                }
                Phase::Ready(since) => {
                    if now.since(since) >= PROVEN {
                        self.backoff.succeeded();
                    }
                    self.failed(now, format!("port {port}: ended ({how})"));
                }
                Phase::Leaving(_) | Phase::Ending(..) => {
                    log::info!(pool:% = self.spec.name, port, status:% = how; "server returned");
                }
            }
        }
    }

    /// Asks those that are starting whether they are ready.
    async fn look(&mut self, now: Nanos) {
        let path = self.spec.ready.as_ref();
        let starting =
            self.instances.iter().enumerate().filter(|(_, i)| matches!(i.phase, Phase::Starting(_)));
        let answers =
            join_all(starting.map(async |(i, instance)| (i, is_ready(instance.port, path).await))).await;
        for (i, is_ready) in answers {
            let instance = &mut self.instances[i];
            let Phase::Starting(since) = instance.phase else { continue };
            let took = now.since(since);
            // Somebody else may have answered at its port.
            if is_ready && instance.process.is_alive() {
                let took_ms = took.as_millis_f64();
                log::info!(pool:% = self.spec.name, port = instance.port, took_ms; "server ready");
                instance.phase = Phase::Ready(now);
                write(&self.notes, &self.spec.name, instance, true);
            } else if took > self.spec.start_timeout {
                let port = instance.port;
                instance.ask_to_end(&self.spec, now);
                self.failed(now, format!("port {port}: not ready after {took}"));
            }
        }
        // Good again once what is there has proved itself.
        let proven = |i: &Instance| matches!(i.phase, Phase::Ready(since) if now.since(since) >= PROVEN);
        if self.backoff.is_failing() && self.backoff.allows(now) && self.instances.iter().any(proven) {
            let unsettled =
                |i: &Instance| matches!(i.phase, Phase::Ready(since) if now.since(since) < PROVEN);
            if !self.instances.iter().any(unsettled) {
                self.backoff.succeeded();
                self.trouble = None;
            }
        }
    }

    /// A server that all sentries find dead is replaced, one after the other.
    fn replace_down(&mut self, traffic: &Traffic, now: Nanos) {
        if !self.backoff.allows(now) {
            return;
        }
        let is_down =
            |i: &&mut Instance| matches!(i.phase, Phase::Ready(_)) && traffic.down.contains(&server(i.port));
        if let Some(instance) = self.instances.iter_mut().find(is_down) {
            let port = instance.port;
            instance.phase = Phase::Leaving(now);
            self.failed(now, format!("port {port}: the sentries find it down"));
        }
    }

    /// Gives back what is too much, the youngest first.
    fn trim(&mut self, wanted: usize, now: Nanos) {
        let wanted_now = |i: &Instance| matches!(i.phase, Phase::Starting(_) | Phase::Ready(_));
        let mut here = self.instances.iter().filter(|i| wanted_now(i)).count();
        for instance in self.instances.iter_mut().rev() {
            if here <= wanted {
                break;
            }
            match instance.phase {
                Phase::Starting(_) => instance.ask_to_end(&self.spec, now),
                Phase::Ready(_) => {
                    log::info!(pool:% = self.spec.name, port = instance.port; "server given back");
                    instance.phase = Phase::Leaving(now);
                }
                Phase::Leaving(_) | Phase::Ending(..) => continue,
            }
            here -= 1;
        }
    }

    /// Lets those go that have nothing left to do.
    fn end(&mut self, traffic: &Traffic, now: Nanos) {
        for instance in &mut self.instances {
            match instance.phase {
                Phase::Leaving(since) => {
                    let overdue = now.since(since) >= self.spec.drain_timeout;
                    if overdue || !traffic.in_use.contains(&server(instance.port)) {
                        instance.ask_to_end(&self.spec, now);
                    }
                }
                Phase::Ending(since, false) if now.since(since) >= self.spec.stop_timeout => {
                    log::warn!(pool:% = self.spec.name, port = instance.port; "server does not end, killed");
                    instance.process.kill();
                    instance.phase = Phase::Ending(since, true);
                }
                _ => {}
            }
        }
    }

    /// Starts what is missing: all at once, or one at a time while that fails.
    fn start(&mut self, wanted: usize, now: Nanos) {
        self.waits = false;
        loop {
            let count = |of: fn(Phase) -> bool| self.instances.iter().filter(|i| of(i.phase)).count();
            let starting = count(|phase| matches!(phase, Phase::Starting(_)));
            let missing = wanted.saturating_sub(starting + count(|phase| matches!(phase, Phase::Ready(_))));
            let one_by_one = self.backoff.is_failing() && starting > 0;
            let full = self.instances.len() >= self.spec.most as usize;
            if missing == 0 || one_by_one || full || !self.backoff.allows(now) {
                return;
            }
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return };
            let Some(port) = self.free_port() else {
                return self.failed(now, "no port is free".to_owned());
            };
            let share = self.spec.sentries.as_ref().map(NextShare::take);
            if let Some(None) = share {
                self.waits = true;
                return;
            }
            self.last_port = port;
            let share = share.flatten().map(|share| share.to_string()).unwrap_or_default();
            let fill = |word: &String| word.replace("{port}", &port.to_string()).replace("{share}", &share);
            let command: Vec<String> = self.spec.command.iter().map(fill).collect();
            match Process::start(&command) {
                Ok(process) => {
                    log::info!(pool:% = self.spec.name, port, pid = process.pid(); "server started");
                    let instance =
                        Instance { port, process, phase: Phase::Starting(now), _place: Some(place) };
                    write(&self.notes, &self.spec.name, &instance, false);
                    self.instances.push(instance);
                }
                Err(error) => return self.failed(now, format!("{}: {error}", command[0])),
            }
        }
    }

    /// The next port that nobody listens on.
    fn free_port(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.instances.iter().map(|instance| instance.port).collect();
        let after = self.spec.ports.iter().position(|&port| port == self.last_port).map_or(0, |i| i + 1);
        let (before, behind) = self.spec.ports.split_at(after.min(self.spec.ports.len()));
        behind
            .iter()
            .chain(before)
            .copied()
            .find(|port| !taken.contains(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
    }

    fn reality(&self) -> Reality {
        let count = |of: fn(Phase) -> bool| self.instances.iter().filter(|i| of(i.phase)).count();
        let ready = self.instances.iter().filter(|i| matches!(i.phase, Phase::Ready(_)));
        let starting = count(|phase| matches!(phase, Phase::Starting(_)));
        let ready: Vec<Server> = ready.map(|instance| server(instance.port)).collect();
        Reality {
            leaving: (self.instances.len() - starting - ready.len()) as u32,
            starting: starting as u32,
            waits: self.waits,
            ready,
            trouble: self.trouble.clone(),
            failures: self.failures,
        }
    }
}

impl Provider for Processes {
    const EVERY: Duration = Duration::from_millis(200);

    async fn present(&mut self) -> Result<u32, String> {
        let stays = |i: &&Instance| matches!(i.phase, Phase::Starting(_) | Phase::Ready(_));
        Ok(self.instances.iter().filter(stays).count() as u32)
    }

    async fn step(&mut self, wanted: u32, traffic: &Traffic, now: Nanos) -> Result<Reality, String> {
        let wanted = wanted.min(self.spec.most) as usize;
        self.bury(now);
        self.look(now).await;
        self.replace_down(traffic, now);
        self.trim(wanted, now);
        self.end(traffic, now);
        self.start(wanted, now);
        Ok(self.reality())
    }
}

/// Notes a server for the next controller.
fn write(notes: &Notes, pool: &str, instance: &Instance, ready: bool) {
    let note = Note { identity: instance.process.identity(), ready };
    if let Err(error) = notes.write(instance.port, note) {
        // It still serves; only the next controller will not know of it.
        log::error!(pool, port = instance.port, error:%; "cannot note a server");
    }
}

fn server(port: u16) -> Server {
    Server { scheme: Scheme::Http, host: Ipv4Addr::LOCALHOST.to_string(), port }
}

async fn is_ready(port: u16, path: Option<&PathAndQuery>) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match path {
        Some(path) => {
            let answer = ask(address, Method::GET, path.as_str(), None, Vec::new(), PATIENCE).await;
            answer.is_ok_and(|(status, _)| status.is_success())
        }
        None => timeout(PATIENCE, TcpStream::connect(address)).await.is_ok_and(|stream| stream.is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_all_sentries_find_down_is_replaced_when_they_are_done_with_it() {
        let free = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let ports = free.map(|listener| listener.local_addr().unwrap().port());
        let spec = Spec {
            name: "test".to_owned(),
            command: vec!["sleep".to_owned(), "1000".to_owned()],
            ports: ports.to_vec(),
            ready: None,
            most: 2,
            start_timeout: Nanos::from_secs(1_000),
            drain_timeout: Nanos::from_secs(1_000),
            stop_timeout: Nanos::from_secs(1_000),
            sentries: None,
        };
        let directory = tempfile::tempdir().unwrap();
        let places = Arc::new(Semaphore::new(2));
        let at = Nanos::from_secs;
        let mut servers = Processes::open(spec, directory.path(), places, at(0)).unwrap();
        let quiet = Traffic::default();
        assert_eq!(servers.step(1, &quiet, at(0)).await.unwrap().starting, 1);
        // It answers by this test at its port.
        let _listens = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0])).unwrap();
        let first = [server(ports[0])];
        assert_eq!(servers.step(1, &quiet, at(1)).await.unwrap().ready, first);
        assert_eq!(servers.step(1, &quiet, at(40)).await.unwrap().ready, first, "nobody finds it down");

        let down = Traffic { down: first.clone().into(), in_use: first.into() };
        let reality = servers.step(1, &down, at(41)).await.unwrap();
        assert_eq!((reality.ready, reality.leaving, reality.failures), (vec![], 1, 1));
        assert_eq!(reality.trouble, Some(format!("port {}: the sentries find it down", ports[0])));
        let reality = servers.step(1, &down, at(100)).await.unwrap();
        assert_eq!((reality.starting, reality.leaving), (1, 1), "another, while the first has requests");
        let _listens_too = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[1])).unwrap();
        assert_eq!(servers.step(1, &down, at(101)).await.unwrap().ready, [server(ports[1])]);

        // Both are let go.
        let mut now = at(102);
        while servers.step(0, &quiet, now).await.unwrap().leaving > 0 {
            now += Nanos::from_millis(1);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            servers.reality(),
            Reality { failures: 1, trouble: servers.trouble.clone(), ..Reality::default() }
        );
    }
}
