//! All of it live: a real sentry under load, a real controller, real servers.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{PAGES, PATIENCE, PLIMSOLL, Place, get, ports, until};

/// All servers that there may be; each pool has one at least and this less one at most.
const SERVERS: usize = 4;

/// Two pools behind one sentry, which polices them, and one controller.
struct Platform {
    place: Place,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Platform {
    fn new() -> Platform {
        let here = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (listen, admin) = ports(2);
        let (listen, admin) = (here(listen), here(admin));
        let mut config = format!("[sentry]\nlisten = \"{listen}\"\nadmin = \"{admin}\"\n");
        // They wait instead of computing, two at a time: about a hundred requests a second each.
        let command = [&PAGES[..], &["--work", "wait", "--workers", "2"]].concat();
        for name in ["one", "two"] {
            let (first, last) = ports(2 * SERVERS as u16);
            config += &format!(
                "[pool.{name}]\nworkers = 2\npolicing = {{ policy = \"auto\" }}\nadmission = {{ policy = \"none\" }}\n\
                 provision = {{ max = {}, pause = \"500ms\", period = \"1s\", season = \"0s\", ports = \"{first}-{last}\", \
                 ready = \"/healthz\", command = {command:?} }}\n\
                 [class.{name}]\nmatch = [{{ path = \"/{{page}}/{name}\" }}]\nslo = {{ mean = \"250ms\" }}\npool = \"{name}\"\n",
                SERVERS - 1
            );
        }
        config += "[class.default]\npool = \"one\"\n";
        Platform { place: Place::new(&format!("servers = {SERVERS}"), &config), listen, admin }
    }

    /// What the sentry says of each pool.
    fn pools(&self) -> Vec<Value> {
        let answer = get(self.admin, "/pools").and_then(|text| serde_json::from_str::<Value>(&text).ok());
        answer.and_then(|answer| answer["pools"].as_array().cloned()).unwrap_or_default()
    }

    /// How many servers the sentry has in each pool.
    fn servers(&self) -> Vec<usize> {
        self.pools().iter().map(|pool| pool["servers"].as_array().unwrap().len()).collect()
    }

    /// Sends an application what its rate says.
    fn load(&self, application: &str, rate: &str, seconds: u32) -> Child {
        let mix = self.place.directory.path().join(format!("{application}.mix"));
        let pages = ["cheap", "middling", "heavy"].map(|page| {
            format!("[request.{page}]\nmethod = \"GET\"\npath = \"/{page}/{application}\"\nshare = 1.0\n")
        });
        std::fs::write(&mix, pages.concat()).unwrap();
        let mut command = Command::new(PLIMSOLL);
        command.args(["load", "--json", "--rate", rate, "--duration", &format!("{seconds}s"), "--target"]);
        command.arg(format!("http://{}/", self.listen)).arg("--mix").arg(mix);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }
}

/// What a load found, all names together.
fn total(load: Child) -> Value {
    let output = load.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["total"].clone()
}

#[test]
fn a_step_of_the_load_brings_servers_and_its_end_gives_them_back_and_no_request_fails() {
    let platform = Platform::new();
    let _sentry = platform.place.start_role("sentry", "sentry", &[]);
    let _controller = platform.place.start("controller", &["--stop-servers"]);
    until(PATIENCE, "each pool has its first server", || platform.servers() == [1, 1]);

    // Several times what one server can do, for one of them.
    let mut one = platform.load("one", "0s:20,3s:300,13s:20", 16);
    let two = platform.load("two", "20", 16);
    let (mut most, mut most_at_once) = ([0, 0], 0);
    while one.try_wait().unwrap().is_none() {
        let servers = platform.servers();
        assert_eq!(servers.len(), 2);
        most = [most[0].max(servers[0]), most[1].max(servers[1])];
        most_at_once = most_at_once.max(platform.place.pids().len());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(most[0] > 1 && most.iter().all(|&servers| servers < SERVERS), "{most:?}");
    assert!(most_at_once <= SERVERS, "{most_at_once} processes");
    until(PATIENCE, "they are given back", || {
        platform.servers() == [1, 1] && platform.place.pids().len() == 2
    });

    let (one, two) = (total(one), total(two));
    for (total, name) in [(&one, "one"), (&two, "two")] {
        let failed = ["errors", "refused_other"].map(|key| total[key].as_u64().unwrap());
        assert_eq!(failed, [0, 0], "{name}: {total}");
    }
    let count = |total: &Value, key: &str| total[key].as_u64().unwrap();
    assert!(count(&one, "rejected") > 0 && count(&one, "ok") > count(&one, "rejected") / 4, "{one}");
    assert!(count(&two, "ok") > count(&two, "rejected"), "{two}");
    // One worker has counted them all: nothing was loaded anew meanwhile.
    let offered = platform.pools().into_iter().flat_map(|pool| pool["classes"].as_array().unwrap().clone());
    let offered: u64 = offered.map(|class| class["offered"].as_u64().unwrap()).sum();
    assert_eq!(offered, count(&one, "sent") + count(&two, "sent"));
}
