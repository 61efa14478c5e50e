//! More than one sentry, as a controller brings them about: started when one is busy, replaced when one dies, returned when fewer
//! are enough. Each may use a fifth of a core, so that little load makes it busy.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_testbed::cpu_cap::CpuCap;
use serde_json::{Value, json};

use crate::harness::{Load, Sentry, Upstream, alive, get, kill};
use crate::ports::ports;

/// What the server works on at once: to be halved and divided by three.
const WORKERS: u64 = 24;
/// All that is waited for here is a few seconds of busy sentries away.
const PATIENCE: Duration = Duration::from_secs(60);

/// A first sentry, a controller that may start two more, and who sees to it that none of them has more than a fifth of a core.
struct Fleet {
    first: Sentry,
    /// The controller's state and log.
    scratch: tempfile::TempDir,
    controller: Child,
    capping: Arc<AtomicBool>,
    capper: Option<JoinHandle<()>>,
}

impl Fleet {
    fn start(upstream: &Upstream, first_cap: CpuCap) -> Fleet {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (listen, _) = ports(3);
        let (first, last) = ports(2);
        let (address, admin, own) = (local(listen), local(listen + 1), local(listen + 2));
        let scratch = tempfile::tempdir().unwrap();
        let state = scratch.path().join("state");
        let config = format!(
            "[sentry]\nlisten = \"{address}\"\nadmin = \"{admin}\"\nthreads = 1\ndrain_timeout = \"10s\"\n\
             [controller]\nadmin = \"{own}\"\ninterval = \"100ms\"\nstate = {state:?}\nsentry_ports = \"{first}-{last}\"\n\
             sentry_busy_for = \"1s\"\n\
             [pool.test]\nservers = [\"{}\"]\nworkers = {WORKERS}\nadmission = {{ policy = \"none\" }}\n\
             [class.default]\nslo = {{ p50 = \"10s\" }}\n",
            upstream.address
        );
        let binary = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
        let first = Sentry::start_by(binary, &config, &["--admin", &admin.to_string()]);
        let controller = Command::new(binary)
            .args(["controller", "--config"])
            .arg(&first.config)
            .stdin(Stdio::null())
            .stderr(File::create(scratch.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let capping = Arc::new(AtomicBool::new(true));
        let (goes_on, parent, notes) = (Arc::clone(&capping), first.parent(), state);
        let capper = std::thread::spawn(move || {
            let mut caps = BTreeMap::from([(parent, first_cap)]);
            while goes_on.load(SeqCst) {
                for pid in noted(&notes).into_values() {
                    caps.entry(pid).or_insert_with(|| CpuCap::new(0.3).unwrap());
                }
                caps.iter().for_each(|(pid, cap)| cap.hold(*pid).unwrap());
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Fleet { first, scratch, controller, capping, capper: Some(capper) }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// What each sentry that is there may use of the server at one moment, by process id, the first one first; nothing while that
    /// changes. What one has that does not answer any more is what it had last.
    fn slots(&self, last: &mut BTreeMap<u32, u64>) -> Option<Vec<u64>> {
        let admins: Vec<(u32, SocketAddr)> = std::iter::once((self.first.parent(), self.first.admin))
            .chain(
                self.noted().into_iter().map(|(port, pid)| (pid, SocketAddr::from(([127, 0, 0, 1], port)))),
            )
            .collect();
        let look = || -> BTreeMap<u32, u64> {
            admins.iter().filter_map(|(pid, admin)| Some((*pid, pool(*admin)?["slots"].as_u64()?))).collect()
        };
        // What is the same in two looks was so at all of them in between.
        let (before, now) = (look(), look());
        last.extend(&now);
        last.retain(|pid, _| alive(*pid));
        let is_known =
            before == now && last.iter().all(|(pid, slots)| now.get(pid).is_none_or(|s| s == slots));
        is_known.then(|| last.values().copied().collect())
    }

    /// Waits until they have this and no other is left. At no moment may they have more than there is.
    fn have(&self, expected: &[u64], what: &str) {
        let (start, mut last) = (Instant::now(), BTreeMap::new());
        let mut seen = Vec::new();
        loop {
            if let Some(slots) = self.slots(&mut last) {
                assert!(
                    slots.iter().sum::<u64>() <= WORKERS,
                    "{what}: {slots:?} of {WORKERS} after {seen:?}"
                );
                if slots == expected && self.noted().len() + 1 == expected.len() {
                    // Of what is promised each has as much as its share says.
                    let parts: Vec<Value> =
                        (0..slots.len()).map(|part| json!({ "part": part, "of": slots.len() })).collect();
                    assert_eq!(self.shares(), parts, "{what}");
                    return;
                }
                if seen.last() != Some(&slots) {
                    seen.push(slots);
                }
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {seen:?}\n{}", self.log());
            // To be asked costs them CPU time, too, of which they have little: asked too often, a slow machine's may be busy with that.
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn noted(&self) -> BTreeMap<u16, u32> {
        noted(&self.scratch.path().join("state"))
    }

    /// The shares of all that answer, in their order.
    fn shares(&self) -> Vec<Value> {
        let further = self.noted().into_keys().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let shares = std::iter::once(self.first.admin).chain(further);
        let mut shares: Vec<Value> =
            shares.filter_map(|admin| Some(pools(admin)?["sentry"]["share"].clone())).collect();
        shares.sort_by_key(|share| share["part"].as_u64());
        shares
    }

    /// Process ids of the further ones.
    fn further(&self) -> Vec<u32> {
        self.noted().into_values().collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.capping.store(false, SeqCst);
        let _ = self.controller.kill();
        let _ = self.controller.wait();
        for pid in self.further() {
            // Its workers are in its group.
            let group = format!("-{pid}");
            let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
        }
        let _ = self.capper.take().map(JoinHandle::join);
        if std::thread::panicking() {
            eprintln!("--- log of the controller and its sentries\n{}", self.log());
        }
    }
}

/// Processes that the controller has started and not seen end, by admin port.
fn noted(state: &Path) -> BTreeMap<u16, u32> {
    let files = std::fs::read_dir(state.join("sentries")).into_iter().flatten().flatten();
    let note = |path: PathBuf| {
        let port = path.file_stem()?.to_str()?.parse().ok()?;
        let note: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        Some((port, note["pid"].as_u64()? as u32))
    };
    files.filter_map(|file| note(file.path())).collect()
}

/// What a sentry says of itself and its pools; nothing where it does not answer.
fn pools(admin: SocketAddr) -> Option<Value> {
    serde_json::from_str(&get(admin, "/pools").ok()?.body).ok()
}

/// Its one pool.
fn pool(admin: SocketAddr) -> Option<Value> {
    Some(pools(admin)?["pools"][0].clone())
}

#[test]
fn sentries_come_with_the_load_share_the_servers_and_go_with_it() {
    let cap = match CpuCap::new(0.3) {
        Ok(cap) => cap,
        // Without, a sentry would have to be given a whole core's load.
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let upstream = Upstream::start();
    let fleet = Fleet::start(&upstream, cap);
    let address = fleet.first.address;
    fleet.have(&[24], "alone");

    let load = Load::renewing(address, 24, "/10", |_| 1);
    fleet.have(&[8, 8, 8], "busy");
    load.more(200);
    for port in fleet.noted().into_keys() {
        let pool = pool(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        assert!(pool["classes"][0]["served"].as_u64() > Some(0), "{pool}");
    }
    eprintln!("{} connections while two sentries came", load.stop());

    let load = Load::renewing(address, 24, "/10", |_| 1);
    let before = fleet.further();
    kill(before[0], "-9");
    let replaced = || fleet.further().len() == 2 && !fleet.further().contains(&before[0]);
    let start = Instant::now();
    while !replaced() {
        assert!(start.elapsed() < PATIENCE, "{}", fleet.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    fleet.have(&[8, 8, 8], "one was killed");
    // Those that it had were lost with it.
    let (sent, failures) = load.end();
    assert!(failures.len() <= 24, "{} of {sent}: {:?}", failures.len(), &failures[..5]);

    // Whoever goes has some of these still when the others could have taken its share.
    let load = Load::renewing(address, 12, "/1500", |_| 1);
    fleet.have(&[24], "idle");
    load.more(12);
    eprintln!("{} connections while two sentries went", load.stop());
    let log = fleet.log();
    let places = |what: &str| log.match_indices(what).map(|(place, _)| place).collect::<Vec<_>>();
    let (left, drained) = (places("leaving the port to other sentries"), places("msg=draining"));
    assert_eq!((left.len(), drained.len()), (2, 2), "{log}");
    assert!(left[0] < drained[0] && left[1] < drained[1], "nobody stops accepting before: {log}");
    assert!(upstream.peak() <= WORKERS as u32, "{} of {WORKERS} workers at once", upstream.peak());

    // Who is left has all workers again, and uses them: long requests, as a sentry with a fifth of a slow core has not always
    // so many short ones under way.
    let load = Load::renewing(address, 30, "/1500", |_| 1);
    load.more(60);
    load.stop();
    assert_eq!(upstream.peak(), WORKERS as u32, "all workers were used, and never more");
}
