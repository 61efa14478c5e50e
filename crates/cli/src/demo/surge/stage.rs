//! What the demo starts: two web services, a sentry and its config. Dropping the stage ends them all.

use std::net::SocketAddr;
use std::process::Stdio;

use http::Uri;

use super::super::Side;
use crate::processes::{ConfigFile, Page, Process, free_addresses, plimsoll, ready, uri};

/// Says to which copy a request goes.
pub const SIDE_HEADER: &str = "x-demo-side";
/// Requests that one copy works on at once.
const WORKERS: u32 = 8;

/// What is promised, for every route: half of the answers within the first, nine of ten within the second.
pub const P50_MS: u64 = 80;
pub const P90_MS: u64 = 160;
/// The share of every route that gets in whatever the estimate says, so that the heavy one does not starve.
pub const ALLOWANCE: f64 = 0.05;

/// One route of the web service.
pub struct Route {
    pub name: &'static str,
    pub path: &'static str,
    pub share: f64,
}

pub const ROUTES: [Route; 3] = [
    Route { name: "cheap", path: "/cheap", share: 0.5 },
    Route { name: "middling", path: "/middling", share: 0.3 },
    Route { name: "heavy", path: "/heavy", share: 0.2 },
];

/// The processes of the demo.
pub struct Stage {
    sentry_addr: SocketAddr,
    admin: SocketAddr,
    probe: Page,
    _without: Page,
    _with: Page,
    _sentry: Process,
    _config: ConfigFile,
}

impl Stage {
    /// Starts everything and waits until it is ready.
    pub async fn set() -> Result<Stage, String> {
        let [probe, without, with] = [Page::start(WORKERS)?, Page::start(WORKERS)?, Page::start(WORKERS)?];
        let [sentry_addr, admin] = free_addresses()?;
        let config = ConfigFile::write("demo", &config(sentry_addr, admin, without.addr, with.addr))?;
        let mut command = plimsoll()?;
        command.args(["sentry", "--config"]).arg(config.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let sentry = Process::start(command)?;
        ready(admin).await?;
        Ok(Stage {
            sentry_addr,
            admin,
            probe,
            _without: without,
            _with: with,
            _sentry: sentry,
            _config: config,
        })
    }

    pub fn sentry(&self) -> Uri {
        uri(self.sentry_addr)
    }

    /// A third copy, alone, to measure.
    pub fn bare_server(&self) -> &Page {
        &self.probe
    }

    pub fn live_page(&self) -> Uri {
        uri(self.admin)
    }
}

fn config(sentry: SocketAddr, admin: SocketAddr, without: SocketAddr, with: SocketAddr) -> String {
    let mut text = format!(
        r#"[sentry]
listen = "{sentry}"
admin  = "{admin}"

[pool.without]
servers   = ["{without}"]
workers   = {WORKERS}
admission = {{ policy = "bouncer", mode = "off" }}

[pool.with]
servers   = ["{with}"]
workers   = {WORKERS}
admission = {{ policy = "bouncer", allowance = {ALLOWANCE} }}

[slo.promised]
p50 = "{P50_MS}ms"
p90 = "{P90_MS}ms"
"#
    );
    for side in [Side::Without, Side::With] {
        for Route { name, path, .. } in ROUTES {
            let side = side.as_str();
            text += &format!(
                r#"
[class.{name}-{side}]
match = [{{ path = "{path}", header = {{ name = "{SIDE_HEADER}", value = "{side}" }} }}]
slo   = "promised"
pool  = "{side}"
"#
            );
        }
    }
    text + "\n[class.default]\npool = \"with\"\n"
}
