//! What comes of each class where it enters, and how it fares, as sentries count it several times a second.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use plimsoll_core::Nanos;
use plimsoll_core::config::Secret;
use tokio::time::timeout;

use crate::measure::Meter;
use crate::outcome::Outcome;
use crate::sentries::read;

/// What was counted of one class at the entries since the last step.
#[derive(Clone, Debug, Default)]
pub struct Entered {
    /// Requests a second that came,
    pub offered_per_s: f64,
    /// and that were refused.
    pub refused_per_s: f64,
    /// Of those sentries that say.
    pub outcome: Outcome,
}

impl Entered {
    /// Requests a second that were let in.
    pub fn admitted_per_s(&self) -> f64 {
        (self.offered_per_s - self.refused_per_s).max(0.0)
    }
}

/// What was seen at the entries.
#[derive(Debug, Default)]
pub struct Seen {
    /// By class.
    pub classes: HashMap<String, Entered>,
    /// Whether every sentry answered, so that sums are whole.
    pub is_whole: bool,
}

/// The sentries' counters.
pub struct Entries {
    token: Option<Secret>,
    /// By sentry and pool.
    meters: HashMap<SocketAddr, HashMap<String, Meter>>,
}

impl Entries {
    /// Nothing was counted yet by sentries that want this token.
    pub fn new(token: Option<Secret>) -> Entries {
        Entries { token, meters: HashMap::new() }
    }

    /// Reads all of them; one that has not answered within `patience` has not. Whoever plans says so in the log.
    pub async fn look(&mut self, sentries: &[SocketAddr], now: Nanos, patience: Duration) -> Seen {
        let token = self.token.as_ref();
        let answers = join_all(sentries.iter().map(|&sentry| timeout(patience, read(sentry, token)))).await;
        self.meters.retain(|sentry, _| sentries.contains(sentry));
        let mut seen = Seen { is_whole: true, ..Seen::default() };
        for (sentry, answer) in sentries.iter().zip(answers) {
            let Ok(Ok(reading)) = answer else {
                seen.is_whole = false;
                continue;
            };
            let meters = self.meters.entry(*sentry).or_default();
            for pool in &reading.pools {
                let Some(rates) = meters.entry(pool.name.clone()).or_default().rates(now, pool) else {
                    seen.is_whole = false;
                    continue;
                };
                for rates in rates {
                    let class = seen.classes.entry(rates.name).or_default();
                    class.offered_per_s += rates.per_s;
                    class.refused_per_s += rates.refused_per_s;
                    seen.is_whole &= rates.outcome.is_some();
                    class.outcome =
                        std::mem::take(&mut class.outcome).and(&rates.outcome.unwrap_or_default());
                }
            }
        }
        seen
    }
}
