//! Which threads somebody wants to know about.

use std::collections::{BTreeSet, HashMap, HashSet};

use http::{StatusCode, Uri};
use plimsoll_core::Nanos;
use plimsoll_cpufutures::TaskId;
use plimsoll_herald::listening::Unknown;
use plimsoll_herald::view::Report;
use plimsoll_herald::{Described, Herald, listening};
use rustix::process::{Pid, test_kill_process};

use super::Refusal;

/// The kernel keeps so many bytes of a name.
const LONGEST_COMM: usize = 15;

/// As it was asked for; what is not there selects nothing away.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    pid: Option<u32>,
    comm: Option<String>,
    port: Option<u16>,
}

/// What a query asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// About whom.
    pub selection: Selection,
    /// From which predicted slowdown on one is to be told of; nothing for a single answer.
    pub bound: Option<f64>,
}

impl Query {
    /// Reads `?pid=4711&comm=nginx&port=8080&bound=5`.
    ///
    /// # Errors
    /// What is wrong with it, and what to write.
    pub fn parse(uri: &Uri) -> Result<Query, Refusal> {
        let mut query = Query { selection: Selection::default(), bound: None };
        let mut seen = HashSet::new();
        for (key, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let wrong = |example: &str| {
                Refusal::new(
                    StatusCode::BAD_REQUEST,
                    format!("`{key}={value}` makes no sense; write for example {example}"),
                )
            };
            if !seen.insert(key.clone()) {
                return Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    format!("`{key}` is there twice; remove one"),
                ));
            }
            let Query { selection, bound } = &mut query;
            match &*key {
                "pid" => {
                    let pid = value.parse().ok().filter(|&pid: &u32| pid > 0 && pid <= i32::MAX as u32);
                    selection.pid = Some(pid.ok_or_else(|| wrong("pid=4711"))?);
                }
                "comm" if value.is_empty() => return Err(wrong("comm=nginx")),
                "comm" => selection.comm = Some(cut(&value).to_owned()),
                "port" => {
                    let port = value.parse().ok().filter(|&port: &u16| port > 0);
                    selection.port = Some(port.ok_or_else(|| wrong("port=8080"))?);
                }
                "bound" => {
                    let least = value.parse().ok().filter(|&bound: &f64| bound > 1.0 && bound.is_finite());
                    *bound = Some(least.ok_or_else(|| wrong("bound=5, a slowdown above 1"))?);
                }
                // Read where the token is.
                "token" => {}
                _ => return Err(wrong("pid=4711, comm=nginx, port=8080 or bound=5")),
            }
        }
        Ok(query)
    }
}

/// So much of a name as the kernel keeps.
fn cut(comm: &str) -> &str {
    &comm[..comm.floor_char_boundary(LONGEST_COMM)]
}

impl Selection {
    /// Processes that listen on a TCP port.
    pub fn listening(port: u16) -> Selection {
        Selection { port: Some(port), ..Selection::default() }
    }

    /// Those of the threads that it selects now.
    ///
    /// # Errors
    /// Where a process that it names cannot be seen, and why.
    pub fn among(&self, herald: &Herald, ports: &mut Ports) -> Result<Wanted, Refusal> {
        let mut wanted = Wanted { pids: None, named: None };
        if let Some(pid) = self.pid {
            if !herald.threads().any(|(id, _)| id.pid == pid) {
                return Err(unseen(pid));
            }
            wanted.pids = Some(HashSet::from([pid]));
        }
        if let Some(port) = self.port {
            let listens = ports.processes(port, herald.now()).map_err(|why| unheard(port, why))?;
            let meant = |pid: &u32| self.pid.is_none_or(|wanted| wanted == *pid);
            wanted.pids = Some(listens.into_iter().filter(meant).collect());
        }
        if let Some(comm) = &self.comm {
            let first_is =
                |(id, described): &(&TaskId, &Described)| id.pid == id.tid && described.comm == *comm;
            let pids = herald.threads().filter(first_is).map(|(id, _)| id.pid).collect();
            wanted.named = Some((comm.clone(), pids));
        }
        Ok(wanted)
    }
}

/// Who listens on which port, as it was last looked up: all descriptors of all processes are looked at, which takes milliseconds.
#[derive(Default)]
pub struct Ports(HashMap<u16, (Nanos, Result<BTreeSet<u32>, Unknown>)>);

impl Ports {
    /// From one look to the next.
    const KEPT: Nanos = Nanos::from_secs(2);
    /// The most that are remembered.
    const MOST: usize = 64;

    fn processes(&mut self, port: u16, now: Nanos) -> Result<BTreeSet<u32>, Unknown> {
        match self.0.get(&port) {
            Some((at, found)) if now.since(*at) < Ports::KEPT => found.clone(),
            _ => {
                if self.0.len() == Ports::MOST {
                    self.0.clear();
                }
                let found = listening::processes(port);
                self.0.insert(port, (now, found.clone()));
                found
            }
        }
    }
}

/// Threads that are selected.
#[derive(Debug, Default)]
pub struct Wanted {
    pids: Option<HashSet<u32>>,
    /// A name, and the processes that have it.
    named: Option<(String, HashSet<u32>)>,
}

impl Wanted {
    /// None of them.
    pub fn none() -> Wanted {
        Wanted { pids: Some(HashSet::new()), named: None }
    }

    /// Whether this thread is.
    pub fn has(&self, id: &TaskId, described: &Described) -> bool {
        self.pids.as_ref().is_none_or(|pids| pids.contains(&id.pid))
            && self
                .named
                .as_ref()
                .is_none_or(|(comm, pids)| pids.contains(&id.pid) || described.comm == *comm)
    }

    /// How they are.
    pub fn report(&self, herald: &Herald) -> Report {
        herald.report(|id, described| self.has(id, described))
    }
}

fn unseen(pid: u32) -> Refusal {
    let exists =
        Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
    let readable = std::fs::metadata(format!("/proc/{pid}/task")).is_ok();
    let words = match (exists, readable) {
        (false, _) => return Refusal::new(StatusCode::NOT_FOUND, format!("there is no process {pid}")),
        (true, true) => {
            let words = format!("process {pid} has just begun, or is a thread of another one; ask again");
            return Refusal::new(StatusCode::NOT_FOUND, words);
        }
        (true, false) => format!(
            "process {pid} may not be seen: /proc is mounted with hidepid; run the agent as root, or in the group of its gid= option"
        ),
    };
    Refusal::new(StatusCode::FORBIDDEN, words)
}

fn unheard(port: u16, why: Unknown) -> Refusal {
    match why {
        Unknown::Nobody => Refusal::new(
            StatusCode::NOT_FOUND,
            format!("nobody listens on TCP port {port} in the network namespace of the agent"),
        ),
        Unknown::Hidden => Refusal::new(
            StatusCode::FORBIDDEN,
            format!(
                "who listens on TCP port {port} may not be seen: run the agent as root, as the user of that process, or with CAP_SYS_PTRACE"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<Query, Refusal> {
        Query::parse(&format!("/futures{query}").parse().unwrap())
    }

    #[test]
    fn queries_are_read() {
        assert_eq!(parse("").unwrap(), Query { selection: Selection::default(), bound: None });
        let all =
            parse("?pid=4711&comm=a%20name%20that%20is%20too%20long&port=80&bound=2.5&token=x").unwrap();
        let comm = Some("a name that is ".to_owned());
        assert_eq!(all.selection, Selection { pid: Some(4711), comm, port: Some(80) });
        assert_eq!(all.bound, Some(2.5));
        for (query, says) in [
            ("?pid=0", "pid=4711"),
            ("?pid=x", "pid=4711"),
            ("?port=65536", "port=8080"),
            ("?bound=1", "above 1"),
            ("?bound=inf", "above 1"),
            ("?comm=", "comm=nginx"),
            ("?pids=1", "pid=4711"),
            ("?pid=1&pid=2", "twice"),
        ] {
            let refusal = parse(query).unwrap_err();
            assert!(refusal.status == StatusCode::BAD_REQUEST && refusal.words.contains(says), "{refusal:?}");
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_said_not_to_be() {
        let refusal = unseen(i32::MAX as u32);
        assert_eq!(refusal.status, StatusCode::NOT_FOUND);
        assert!(refusal.words.contains("there is no process"), "{refusal:?}");
    }
}
