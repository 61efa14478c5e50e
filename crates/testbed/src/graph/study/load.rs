//! The load generator, as a process of its own: on few cores it must not share a runtime with what it measures.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use plimsoll_core::Nanos;
use serde_json::Value;

use crate::graph::queries::QueryType;

/// Which queries, in which proportions.
pub struct Mix(Vec<(QueryType, f64)>);

impl Mix {
    /// The paper's production traffic.
    pub fn paper() -> Mix {
        Mix::of(QueryType::ALL.into_iter().zip(QueryType::MIX_PCT))
    }

    /// Any; the parts need not add up to anything.
    pub fn of(parts: impl IntoIterator<Item = (QueryType, f64)>) -> Mix {
        Mix(parts.into_iter().collect())
    }

    /// As the file that `plimsoll load` reads.
    fn to_toml(&self) -> String {
        let whole: f64 = self.0.iter().map(|(_, part)| part).sum();
        self.0.iter().fold(String::new(), |mut toml, (of, part)| {
            let share = part / whole;
            let _ = writeln!(toml, "[request.{of}]\npath = \"/q/{of}\"\nshare = {share:.12}");
            toml
        })
    }
}

/// A running `plimsoll load`; killed if it is dropped before its end.
pub struct Load(Option<Child>);

impl Load {
    /// Begins to send.
    pub fn start(
        program: &Path,
        target: SocketAddr,
        mix: &Mix,
        rate_per_s: f64,
        duration: Nanos,
        seed: u64,
    ) -> io::Result<Load> {
        let mut command = Command::new(program);
        command.args(["load", "--json", "--mix", "/dev/stdin"]);
        command.args(["--target", &format!("http://{target}")]);
        command.args(["--rate", &format!("{rate_per_s:.3}"), "--duration", &format!("{}ns", duration.0)]);
        command.args(["--seed", &seed.to_string()]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let load = Load(Some(child));
        // Dropping the pipe ends the file.
        stdin.expect("was piped").write_all(mix.to_toml().as_bytes())?;
        Ok(load)
    }

    /// Waits for the end; the generator's report.
    pub fn finish(mut self) -> io::Result<Value> {
        let child = self.0.take().expect("taken only here");
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("the load generator failed: {}", words.trim())));
        }
        serde_json::from_slice(&output.stdout).map_err(io::Error::other)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::config::{mix, parse};

    #[test]
    fn the_load_generator_reads_the_mix() {
        let (read, warnings) = parse::<mix::Mix>(&Mix::paper().to_toml(), "mix").unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let shares: Vec<f64> = read.requests.iter().map(|request| request.share).collect();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((shares[10] - 0.278).abs() < 1e-4 && read.requests[10].path == "/q/QT11");
    }
}
