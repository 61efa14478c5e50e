//! What stands on the stage of the flash crowd: the classes, what they are promised, and the platform that is to keep it.

use plimsoll_core::Nanos;
use plimsoll_testbed::ports::free_ports;

use crate::platform::{Platform, page_command};

/// Requests that one server works on at once.
pub const WORKERS: u32 = 8;
/// Servers that there may be; one of them is there at first.
pub const MOST: u16 = 6;
/// Servers that are added at a time, so that there is something to see before the next ones come.
const STEP: u32 = 2;
/// What requests may take.
pub const TARGET_MS: u64 = 250;
/// Nothing of the controller happens more often.
const LEAST_INTERVAL: Nanos = Nanos::from_millis(100);

/// A class of users.
#[derive(Clone, Copy)]
pub struct Tier {
    pub name: &'static str,
    /// Of all requests.
    pub share: f64,
    /// What an answer is worth.
    pub revenue: f64,
    /// Requests a second that get in whatever comes.
    pub promised_per_s: u32,
}

/// The most important first.
pub const TIERS: [Tier; 3] = [
    Tier { name: "gold", share: 0.05, revenue: 10.0, promised_per_s: 10 },
    Tier { name: "silver", share: 0.25, revenue: 3.0, promised_per_s: 10 },
    Tier { name: "bronze", share: 0.70, revenue: 1.0, promised_per_s: 20 },
];

/// Starts the platform for a crowd of this length: the controller is as much faster than in production as the crowd is shorter.
pub async fn set(crowd: Nanos) -> Result<Platform, String> {
    // Some to spare, should somebody else take one.
    let ports = free_ports(2 * MOST)?;
    let (first, last) = (ports.start, ports.end - 1);
    let part = |parts: u64| Nanos(crowd.0 / parts).max(LEAST_INTERVAL);
    let command = page_command(WORKERS)?;
    let (pause, period, interval) = (part(6), part(15), part(60));
    let mut pools = format!(
        r#"
[pool.pages]
workers   = {WORKERS}
policing  = {{ policy = "auto" }}
admission = {{ policy = "none" }}

[pool.pages.provision]
min     = 1
max     = {MOST}
step    = {STEP}
pause   = "{pause}"
period  = "{period}"
season  = "0s"
command = {command}
ports   = "{first}-{last}"
ready   = "/healthz"
"#
    );
    for (priority, Tier { name, revenue, promised_per_s, .. }) in (1..).zip(&TIERS) {
        pools += &format!(
            r#"
[class.{name}]
match    = [{{ path = "/{{page}}/{name}" }}]
slo      = {{ mean = "{TARGET_MS}ms" }}
priority = {priority}
revenue  = {revenue:.1}
min_rate = "{promised_per_s}/s"
"#
        );
    }
    Platform::start(&format!("interval = \"{interval}\""), &pools).await
}
