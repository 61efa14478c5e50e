//! The agent as a child of the demo, and what it tells.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::processes::{Process, answers, configure, free_addresses, role, said};

/// An agent that runs until it is dropped.
pub struct Agent {
    events: PathBuf,
    _process: Process,
}

impl Agent {
    /// Starts one whose files are in a directory and whose config goes on with this after the address in `[agent]`.
    pub async fn start(directory: &Path, watched: &str) -> Result<Agent, String> {
        let [admin] = free_addresses()?;
        configure(directory, &format!("[agent]\nadmin = \"{admin}\"\n{watched}"))?;
        let events = directory.join("events.jsonl");
        let process = role(directory, "agent", &["--events", &events.to_string_lossy()])?;
        let told = |error: String| error + &said(directory, "agent");
        answers(admin, "/healthz", "the agent").await.map_err(told)?;
        Ok(Agent { events, _process: process })
    }

    /// What it tells from now on.
    pub fn events(&self) -> Events {
        Events { file: self.events.clone(), read: 0, all: Vec::new() }
    }
}

/// The agent's events, as it writes them down.
pub struct Events {
    file: PathBuf,
    /// Bytes of the file that have been read.
    read: usize,
    all: Vec<Value>,
}

impl Events {
    /// Those that have come since the last time.
    pub fn read(&mut self) -> &[Value] {
        let before = self.all.len();
        // Before the first one there may be no file.
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let new = text.get(self.read..).unwrap_or_default();
        // The last line may not be whole yet.
        let whole = new.rfind('\n').map_or(0, |end| end + 1);
        self.all.extend(new[..whole].lines().filter_map(|line| serde_json::from_str(line).ok()));
        self.read += whole;
        &self.all[before..]
    }

    /// All that were read.
    pub fn all(self) -> Vec<Value> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_event_is_read_once_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("events");
        let mut events = Events { file: file.clone(), read: 0, all: Vec::new() };
        assert!(events.read().is_empty());
        let mut out = fs::File::create(&file).unwrap();
        out.write_all(b"{\"event\":\"overload\"}\n{\"event\":").unwrap();
        assert_eq!(events.read().iter().map(|e| &e["event"]).collect::<Vec<_>>(), ["overload"]);
        assert!(events.read().is_empty());
        out.write_all(b"\"cancel\"}\n").unwrap();
        assert_eq!(events.read().iter().map(|e| &e["event"]).collect::<Vec<_>>(), ["cancel"]);
        assert_eq!(events.all().len(), 2);
    }
}
