//! One server process: started in a group of its own, so that what it starts ends with it, and recognised after a restart of the
//! controller by its id and the time at which it started.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

/// What tells a process from all others: ids are used again, an id and a start time are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pid: i32,
    /// In ticks since the machine started.
    started: u64,
}

/// A process that this controller, or one before it, has started.
#[derive(Debug)]
pub struct Process {
    identity: Identity,
    /// Where it is this controller's own: to be waited for when it has ended.
    child: Option<Child>,
}

impl Process {
    /// Starts a program. What it writes to stderr goes where the controller's goes; stdin and stdout lead nowhere.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(command: &[String]) -> io::Result<Process> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program"));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pid = child.id() as i32;
        match state_of(pid) {
            Some((_, started)) => Ok(Process { identity: Identity { pid, started }, child: Some(child) }),
            None => {
                // Without a start time it could not be told from others later.
                let _ = child.kill();
                let _ = child.wait();
                Err(io::Error::other("its start time cannot be read from /proc"))
            }
        }
    }

    /// The process of an earlier controller, if it is still there.
    pub fn adopt(identity: Identity) -> Option<Process> {
        let process = Process { identity, child: None };
        process.is_alive().then_some(process)
    }

    /// What it will be recognised by.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.identity.pid
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        state_of(self.identity.pid)
            .is_some_and(|(state, started)| started == self.identity.started && !matches!(state, 'Z' | 'X'))
    }

    /// Asks it and what it has started to end.
    pub fn terminate(&self) {
        if self.is_alive() {
            self.signal(Signal::TERM);
        }
    }

    /// Asks it alone to end: what it has started it ends itself, in its own order.
    pub fn terminate_alone(&self) {
        if let Some(pid) = Pid::from_raw(self.identity.pid).filter(|_| self.is_alive()) {
            // Fails where it has ended meanwhile, which is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Ends it and what it has started.
    pub fn kill(&self) {
        if self.is_alive() {
            self.signal(Signal::KILL);
        }
    }

    /// It has ended: ends what it has left behind. How it ended, where that can be known.
    pub fn bury(mut self) -> String {
        // As long as nobody has waited for it, no other process gets its id.
        if self.child.is_some() {
            self.signal(Signal::KILL);
        }
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => status.to_string(),
            _ => "unknown".to_owned(),
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails where the group has ended meanwhile, which is what is wanted.
        if let Some(group) = Pid::from_raw(self.identity.pid) {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// State and start time of a process: fields 3 and 22 of /proc/PID/stat, counted from behind the name, which may hold anything.
fn state_of(pid: i32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Process {
        Process::start(&["sh", "-c", script].map(str::to_owned)).unwrap()
    }

    fn until(what: impl Fn() -> bool) {
        while !what() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn it_ends_with_what_it_has_started() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inner = || std::fs::read_to_string(file.path()).unwrap().trim().parse::<i32>().ok();
        let process = sh(&format!("sleep 1000 & echo $! > {}; wait", file.path().display()));
        until(|| inner().is_some());
        let inner = inner().unwrap();
        assert!(process.is_alive() && state_of(inner).is_some());
        process.kill();
        until(|| !process.is_alive());
        assert!(process.bury().contains("signal: 9"));
        until(|| state_of(inner).is_none_or(|(state, _)| state == 'Z'));
    }

    #[test]
    fn what_a_server_that_has_ended_leaves_behind_ends_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let process = sh(&format!("sleep 1000 & echo $! > {}", file.path().display()));
        until(|| !process.is_alive());
        let inner: i32 = std::fs::read_to_string(file.path()).unwrap().trim().parse().unwrap();
        assert!(process.bury().contains("exit status: 0"));
        until(|| state_of(inner).is_none_or(|(state, _)| state == 'Z'));
    }

    #[test]
    fn another_process_of_the_same_id_is_not_adopted() {
        let process = sh("sleep 1000");
        let identity = process.identity();
        assert!(Process::adopt(identity).is_some());
        assert!(Process::adopt(Identity { started: identity.started + 1, ..identity }).is_none());
        process.kill();
        process.bury();
        assert!(Process::adopt(identity).is_none());
    }

    #[test]
    fn what_is_no_program_is_said() {
        assert!(Process::start(&[]).is_err());
        assert!(Process::start(&["/nonexistent/server".to_owned()]).is_err());
    }
}
