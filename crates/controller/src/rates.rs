//! How many requests of each class may enter the fleet, and who is told: sentries and Envoys, by the rate limit quota service
//! ([`plimsoll_rlqs`]).
//!
//! Whoever decides calls [`FleetRates::decide`]. What the operator has set (`max_rate`) holds in any case, and is all there is where
//! nobody decides.

use plimsoll_core::config::{Class, ControllerRates};
use plimsoll_rlqs::server::{Rates, Server, Settings};
use plimsoll_sentry::clock;
use tokio::sync::watch;

use crate::outcome::Outcome;
use crate::status::{ClassRate, RatesStatus};

/// Of the highest percentile of what is shown.
const TAIL: f64 = 0.95;

/// The service, and what has been decided.
pub struct FleetRates {
    server: Server,
    decided: watch::Sender<Rates>,
    /// By class: its name, and what it may have at most.
    classes: Vec<(String, Option<f64>)>,
}

impl FleetRates {
    /// Serves as the leader of this revision.
    ///
    /// # Errors
    /// Where it cannot listen, in words for the operator.
    pub async fn start(
        config: &ControllerRates,
        classes: &[Class],
        revision: u64,
    ) -> Result<FleetRates, String> {
        let (decided, heard) = watch::channel(Rates { revision, per_s: Vec::new() });
        let settings = Settings {
            listen: config.listen,
            token: config.token.as_ref().map(|token| token.reveal().to_owned()),
            classes: classes.iter().map(|class| class.name.clone()).collect(),
            clock: clock::now,
        };
        let server = Server::start(settings, heard).await;
        let server = server.map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
        let most = |class: &Class| (class.name.clone(), class.max_rate.map(|rate| rate.per_s));
        let rates = FleetRates { server, decided, classes: classes.iter().map(most).collect() };
        rates.decide(&vec![None; rates.classes.len()]);
        log::info!(rates:% = rates.server.address(), revision; "rates are served");
        Ok(rates)
    }

    /// From now on so many requests a second of each class may enter, in the order of the config; as many as come, where there is no
    /// number.
    pub fn decide(&self, per_s: &[Option<f64>]) {
        let least = |decided: Option<f64>, most: Option<f64>| match (decided, most) {
            (Some(decided), Some(most)) => Some(decided.min(most)),
            (decided, most) => decided.or(most),
        };
        let per_s =
            per_s.iter().zip(&self.classes).map(|(decided, (_, most))| least(*decided, *most)).collect();
        self.decided.send_modify(|rates| rates.per_s = per_s);
    }

    /// How it stands. `outcomes` are by class, where something was counted.
    pub fn status(&self, outcomes: &[Option<Outcome>]) -> RatesStatus {
        let (decided, demands, unheard) =
            (self.decided.borrow(), self.server.demand(), self.server.unheard());
        let class = |(i, (name, _)): (usize, &(String, Option<f64>))| {
            let outcome = outcomes.get(i).and_then(Option::as_ref);
            ClassRate {
                name: name.clone(),
                may_enter_per_s: decided.per_s.get(i).copied().flatten(),
                offered_per_s: demands[i].offered_per_s,
                admitted_per_s: demands[i].admitted_per_s,
                goodput_per_s: outcome.map(|outcome| outcome.goodput_per_s),
                p95_ms: outcome.and_then(|outcome| outcome.tail_ms(TAIL)),
            }
        };
        RatesStatus {
            revision: decided.revision,
            streams: self.server.streams(),
            classes: self.classes.iter().enumerate().map(class).collect(),
            unknown: unheard.unknown,
            nonsense: unheard.nonsense,
        }
    }
}
