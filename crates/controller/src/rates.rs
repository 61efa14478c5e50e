//! How many requests of each class may enter the fleet, and who is told: sentries and Envoys, by the rate limit quota service
//! ([`plimsoll_rlqs`]).
//!
//! [`decide`](crate::decide) says how many; what the operator has set (`max_rate`) holds in any case, and is all there is where nobody
//! decides. In shadow nobody is told.
//!
//! **What the leader before has left** holds until this one has limited the class itself, so that a change of leaders opens no entry: it
//! knows nothing yet of what services can do. Like every limit for whose reason nothing is heard, it stays as it is for some seconds, then
//! grows, and is gone after a minute.

use std::cell::RefCell;

use plimsoll_core::Nanos;
use plimsoll_core::config::{Class, ControllerRates};
use plimsoll_ratecontrol::Settings as Control;
use plimsoll_rlqs::fleet::Demand;
use plimsoll_rlqs::server::{Rates, Server, Settings};
use plimsoll_sentry::clock;
use tokio::sync::watch;

use crate::lead::{Estate, Limits, Term};
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
    /// What is left to whoever leads next.
    leaves: Option<watch::Sender<Limits>>,
    estate: RefCell<Estate>,
    /// The last of it; of reasons the last that there was.
    decided: RefCell<Decided>,
    /// By class: its name, and what it may have at most.
    classes: Vec<(String, Option<f64>)>,
}

impl FleetRates {
    /// Serves as the leader of this term; where there is none, nobody is told. What is in the `estate` holds at first.
    ///
    /// # Errors
    /// Where it cannot listen, in words for the operator.
    pub async fn start(
        config: &ControllerRates,
        classes: &[Class],
        term: Option<&Term>,
        estate: Option<Estate>,
    ) -> Result<FleetRates, String> {
        let revision = term.map_or(0, |term| term.revision);
        let (told, heard) = watch::channel(Rates { revision, per_s: Vec::new() });
        let most = |class: &Class| (class.name.clone(), class.max_rate.map(|rate| rate.per_s));
        let names: Vec<_> = classes.iter().map(most).collect();
        let why = vec![None; names.len()];
        let mut rates = FleetRates {
            server: None,
            told,
            leaves: term.map(|term| term.leaves.clone()),
            estate: RefCell::new(estate.unwrap_or_default()),
            decided: RefCell::new(Decided { why, ..Decided::default() }),
            classes: names,
        };
        // Before anybody can ask.
        rates.decide(Decided { per_s: vec![None; classes.len()], ..Decided::default() }, clock::now());
        rates.server = match term {
            Some(term) => {
                let settings = Settings {
                    listen: config.listen,
                    token: config.token.as_ref().map(|token| token.reveal().to_owned()),
                    classes: classes.iter().map(|class| class.name.clone()).collect(),
                    tenure: term.tenure.clone(),
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
        Ok(rates)
    }

    /// From now on this holds, as well as what is left of before.
    pub fn decide(&self, mut decided: Decided, now: Nanos) {
        self.inherit(&mut decided, now);
        let least = |decided: Option<f64>, most: Option<f64>| match (decided, most) {
            (Some(decided), Some(most)) => Some(decided.min(most)),
            (decided, most) => decided.or(most),
        };
        let both = decided.per_s.iter().zip(&self.classes);
        let per_s: Vec<Option<f64>> = both.map(|(decided, (_, most))| least(*decided, *most)).collect();
        self.told.send_if_modified(|told| std::mem::replace(&mut told.per_s, per_s.clone()) != per_s);
        if let Some(leaves) = &self.leaves {
            let limits = decided.per_s.iter().zip(&self.classes);
            let limits = limits.filter_map(|(limit, (name, _))| Some((name.clone(), (*limit)?)));
            leaves.send_replace(limits.collect());
        }
        let mut last = self.decided.borrow_mut();
        let why = last.why.iter().zip(decided.why);
        let why = why.map(|(before, now)| now.or_else(|| before.clone())).collect();
        let wanted = decided.wanted.or_else(|| last.wanted.take());
        *last = Decided { per_s, why, causes: decided.causes, overloaded: decided.overloaded, wanted };
    }

    /// Whether a class is limited for the sake of another service than this one.
    pub fn is_for_another(&self, class: usize, service: &str) -> bool {
        let decided = self.decided.borrow();
        decided.causes.get(class).and_then(Option::as_deref).is_some_and(|cause| cause != service)
    }

    /// Limits what was limited when the leader before was seen last, unless it is decided on by now.
    fn inherit(&self, decided: &mut Decided, now: Nanos) {
        let mut estate = self.estate.borrow_mut();
        let Control { freeze, relax, release, .. } = Control::default();
        let age = now.since(estate.seen);
        if age >= release {
            estate.limits.clear();
        }
        let doublings = age.since(freeze).as_secs_f64() / relax.as_secs_f64();
        decided.why.resize(self.classes.len(), None);
        for (at, (name, _)) in self.classes.iter().enumerate() {
            match decided.per_s[at] {
                Some(_) => drop(estate.limits.remove(name)),
                None => {
                    let Some(left) = estate.limits.get(name) else { continue };
                    decided.per_s[at] = Some(left * doublings.exp2());
                    decided.why[at] = Some("as the leader before had it".to_owned());
                }
            }
        }
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
            let demand = demand.as_ref().map(|demand| demand[i].steady).unwrap_or_default();
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
    use plimsoll_rlqs::Tenure;

    use super::*;

    /// Later than the tests themselves take.
    const LEFT_S: u64 = 10_000;

    /// Of three classes, the last of which is limited by the operator; what is left is from this point on.
    async fn heir(limits: &[(&str, f64)]) -> (FleetRates, watch::Receiver<Limits>) {
        let text = "[pool.shop]\nservers = [\"127.0.0.1:1\"]\n[controller.rates]\nlisten = \"127.0.0.1:0\"
            [class.browse]\nmatch = [{ path = \"/b\" }]\n[class.cart]\nmatch = [{ path = \"/c\" }]\nmax_rate = \"50/s\"";
        let config = parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
        let limits = limits.iter().map(|(name, per_s)| ((*name).to_owned(), *per_s)).collect();
        let estate = Estate { limits, seen: Nanos::from_secs(LEFT_S) };
        let (leaves, left) = watch::channel(Limits::new());
        let term = Term { revision: 7, tenure: Tenure::for_ever(), estate: None, leaves };
        let rates = config.controller.rates.as_ref().unwrap();
        (FleetRates::start(rates, &config.classes, Some(&term), Some(estate)).await.unwrap(), left)
    }

    fn open() -> Decided {
        Decided { per_s: vec![None; 3], ..Decided::default() }
    }

    fn told(rates: &FleetRates) -> Vec<Option<f64>> {
        rates.told.borrow().per_s.clone()
    }

    #[tokio::test]
    async fn what_the_leader_before_has_left_holds_then_grows_then_is_gone() {
        let (rates, left) = heir(&[("browse", 100.0), ("cart", 40.0), ("gone", 1.0)]).await;
        assert_eq!(told(&rates), [Some(100.0), Some(40.0), None], "before anybody is told anything");
        for (at_s, per_s) in [
            (10, [Some(100.0), Some(40.0), None]),
            (20, [Some(200.0), Some(50.0), None]),
            (59, [Some(100.0 * 4.9f64.exp2()), Some(50.0), None]),
            (60, [None, Some(50.0), None]),
        ] {
            rates.decide(open(), Nanos::from_secs(LEFT_S + at_s));
            assert_eq!(told(&rates), per_s, "{at_s} s");
        }
        assert!(left.borrow().is_empty(), "there is nothing left to leave");
    }

    #[tokio::test]
    async fn who_decides_on_a_class_goes_by_that_from_then_on() {
        let (rates, left) = heir(&[("browse", 100.0), ("cart", 40.0)]).await;
        let decided = Decided { per_s: vec![Some(130.0), None, None], ..Decided::default() };
        rates.decide(decided, Nanos::from_secs(LEFT_S + 1));
        assert_eq!(told(&rates), [Some(130.0), Some(40.0), None]);
        assert_eq!(*left.borrow(), Limits::from([("browse".to_owned(), 130.0), ("cart".to_owned(), 40.0)]));
        rates.decide(open(), Nanos::from_secs(LEFT_S + 2));
        assert_eq!(told(&rates), [None, Some(40.0), None]);
    }

    #[tokio::test]
    async fn limits_are_for_the_sake_of_somebody() {
        let text = "[controller]\nrates = {}\n[pool.a]\nservers = [\"127.0.0.1:1\"]\n[class.cart]\nmatch = [{ path = \"/cart\" }]\n";
        let config = parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
        let settings = config.controller.rates.as_ref().unwrap();
        let rates = FleetRates::start(settings, &config.classes, None, None).await.unwrap();
        assert!(!rates.is_for_another(0, "cart"));
        let causes = vec![Some("stock".to_owned()), None];
        let wanted = vec![("stock".to_owned(), Wanted::default())];
        let per_s = vec![Some(5.0), None];
        rates.decide(
            Decided { per_s, causes, wanted: Some(wanted.clone()), ..Decided::default() },
            Nanos::ZERO,
        );
        assert!(rates.is_for_another(0, "cart") && !rates.is_for_another(0, "stock"));
        assert!(!rates.is_for_another(1, "cart"), "the operator's, or none");
        assert_eq!(rates.status(&[]).services.0, wanted);
        rates.decide(Decided { per_s: vec![None; 2], ..Decided::default() }, Nanos::ZERO);
        assert!(!rates.is_for_another(0, "cart"));
        assert_eq!(rates.status(&[]).services.0, wanted, "nothing newer was said");
    }
}
