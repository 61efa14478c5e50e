//! How many requests of each class may enter the fleet, and who is told: sentries and Envoys, by the rate limit quota service
//! ([`plimsoll_rlqs`]).
//!
//! [`decide`](crate::decide) says how many; what the operator has set (`max_rate`) holds in any case, and is all there is where nobody
//! decides. In shadow nobody is told.

use std::cell::RefCell;

use plimsoll_core::config::{Class, ControllerRates};
use plimsoll_rlqs::fleet::Demand;
use plimsoll_rlqs::server::{Rates, Server, Settings};
use plimsoll_sentry::clock;
use tokio::sync::watch;

use crate::outcome::Outcome;
use crate::status::{ClassRate, RatesStatus, Services};
use crate::wanted::Wanted;

/// Of the highest percentile of what is shown.
const TAIL: f64 = 0.95;

/// What was decided in a step, by class in the order of the config.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// Requests a second that may enter; as many as come, where there is no number.
    pub per_s: Vec<Option<f64>>,
    /// Why that was changed, where it was.
    pub why: Vec<Option<String>>,
    /// For the sake of which service, where there is a limit for one.
    pub causes: Vec<Option<String>>,
    /// The services that are overloaded.
    pub overloaded: Vec<String>,
    /// What would come to each service; the last that was said, where this says nothing new.
    pub wanted: Option<Vec<(String, Wanted)>>,
}

/// What has been decided, and the service that tells it.
pub struct FleetRates {
    /// Nothing in shadow.
    server: Option<Server>,
    told: watch::Sender<Rates>,
    /// The last of it; of reasons the last that there was.
    decided: RefCell<Decided>,
    /// By class: its name, and what it may have at most.
    classes: Vec<(String, Option<f64>)>,
}

impl FleetRates {
    /// Serves as the leader of this revision; where there is none, nobody is told.
    ///
    /// # Errors
    /// Where it cannot listen, in words for the operator.
    pub async fn start(
        config: &ControllerRates,
        classes: &[Class],
        revision: Option<u64>,
    ) -> Result<FleetRates, String> {
        let (told, heard) =
            watch::channel(Rates { revision: revision.unwrap_or_default(), per_s: Vec::new() });
        let server = match revision {
            Some(revision) => {
                let settings = Settings {
                    listen: config.listen,
                    token: config.token.as_ref().map(|token| token.reveal().to_owned()),
                    classes: classes.iter().map(|class| class.name.clone()).collect(),
                    clock: clock::now,
                };
                let server = Server::start(settings, heard).await;
                let server =
                    server.map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
                log::info!(rates:% = server.address(), revision; "rates are served");
                Some(server)
            }
            None => None,
        };
        let most = |class: &Class| (class.name.clone(), class.max_rate.map(|rate| rate.per_s));
        let classes: Vec<_> = classes.iter().map(most).collect();
        let nothing = vec![None; classes.len()];
        let why = vec![None; classes.len()];
        let rates = FleetRates {
            server,
            told,
            decided: RefCell::new(Decided { why, ..Decided::default() }),
            classes,
        };
        rates.decide(Decided { per_s: nothing, ..Decided::default() });
        Ok(rates)
    }

    /// From now on this holds.
    pub fn decide(&self, decided: Decided) {
        let least = |decided: Option<f64>, most: Option<f64>| match (decided, most) {
            (Some(decided), Some(most)) => Some(decided.min(most)),
            (decided, most) => decided.or(most),
        };
        let both = decided.per_s.iter().zip(&self.classes);
        let per_s: Vec<Option<f64>> = both.map(|(decided, (_, most))| least(*decided, *most)).collect();
        self.told.send_if_modified(|told| std::mem::replace(&mut told.per_s, per_s.clone()) != per_s);
        let mut last = self.decided.borrow_mut();
        let why = last.why.iter().zip(decided.why.into_iter().chain(std::iter::repeat(None)));
        let why = why.map(|(before, now)| now.or_else(|| before.clone())).collect();
        let wanted = decided.wanted.or_else(|| last.wanted.take());
        *last = Decided { per_s, why, causes: decided.causes, overloaded: decided.overloaded, wanted };
    }

    /// Whether a class is limited for the sake of another service than this one.
    pub fn is_for_another(&self, class: usize, service: &str) -> bool {
        let decided = self.decided.borrow();
        decided.causes.get(class).and_then(Option::as_deref).is_some_and(|cause| cause != service)
    }

    /// What arrives by class, as those say who are told; nothing where nobody is.
    pub fn demand(&self) -> Option<Vec<Demand>> {
        let server = self.server.as_ref()?;
        (server.streams() > 0).then(|| server.demand())
    }

    /// How it stands. `outcomes` are by class, where something was counted.
    pub fn status(&self, outcomes: &[Option<Outcome>]) -> RatesStatus {
        let (decided, demand) = (self.decided.borrow(), self.demand());
        let unheard = self.server.as_ref().map(Server::unheard).unwrap_or_default();
        let class = |(i, (name, _)): (usize, &(String, Option<f64>))| {
            let outcome = outcomes.get(i).and_then(Option::as_ref);
            let demand = demand.as_ref().map(|demand| demand[i]).unwrap_or_default();
            let limit = decided.per_s[i];
            ClassRate {
                name: name.clone(),
                may_enter_per_s: limit,
                why: limit.and_then(|_| decided.why[i].clone()),
                offered_per_s: demand.offered_per_s,
                admitted_per_s: demand.admitted_per_s,
                goodput_per_s: outcome.map(|outcome| outcome.goodput_per_s),
                p95_ms: outcome.and_then(|outcome| outcome.tail_ms(TAIL)),
            }
        };
        RatesStatus {
            revision: self.told.borrow().revision,
            streams: self.server.as_ref().map_or(0, Server::streams),
            overloaded: decided.overloaded.clone(),
            services: Services(decided.wanted.clone().unwrap_or_default()),
            classes: self.classes.iter().enumerate().map(class).collect(),
            unknown: unheard.unknown,
            nonsense: unheard.nonsense,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::{Config, parse};

    use super::*;

    #[tokio::test]
    async fn limits_are_for_the_sake_of_somebody() {
        let text = "[controller]\nrates = {}\n[pool.a]\nservers = [\"127.0.0.1:1\"]\n[class.cart]\nmatch = [{ path = \"/cart\" }]\n";
        let config = parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
        let settings = config.controller.rates.as_ref().unwrap();
        let rates = FleetRates::start(settings, &config.classes, None).await.unwrap();
        assert!(!rates.is_for_another(0, "cart"));
        let causes = vec![Some("stock".to_owned()), None];
        let wanted = vec![("stock".to_owned(), Wanted::default())];
        let per_s = vec![Some(5.0), None];
        rates.decide(Decided { per_s, causes, wanted: Some(wanted.clone()), ..Decided::default() });
        assert!(rates.is_for_another(0, "cart") && !rates.is_for_another(0, "stock"));
        assert!(!rates.is_for_another(1, "cart"), "the operator's, or none");
        assert_eq!(rates.status(&[]).services.0, wanted);
        rates.decide(Decided { per_s: vec![None; 2], ..Decided::default() });
        assert!(!rates.is_for_another(0, "cart"));
        assert_eq!(rates.status(&[]).services.0, wanted, "nothing newer was said");
    }
}
