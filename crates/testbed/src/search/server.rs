//! A private node as it comes, with a directory of its own that goes when it goes.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::HttpCall;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::install::{Install, Product};
use crate::child::{self, ends_with_this_thread};
use crate::clock::Clock;
use crate::database::http::Http;

/// How long it may take to be ready.
const STARTS_WITHIN: Nanos = Nanos::from_secs(120);
/// How long a shutdown may take before a harsher one is tried.
const STOPS_WITHIN: Nanos = Nanos::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// The last lines of what it said that are worth showing.
const LAST_LINES: usize = 8;
/// Ports that whoever starts a node takes: it listens on none above.
const PORTS: std::ops::Range<u16> = 9_220..9_299;
/// Where a Solr says what it is, and which cores it has.
const SYSTEM: &str = "/solr/admin/info/system?wt=json";
const CORES: &str = "/solr/admin/cores?action=STATUS&indexInfo=false&wt=json";
/// How it says where it listens.
const PORT: &str = "HTTP Port:";
/// Its heap, if a case wants no other.
const HEAP: &str = "1g";
/// What it says of a request that was cancelled, or cut short by its time limit.
const ENDED: &[&str] = &[
    "task_cancelled_exception",
    "task cancelled",
    "\"timed_out\":true",
    "\"canceled\":\"by user request",
    "\"partialResults\":true",
];
/// What a Solr is started from: what its own script runs, and a set of settings for cores that is as plain as can be.
const SOLR: [(&str, &str); 4] = [
    ("Solr.java", include_str!("solr/Solr.java")),
    ("solr.xml", include_str!("solr/solr.xml")),
    ("configsets/_default/conf/solrconfig.xml", include_str!("solr/solrconfig.xml")),
    ("configsets/_default/conf/managed-schema.xml", include_str!("solr/managed-schema.xml")),
];

/// Our plug-in of an OpenSearch.
const PLUGIN: &str = "io.plimsoll.opensearch.PlimsollPlugin";

/// A running node. Dropping it ends it and removes its directory.
///
/// The kernel ends it with the *thread* that started it, which makes sure that none is left behind; so that thread has to live as long.
pub struct Server {
    product: Product,
    install: Install,
    /// Options of the JVM.
    options: Vec<String>,
    port: u16,
    process: Option<Child>,
    // Last, for it goes when the process has gone.
    directory: TempDir,
}

impl Server {
    /// Whether there is one on this machine, `with_plugin` of ours or as it comes, and a Java that runs it.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn is_there(product: Product, with_plugin: bool) -> Result<(), String> {
        Install::find(product, with_plugin).map(drop)
    }

    /// Starts one with these settings, as name and value; a name that begins with a hyphen is an option of the JVM, as in `-Xmx`, and
    /// may have no value. It is as it comes, or `with_plugin` of ours.
    ///
    /// # Errors
    /// Where it is not on this machine, and how to get it; where it does not start, with the last lines that it said.
    pub async fn start(
        product: Product,
        settings: &[(String, String)],
        with_plugin: bool,
    ) -> Result<Server, String> {
        let install = Install::find(product, with_plugin)?;
        let parent = std::env::temp_dir();
        let directory = tempfile::Builder::new().prefix("plimsoll-search-").tempdir_in(&parent);
        let directory =
            directory.map_err(|e| format!("cannot make a directory in {}: {e}", parent.display()))?;
        let (options, settings): (Vec<_>, Vec<_>) =
            settings.iter().partition(|(name, _)| name.starts_with('-'));
        let options = options.into_iter().map(|(name, value)| {
            let is_named = (name.starts_with("-XX:") || name.starts_with("-D")) && !value.is_empty();
            format!("{name}{}{value}", if is_named { "=" } else { "" })
        });
        let options = options.collect();
        let mut server = Server { product, install, options, port: 0, process: None, directory };
        let lines = settings.into_iter().map(|(name, value)| format!("{name}: {value}\n"));
        // Nodes of one cluster would find each other.
        let own = format!(
            "network.host: 127.0.0.1\ntransport.port: 0\ncluster.name: plimsoll-{}\n",
            server.directory.path().file_name().unwrap_or_default().display()
        );
        server.write(std::iter::once(own).chain(lines).collect())?;
        server.resume().await?;
        Ok(server)
    }

    fn write(&self, settings: String) -> Result<(), String> {
        let own = format!("{}.yml", self.product.facts().file);
        let files = match self.product {
            Product::Solr => &SOLR[..],
            Product::OpenSearch | Product::Elasticsearch => &[(own.as_str(), settings.as_str())],
        };
        files.iter().try_for_each(|(name, text)| {
            let file = self.place("config").join(name);
            let directory = file.parent().map_or(Ok(()), fs::create_dir_all);
            let written = directory.and_then(|()| fs::write(&file, text));
            written.map_err(|e| format!("cannot write {}: {e}", file.display()))
        })?;
        if self.has_plugin() {
            let made = DirBuilder::new().mode(0o700).create(self.ledgers());
            made.map_err(|e| format!("cannot make a place for its ledger: {e}"))?;
        }
        Ok(())
    }

    /// All that it is started from. A plug-in of the runner's is found there, too.
    fn class_path(&self) -> OsString {
        let mut path = self.install.jars.clone();
        for jar in &self.install.plugin {
            path.push(":");
            path.push(jar);
        }
        path
    }

    /// Whether it has our plug-in, by which it can be watched from inside.
    pub fn has_plugin(&self) -> bool {
        !self.install.plugin.is_empty()
    }

    /// Where that keeps its ledger.
    pub fn ledgers(&self) -> PathBuf {
        self.place("ledgers")
    }

    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, port: u16) -> Result<Command, String> {
        let facts = self.product.facts();
        let mut command = Command::new(&self.install.java);
        command.args([format!("-Xms{HEAP}"), format!("-Xmx{HEAP}")]).args(facts.options).args(&self.options);
        command.arg("-cp").arg(self.class_path());
        if self.product == Product::Solr {
            let home = self.place("config");
            command.arg(format!("-Dsolr.solr.home={}", home.display()));
            command.arg(format!("-Dsolr.log.dir={}", self.directory.path().display()));
            command.arg(format!("-Dsolr.allowUrls=127.0.0.1:{port}"));
            command.arg(home.join(facts.class)).arg(port.to_string());
        } else {
            // It counts from the port before.
            command.args([facts.class, "-numOfNode", "1", "-baseHttpPort", &(port - 1).to_string()]);
            for (option, place) in [("-basePath", "node"), ("-confPath", "config"), ("-dataPath", "data")] {
                command.arg(option).arg(self.place(place));
            }
            if self.has_plugin() {
                command.args(["-pluginTypes", PLUGIN]);
            }
        }
        if self.has_plugin() {
            command.env("PLIMSOLL_DIR", self.ledgers());
        }
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        let file = |name: &str| File::create(self.place(name)).map_err(|e| format!("cannot write: {e}"));
        command.stdout(file("said")?).stderr(file("errors")?);
        ends_with_this_thread(&mut command, Signal::KILL);
        // A group of its own: Ctrl-C reaches this program alone, which then ends the server.
        command.process_group(0);
        Ok(command)
    }

    /// Starts it again after it was stopped, where it was if it can be, and waits until it answers.
    ///
    /// # Errors
    /// Where it does not within two minutes, with the last lines that it said.
    pub async fn resume(&mut self) -> Result<(), String> {
        if self.process.as_mut().is_some_and(|process| !child::has_ended(process)) {
            return Ok(());
        }
        let name = self.product.facts().name;
        let wanted = if self.port == 0 { free_port()? } else { self.port };
        let mut command = self.command(wanted)?;
        self.process = Some(command.spawn().map_err(|e| format!("cannot start {command:?}: {e}"))?);
        let clock = Clock::start();
        while clock.now() < STARTS_WITHIN {
            if self.process.as_mut().is_none_or(child::has_ended) {
                self.process = None;
                return Err(format!("{name} did not start: {}", self.said()));
            }
            // Somebody may have taken that port meanwhile: it says which it has.
            let said = fs::read_to_string(self.place("said")).unwrap_or_default();
            let port = said.lines().find_map(|line| line.strip_prefix(PORT)?.trim().parse().ok());
            self.port = port.unwrap_or(wanted);
            if port.is_some() && self.http().call(&self.is_ready()).await.is_ok() {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        Err(format!("{name} is not ready after {STARTS_WITHIN}: {}", self.said()))
    }

    /// Ends it: in order, or `at_once`, as in a crash. Its data stay.
    pub fn stop(&mut self, at_once: bool) {
        let signals = if at_once { &[Signal::KILL][..] } else { &[Signal::TERM, Signal::KILL] };
        let Some(process) = &mut self.process else { return };
        if child::stop(process, signals, STOPS_WITHIN) {
            self.process = None;
        }
    }

    /// How it is asked.
    pub fn http(&self) -> Http {
        Http {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)),
            ended: ENDED,
            content_type: "application/json",
        }
    }

    /// The process id, while there is one.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Writes what it was told, and lets who searches see it.
    ///
    /// # Errors
    /// What it says.
    pub async fn settle(&self) -> Result<(), String> {
        if self.product == Product::Solr {
            let cores = self.says(CORES).await?;
            for (core, _) in cores["status"].as_object().into_iter().flatten() {
                self.http().call(&call("GET", &format!("/solr/{core}/update?commit=true"))).await?;
            }
            return Ok(());
        }
        for path in ["/_flush", "/_refresh"] {
            self.http().call(&call("POST", path)).await?;
        }
        Ok(())
    }

    /// What it calls itself.
    ///
    /// # Errors
    /// What it says.
    pub async fn version(&self) -> Result<String, String> {
        let number = match self.product {
            Product::Solr => self.says(SYSTEM).await?["lucene"]["solr-spec-version"].clone(),
            Product::OpenSearch | Product::Elasticsearch => {
                self.says("/").await?["version"]["number"].clone()
            }
        };
        Ok(format!("{} {}", self.product.facts().name, number.as_str().unwrap_or_default()))
    }

    async fn says(&self, path: &str) -> Result<Value, String> {
        let said = self.http().call(&call("GET", path)).await?;
        serde_json::from_str(&said).map_err(|e| e.to_string())
    }

    fn is_ready(&self) -> HttpCall {
        match self.product {
            Product::Solr => call("GET", SYSTEM),
            Product::OpenSearch | Product::Elasticsearch => {
                call("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s")
            }
        }
    }

    /// The last lines that it said.
    fn said(&self) -> String {
        child::last_lines(&[self.place("said"), self.place("errors")], LAST_LINES)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody needs its data.
        self.stop(true);
    }
}

fn call(method: &str, path: &str) -> HttpCall {
    HttpCall { method: method.to_owned(), path: path.to_owned(), body: String::new() }
}

/// One that is free now, and neither the one that another such program takes at the same time nor the one that this has taken last, whose
/// node may be down and come back.
fn free_port() -> Result<u16, String> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    let first = std::process::id().wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
    let first = (first % u32::from(count)) as u16;
    let mut ports = (0..count).map(|i| PORTS.start + (first + i) % count);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).ok_or_else(|| format!("there is no free port from {} to {}", PORTS.start, PORTS.end))
}
