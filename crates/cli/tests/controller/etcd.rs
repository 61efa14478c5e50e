//! Controllers that agree by a real etcd on who leads, and what becomes of them, and of the entry, when one of them or the etcd is killed,
//! stopped or cut off. That two never act at once is also tested beside the election, with thousands of such faults.
#![cfg(feature = "etcd")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_testbed::etcd::{Options, Server};
use serde_json::{Value, json};

use crate::harness::{Controller, PATIENCE, Place, get, ports, signal, until};
use crate::link::Link;

/// What may enter, as whoever led before has left it.
const LEFT: f64 = 20.0;

/// An etcd of one's own; it ends with the test.
struct Etcd(Server);

impl Etcd {
    /// Nothing where there is none on this machine, which is said.
    fn start() -> Option<Etcd> {
        if let Err(remedy) = Server::is_there() {
            assert!(std::env::var_os("PLIMSOLL_REQUIRE_ETCD").is_none_or(|it| it != "1"), "{remedy}");
            eprintln!("SKIPPED: {remedy}");
            return None;
        }
        Some(Etcd(Server::start(&Options::default()).unwrap_or_else(|e| panic!("{e}"))))
    }

    /// Starts anew over TLS, with `server.pem` and `server.key` of its directory.
    fn with_tls(&mut self) {
        let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let file = |name: &str, text: String| {
            let path = self.0.directory().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) =
            (file("server.pem", own.cert.pem()), file("server.key", own.signing_key.serialize_pem()));
        self.0.secure(&certificate, &key);
        self.kill();
        self.go_on();
    }

    /// Starts it, with what it knew before.
    fn go_on(&mut self) {
        self.0.resume().unwrap_or_else(|e| panic!("{e}"));
    }

    fn directory(&self) -> &Path {
        self.0.directory()
    }

    fn address(&self) -> SocketAddr {
        self.0.address()
    }

    fn signal(&self, name: &str) {
        signal(self.0.pid().unwrap() as i32, name);
    }

    fn kill(&mut self) {
        self.0.stop(true);
    }

    /// Asks over its gateway for JSON.
    fn ask(&self, path: &str, body: &Value) -> String {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address()).unwrap();
        let head = format!(
            "POST /v3/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}",
            body.len()
        );
        write!(stream, "{head}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        answer
    }

    /// Makes it look as if somebody led who has left this.
    fn leave(&self, class: &str, per_s: f64) {
        let note = json!({ "name": "somebody", "limits": { class: per_s } }).to_string();
        let (key, value) = (BASE64_STANDARD.encode("plimsoll/leader"), BASE64_STANDARD.encode(note));
        self.ask("kv/put", &json!({ "key": key, "value": value }));
    }

    fn forget(&self) {
        self.ask("kv/deleterange", &json!({ "key": BASE64_STANDARD.encode("plimsoll/leader") }));
    }
}

/// A host with a controller of its own.
struct Host {
    place: Place,
    rates: SocketAddr,
}

impl Host {
    fn new(name: &str, etcd: impl std::fmt::Display, more: &str) -> Host {
        let [rates, spans] =
            [ports(1).0, ports(1).0].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let settings = format!(
            "sentries = [\"127.0.0.1:1\"]\nrates = {{ listen = \"{rates}\" }}\ntelemetry = {{ listen = \"{spans}\" }}\n\
             etcd = {{ endpoints = [\"{etcd}\"], name = \"{name}\"{more} }}\n"
        );
        let config = "[pool.shop]\nservers = [\"127.0.0.1:1\"]\n[class.shop]\nmatch = [{ path = \"/*\" }]\n";
        Host { place: Place::new(&settings, config), rates }
    }

    fn start(&self) -> Controller {
        self.place.start("log", &[])
    }

    fn plan(&self) -> Value {
        serde_json::from_str(&self.place.get("/plan").unwrap_or_default()).unwrap_or_default()
    }

    /// Its revision, while it leads.
    fn leads(&self) -> Option<u64> {
        let leadership = &self.plan()["leadership"];
        leadership["leads"].as_bool()?.then(|| leadership["revision"].as_u64()).flatten()
    }

    fn follows(&self, leader: &str) -> bool {
        let leadership = &self.plan()["leadership"];
        leadership["leads"] == false && leadership["leader"] == leader
    }
}

/// A sentry that takes its rates from these controllers, and what it has been limited to.
struct Entry {
    place: Place,
    admin: SocketAddr,
    _sentry: Controller,
}

impl Entry {
    fn start(controllers: &[&Host]) -> Entry {
        let (first, _) = ports(2);
        let [listen, admin] = [first, first + 1].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let controllers: Vec<String> = controllers.iter().map(|host| host.rates.to_string()).collect();
        let config = format!(
            "[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\nrates = {{ controllers = {controllers:?} }}\n\
             [pool.shop]\nservers = [\"127.0.0.1:1\"]\n[class.shop]\nmatch = [{{ path = \"/*\" }}]\n"
        );
        let place = Place::new("", &config);
        let sentry = place.start_role("sentry", "sentry", &[]);
        Entry { place, admin, _sentry: sentry }
    }

    fn limit(&self) -> Option<Value> {
        let pools: Value = serde_json::from_str(&get(self.admin, "/pools")?).ok()?;
        Some(pools["pools"][0]["classes"][0]["rate_limit_per_s"].clone())
    }

    /// Whether it is held to what was left; that grows in time.
    fn is_held(&self) -> bool {
        let limit = self.limit().and_then(|limit| limit.as_f64());
        limit.is_some_and(|limit| (0.9 * LEFT..4.0 * LEFT).contains(&limit))
    }

    fn is_open(&self) -> bool {
        self.limit().is_some_and(|limit| limit.is_null())
    }

    fn log(&self) -> String {
        self.place.log("sentry")
    }
}

/// One leads, another follows it, and the entry is held to what was left.
struct Pair {
    etcd: Etcd,
    link: Link,
    first: Host,
    second: Host,
    leader: Controller,
    spare: Controller,
    entry: Entry,
}

impl Pair {
    fn start() -> Option<Pair> {
        let etcd = Etcd::start()?;
        etcd.leave("shop", LEFT);
        let link = Link::to(etcd.address());
        let (first, second) = (Host::new("first", link.address, ""), Host::new("second", etcd.address(), ""));
        let entry = Entry::start(&[&first, &second]);
        let leader = first.start();
        until(PATIENCE, "somebody leads", || first.follows("somebody"));
        etcd.forget();
        until(PATIENCE, "nobody does, so the first does", || first.leads().is_some());
        let spare = second.start();
        until(PATIENCE, "the second follows", || second.follows("first"));
        until(PATIENCE, "the entry is held to what was left", || entry.is_held());
        Some(Pair { etcd, link, first, second, leader, spare, entry })
    }
}

#[test]
fn a_leader_that_is_killed_is_followed_by_its_spare_and_the_entry_stays_limited() {
    let Some(mut pair) = Pair::start() else { return };
    let revision = pair.first.leads().unwrap();
    // What it leaves has to be told first.
    std::thread::sleep(Duration::from_millis(700));
    pair.leader.signal("KILL");
    pair.leader.ended();
    until(PATIENCE, "the second leads", || {
        assert!(!pair.entry.is_open(), "the entry was opened");
        pair.second.leads() > Some(revision)
    });
    until(PATIENCE, "the entry goes by it", || {
        assert!(!pair.entry.is_open(), "the entry was opened");
        pair.entry.is_held() && pair.second.plan()["rates"]["streams"].as_u64() > Some(0)
    });
    let class = &pair.second.plan()["rates"]["classes"][0];
    assert_eq!(class["why"], "as the leader before had it");
    assert!(pair.entry.log().contains(&pair.second.leads().unwrap().to_string()), "{}", pair.entry.log());

    // One that is told to end leaves at once, and nobody has to wait for its lease.
    let _third = pair.first.start();
    until(PATIENCE, "the first is back", || pair.first.follows("second"));
    pair.spare.signal("TERM");
    assert!(pair.spare.ended().success());
    until(PATIENCE, "it leads again", || pair.first.leads() > Some(revision));
}

#[test]
fn a_leader_that_was_stopped_is_not_listened_to_when_it_goes_on() {
    let Some(pair) = Pair::start() else { return };
    let before = pair.first.leads().unwrap();
    pair.leader.signal("STOP");
    until(PATIENCE, "the second leads", || pair.second.leads() > Some(before));
    until(PATIENCE, "the sentry has found it", || {
        pair.entry.log().contains(&format!("revision={}", pair.second.leads().unwrap_or_default()))
    });
    pair.leader.signal("CONT");
    until(PATIENCE, "the first has noticed", || pair.first.follows("second"));
    assert!(pair.first.place.log("log").contains("this controller leads no more"));
    // It is told once, and from nobody else after that.
    let log = pair.entry.log();
    let revisions: Vec<&str> =
        log.lines().filter(|line| line.contains("rates come from this controller")).collect();
    assert!(revisions.last().unwrap().contains(&pair.second.leads().unwrap().to_string()), "{revisions:?}");
    let metrics = pair.first.place.get("/metrics").unwrap();
    assert!(metrics.contains("plimsoll_controller_leads 0"), "{metrics}");
}

#[test]
fn without_etcd_a_leader_ends_with_its_lease_and_with_it_somebody_leads_again() {
    let Some(mut pair) = Pair::start() else { return };
    let mut revision = pair.first.leads().unwrap();
    for fault in ["KILL", "STOP"] {
        let somebody = || pair.first.leads().max(pair.second.leads());
        until(PATIENCE, "somebody leads", || somebody() >= Some(revision));
        match fault {
            "KILL" => pair.etcd.kill(),
            _ => pair.etcd.signal("STOP"),
        }
        let (first, second) = (&pair.first, &pair.second);
        until(PATIENCE, "nobody leads", || first.leads().or(second.leads()).is_none());
        for host in [first, second] {
            until(PATIENCE, "both say what is wrong", || host.plan()["leadership"]["trouble"].is_string());
            let metrics = host.place.get("/metrics").unwrap();
            let failures =
                metrics.lines().find(|line| line.starts_with("plimsoll_controller_election_failures_total "));
            assert!(failures.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
        }
        match fault {
            "KILL" => pair.etcd.go_on(),
            _ => pair.etcd.signal("CONT"),
        }
        let (first, second) = (&pair.first, &pair.second);
        until(PATIENCE, "somebody leads again", || first.leads().max(second.leads()) > Some(revision));
        revision = first.leads().max(second.leads()).unwrap();
        until(PATIENCE, "nothing is wrong", || first.plan()["leadership"]["trouble"].is_null());
    }
}

#[test]
fn a_leader_that_is_cut_off_ends_before_its_spare_begins() {
    let Some(pair) = Pair::start() else { return };
    let before = pair.first.leads().unwrap();
    pair.link.is_apart(true);
    until(PATIENCE, "the second leads", || pair.second.leads() > Some(before));
    assert_eq!(pair.first.leads(), None, "the first had ended by then");
    until(PATIENCE, "the entry goes by the second", || pair.entry.is_held());
    pair.link.is_apart(false);
    until(PATIENCE, "the first follows it", || pair.first.follows("second"));
}

/// Each question and each answer on its way for so long. To renew a lease takes two of both, and a quarter of it is time for that.
#[test]
fn behind_a_slow_network_a_leader_leads_on_and_behind_one_that_is_too_slow_it_ends_first() {
    let Some(pair) = Pair::start() else { return };
    let before = pair.first.leads().unwrap();
    pair.link.takes(Duration::from_millis(50));
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!((pair.first.leads(), pair.second.leads()), (Some(before), None));
    }
    pair.link.takes(Duration::from_secs(3));
    until(PATIENCE, "the second leads", || pair.second.leads() > Some(before));
    assert_eq!(pair.first.leads(), None, "the first had ended by then");
    pair.link.takes(Duration::ZERO);
    until(PATIENCE, "the first follows it", || pair.first.follows("second"));
}

#[test]
fn who_is_not_let_in_is_told_why_and_no_password_is_said() {
    let Some(etcd) = Etcd::start() else { return };
    let password = "correct-horse-battery";
    etcd.ask("auth/user/add", &json!({ "name": "root", "password": password }));
    etcd.ask("auth/role/add", &json!({ "name": "root" }));
    etcd.ask("auth/user/grant", &json!({ "user": "root", "role": "root" }));
    etcd.ask("auth/enable", &json!({}));
    let file = etcd.directory().join("password");
    let host = |more: &str| Host::new("one", etcd.address(), more);
    let user = format!(", user = \"root\", password_file = \"{}\"", file.display());

    let nobody = host("");
    assert!(!nobody.start().ended().success());
    assert!(nobody.place.log("log").contains("user name is empty"), "{}", nobody.place.log("log"));

    let missing = host(&user);
    assert!(!missing.start().ended().success());
    assert!(missing.place.log("log").contains("No such file"), "{}", missing.place.log("log"));

    std::fs::write(&file, "wrong-donkey-charger\n").unwrap();
    let wrong = host(&user);
    assert!(!wrong.start().ended().success());
    let log = wrong.place.log("log");
    assert!(log.contains("authentication failed") && !log.contains("wrong-donkey"), "{log}");

    std::fs::write(&file, format!("{password}\n")).unwrap();
    let right = host(&user);
    let _controller = right.start();
    until(PATIENCE, "it leads", || right.leads().is_some());
    assert!(!right.place.log("log").contains(password));
}

#[test]
fn over_tls_only_the_etcd_that_is_meant_is_believed() {
    let Some(mut etcd) = Etcd::start() else { return };
    etcd.with_tls();
    let endpoint = format!("https://{}", etcd.address());
    let ca = |name: &str| format!(", ca = \"{}\"", etcd.directory().join(name).display());
    let other = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(etcd.directory().join("other.pem"), other.cert.pem()).unwrap();
    let (meant, not_meant) =
        (Host::new("one", &endpoint, &ca("server.pem")), Host::new("two", &endpoint, &ca("other.pem")));
    let _controllers = [meant.start(), not_meant.start()];
    until(PATIENCE, "it leads", || meant.leads().is_some());
    until(PATIENCE, "the other does not trust it", || {
        not_meant.plan()["leadership"]["trouble"]
            .as_str()
            .is_some_and(|trouble| trouble.contains("ertificate"))
    });
    assert_eq!(not_meant.leads(), None);
}

#[test]
fn who_finds_no_etcd_waits_and_says_so() {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, ports(1).0));
    let host = Host::new("one", nowhere, "");
    let mut controller = host.start();
    until(PATIENCE, "it says so", || {
        let plan = host.plan();
        let trouble = plan["leadership"]["trouble"].as_str().unwrap_or_default().to_owned();
        trouble.contains(&nowhere.to_string()) && trouble.contains("refused")
    });
    assert_eq!(host.leads(), None);
    assert!(host.place.log("log").contains("refused"));
    controller.signal("TERM");
    assert!(controller.ended().success());
}
