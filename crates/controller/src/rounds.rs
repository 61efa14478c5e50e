//! The controller while it leads: looks, plans and tells, round by round.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::Nanos;
use plimsoll_core::config::{Class, Config, Mode, Pool, RateDecider, Server, Workers};
use plimsoll_provisioning::demand::Demand;
use plimsoll_provisioning::fleet::Fleet;
use plimsoll_provisioning::planner::{Plan, Reason};
use plimsoll_provisioning::sentries::{Change as SentryChange, SentryWatch};
use plimsoll_sentry::clock;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::actuator::Actuator;
use crate::decide::{self, Decider};
use crate::lead::{Signals, Term};
use crate::measure::{Rates, combine};
use crate::more_sentries::{self, NextShare};
use crate::outcome::Outcome;
use crate::pools::{self, Provisioned, words};
use crate::provider::{Reality, Traffic};
use crate::rates::FleetRates;
use crate::run::{Options, Place};
use crate::sentries::Sentries;
use crate::status::{Change, MoreSentries, SentryStatus, Status};

/// How long servers may take to end with `--stop-servers`, beside their own time-outs.
const STOPPING: Duration = Duration::from_secs(5);

/// One that leads, or a shadow.
pub struct Controller {
    config: Config,
    fleet: Fleet,
    /// In the order of the fleet.
    pools: Vec<Provisioned>,
    sentries: Sentries,
    watch: SentryWatch,
    /// Further sentries, where there may be any.
    more_sentries: Option<Actuator>,
    next_share: NextShare,
    /// Further sentries that a shadow would have; none are ever started for it.
    imagined: u32,
    /// Servers of pools that are provisioned no more, on their way out.
    forgotten: Vec<Actuator>,
    /// Where rates are to be set.
    rates: Option<Rc<FleetRates>>,
    /// The sentries' addresses, for whoever decides them.
    entries: watch::Sender<Vec<SocketAddr>>,
    /// By class, what was counted at the last look.
    outcomes: Vec<Option<Outcome>>,
    traffic: watch::Sender<Traffic>,
    changed: Rc<Notify>,
    status: watch::Sender<Status>,
    /// While this lasts it may act; nothing where it does not act at all.
    term: Option<Term>,
}

impl Controller {
    /// Of a leader of this term; of nobody who acts, where there is none.
    ///
    /// # Errors
    /// Why it cannot begin, in words for the operator.
    pub async fn start(options: &Options, place: &Place, term: Option<&Term>) -> Result<Controller, String> {
        let config = options.config.clone();
        let settings = &config.controller;
        let (traffic, known) = watch::channel(Traffic::default());
        let changed = Rc::new(Notify::new());
        let acts = settings.mode == Mode::Enforce;
        let fixed: u32 =
            config.pools.iter().filter(|p| p.provision.is_some()).map(|p| p.servers.len() as u32).sum();
        let cap = settings.cap(&config.pools);
        let places = Arc::new(Semaphore::new(cap.saturating_sub(fixed) as usize));
        let (mut provisioned, mut planners) = (Vec::new(), Vec::new());
        for (index, pool) in config.pools.iter().enumerate() {
            let Some(provision) = &pool.provision else { continue };
            let actuator = match acts {
                true => {
                    let (known, changed) = (known.clone(), Rc::clone(&changed));
                    Some(pools::actuator(pool, provision, &settings.state, &places, known, changed).await?)
                }
                false => None,
            };
            planners.push(pools::planner(pool, provision));
            provisioned.push(Provisioned {
                index,
                fixed: pool.servers.clone(),
                actuator,
                demand: None,
                plan: None,
            });
        }
        let forgotten = match acts {
            true => pools::end_forgotten(&config, &settings.state, &known, &changed),
            false => Vec::new(),
        };
        let next_share = NextShare::default();
        let more_sentries = match (acts, settings.sentry_ports) {
            (true, Some(ports)) => {
                let (next_share, changed) = (next_share.clone(), Rc::clone(&changed));
                Some(more_sentries::actuator(options, ports, next_share, known, changed)?)
            }
            _ => None,
        };
        let rates = match &settings.rates {
            Some(rates) => {
                // What is left is for whoever decides to find out about, step by step.
                let decides = place.telemetry.is_some() && rates.decide != RateDecider::None;
                let estate = term.and_then(|term| term.estate.clone()).filter(|_| decides);
                Some(Rc::new(FleetRates::start(rates, &config.classes, term, estate).await?))
            }
            None => None,
        };
        let (entries, followed) = watch::channel(Vec::new());
        if let (Some(rates), Some(settings), Some(telemetry)) = (&rates, &settings.rates, &place.telemetry)
            && config.controller.mode != Mode::Off
            && let Some(how) = decide::settings(settings)?
        {
            let decider = Decider::new(config.clone(), telemetry.clone(), how, place.recorded.clone());
            let decider = decider.recorded_by(place.recorder.clone());
            decide::start(decider, settings.interval, Rc::clone(rates), followed);
        }
        Ok(Controller {
            fleet: Fleet::new(planners, cap),
            pools: provisioned,
            sentries: Sentries::new(
                config.sentry.admin_token.clone(),
                config.pools.iter().map(|pool| pool.name.clone()).collect(),
            ),
            watch: SentryWatch::new(config.controller.sentry_busy_for),
            more_sentries,
            next_share,
            imagined: 0,
            forgotten,
            rates,
            entries,
            outcomes: Vec::new(),
            traffic,
            changed,
            status: place.status.clone(),
            term: term.cloned(),
            config,
        })
    }

    /// Round by round, until it is told to end.
    pub async fn serve(&mut self, signals: &mut Signals) {
        if self.config.controller.mode == Mode::Off {
            return signals.wait().await;
        }
        let mut ticks = interval(self.config.controller.interval.into());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let changed = Rc::clone(&self.changed);
        loop {
            tokio::select! {
                () = signals.wait() => return,
                _ = ticks.tick() => self.round().await,
                () = changed.notified() => self.tell().await,
            }
        }
    }

    fn mode(&self) -> Mode {
        self.config.controller.mode
    }

    async fn round(&mut self) {
        let now = clock::now();
        let addresses = self.addresses();
        self.sentries.follow(&addresses, now);
        self.entries.send_replace(addresses);
        let rates = self.sentries.look(now).await;
        self.outcomes = self.outcomes_of(&rates);
        self.plan_servers(now, &rates);
        self.plan_sentries(now);
        self.tell().await;
        let down = self.sentries.down(clock::now());
        self.traffic.send_if_modified(|traffic| std::mem::replace(&mut traffic.down, down.clone()) != down);
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let settings = &self.config.controller;
        let own =
            if settings.sentries.is_empty() { &[self.config.sentry.admin][..] } else { &settings.sentries };
        let more = self.more_sentries.as_ref().map(Actuator::reality).unwrap_or_default().ready;
        let more = more.iter().map(|server| SocketAddr::from((Ipv4Addr::LOCALHOST, server.port)));
        own.iter().copied().chain(more).collect()
    }

    /// By class, what all sentries together counted.
    fn outcomes_of(&self, rates: &[Option<Vec<Vec<Rates>>>]) -> Vec<Option<Outcome>> {
        let of_class = |class: &Class| {
            let sentries = rates[class.pool].iter().flatten().flatten();
            let seen = sentries.filter(|rates| rates.name == class.name);
            seen.map(|rates| rates.outcome.as_ref())
                .try_fold(Outcome::default(), |sum, one| Some(sum.and(one?)))
        };
        self.config.classes.iter().map(of_class).collect()
    }

    fn classes(&self, pool: usize) -> Vec<&Class> {
        self.config.classes.iter().filter(|class| class.pool == pool).collect()
    }

    fn plan_servers(&mut self, now: Nanos, rates: &[Option<Vec<Vec<Rates>>>]) {
        let mut demands = Vec::with_capacity(self.pools.len());
        for i in 0..self.pools.len() {
            let index = self.pools[i].index;
            let pool = &self.config.pools[index];
            let mut knows_slots = true;
            if pool.workers == Workers::Adaptive {
                let each = self.sentries.slots_each(index);
                knows_slots = each.is_some();
                each.into_iter().for_each(|each| self.fleet.planner(i).measured(each));
            }
            // What is there already counts before anything is planned: it is not given back because nobody remembers it.
            let is_known = match &self.pools[i].actuator {
                Some(actuator) if actuator.ordered().is_none() => {
                    let present = actuator.present();
                    if let Some(present) = present {
                        let fixed = self.pools[i].fixed.len() as u32;
                        self.fleet.planner(i).settle(fixed.saturating_add(present));
                    }
                    present.is_some()
                }
                Some(_) => true,
                None => {
                    let there = self.sentries.servers(&pool.name);
                    self.fleet.planner(i).settle(there);
                    true
                }
            };
            let classes = self.classes(index);
            let demand = rates[index].as_ref().filter(|_| is_known && knows_slots);
            let elsewhere = |class: &Class| self.is_for_another(pool, class);
            let load = |rates: &Vec<Vec<Rates>>| combine(&classes, rates, elsewhere);
            demands.push(demand.map(|rates| Demand::of(&load(rates), pool.ladder.as_ref())));
        }
        let had: Vec<u32> = (0..self.pools.len()).map(|i| self.fleet.planner(i).servers()).collect();
        let plans = self.fleet.plan(now, &demands);
        for (i, (plan, demand)) in plans.into_iter().zip(demands).enumerate() {
            self.carry_out(i, had[i], plan);
            self.pools[i].demand = demand;
        }
    }

    /// Whether the fleet limits a class for the sake of another service than the one that a pool is.
    fn is_for_another(&self, pool: &Pool, class: &Class) -> bool {
        let place = self.config.classes.iter().position(|of| of.name == class.name);
        let (Some(rates), Some(service), Some(place)) = (&self.rates, &pool.service, place) else {
            return false;
        };
        rates.is_for_another(place, service)
    }

    fn carry_out(&mut self, i: usize, had: u32, plan: Plan) {
        let before = self.pools[i].plan.replace(plan);
        let pool = &self.pools[i];
        let name = &self.config.pools[pool.index].name;
        if let Some(actuator) = &pool.actuator
            && actuator.present().is_some()
        {
            actuator.order(plan.servers.saturating_sub(pool.fixed.len() as u32));
        }
        // In shadow the same is said of every round until it is done; once is enough.
        let is_news = plan.servers != had && before.is_none_or(|before| before.servers != plan.servers);
        if is_news {
            let change = change(name, had, plan.servers, words(plan.reason), self.mode());
            self.status.send_modify(|status| status.changed(change));
        }
        let was = before.map(|plan| plan.reason);
        if let (Reason::Unattainable(why), true) = (plan.reason, was != Some(plan.reason)) {
            log::warn!(pool:% = name, why:%; "no number of servers is enough");
        }
    }

    /// One sentry more, or one fewer, where that is called for and the last such change has been carried out. A shadow only says so.
    fn plan_sentries(&mut self, now: Nanos) {
        let Some(ports) = self.config.controller.sentry_ports else { return };
        let mut busy = self.sentries.busy();
        let planned = match &self.more_sentries {
            Some(actuator) => {
                let (Some(present), reality) = (actuator.present(), actuator.reality()) else { return };
                let Some(ordered) = actuator.ordered() else {
                    return actuator.order(present);
                };
                if reality.ready.len() as u32 != ordered || reality.starting + reality.leaving != 0 {
                    return;
                }
                ordered
            }
            None => {
                busy = with_imagined(&busy, self.imagined);
                self.imagined
            }
        };
        let (to, reason) = match self.watch.observe(now, &busy) {
            Some(SentryChange::Add) if planned < ports.count() => (planned + 1, "a sentry is busy"),
            Some(SentryChange::Return) if planned > 0 => (planned - 1, "fewer sentries are enough"),
            _ => return,
        };
        match &self.more_sentries {
            Some(actuator) => actuator.order(to),
            None => self.imagined = to,
        }
        let change = change("sentries", planned, to, reason.to_owned(), self.mode());
        self.status.send_modify(|status| status.changed(change));
    }

    /// Tells the sentries what there is, where it acts, and notes the state of everything.
    async fn tell(&mut self) {
        if self.term.as_ref().is_some_and(|term| term.tenure.lasts(clock::now())) {
            let now = clock::now();
            let more = self.more_sentries.as_ref().map(Actuator::reality).unwrap_or_default();
            self.next_share.set(None);
            self.sentries.follow(&self.addresses(), now);
            if more.leaving == 0 {
                self.sentries.forget_departed();
            }
            let lists = self.lists();
            self.sentries.about_to_tell(&lists);
            self.publish_use();
            // One that is not there yet, or not gone yet, has its share.
            let others = more.starting + more.leaving + u32::from(more.waits);
            let left = self.sentries.tell(&lists, others, now).await;
            if more.waits {
                self.next_share.set(left);
            }
            self.publish_use();
        }
        self.note();
    }

    /// By pool, its servers; nothing for one that has none now: what the sentries have may still come back.
    fn lists(&self) -> Vec<Option<Vec<Server>>> {
        let mut lists = vec![None; self.config.pools.len()];
        for pool in &self.pools {
            lists[pool.index] = Some(pool.ready()).filter(|servers| !servers.is_empty());
        }
        lists
    }

    fn publish_use(&self) {
        let in_use = self.sentries.in_use(clock::now());
        self.traffic.send_modify(|traffic| traffic.in_use = in_use);
    }

    fn note(&self) {
        let sentry = |sentry: &crate::sentries::Sentry| SentryStatus {
            address: sentry.address.to_string(),
            answers: sentry.reading.is_some(),
            busy: sentry.reading.as_ref().and_then(|reading| reading.busy),
            trouble: sentry.trouble.clone(),
        };
        let more_sentries = self.config.controller.sentry_ports.map(|_| {
            let more = self.more_sentries.as_ref();
            let planned = more.map_or(self.imagined, |actuator| actuator.ordered().unwrap_or(0));
            let Reality { starting, leaving, trouble, failures, .. } =
                more.map(Actuator::reality).unwrap_or_default();
            MoreSentries { planned, starting, leaving, trouble, failures }
        });
        let pool =
            |pool: &Provisioned| pool.status(&self.config.pools[pool.index], &self.classes(pool.index));
        self.status.send_modify(|status| {
            status.sentries = self.sentries.iter().map(sentry).collect();
            status.more_sentries = more_sentries;
            status.pools = self.pools.iter().map(pool).collect();
            status.rates = self.rates.as_ref().map(|rates| rates.status(&self.outcomes));
            status.nonsense = self.sentries.nonsense;
            status.sentry_failures = self.sentries.failures;
        });
    }

    /// Ends all that was started; a second signal ends the wait.
    pub async fn stop_servers(&mut self, signals: &mut Signals) {
        let pools = self.pools.iter().filter_map(|pool| pool.actuator.as_ref());
        let actuators: Vec<&Actuator> = pools.chain(&self.more_sentries).chain(&self.forgotten).collect();
        // There is nobody left to tell.
        self.traffic.send_modify(|traffic| traffic.in_use.clear());
        actuators.iter().for_each(|actuator| actuator.order(0));
        let provisions = self.config.pools.iter().filter_map(|pool| pool.provision.as_ref());
        let longest = provisions.map(|provision| provision.stop_timeout).max().unwrap_or(Nanos::ZERO);
        let longest = longest.max(more_sentries::stop_timeout(&self.config));
        let gone = async {
            let is_gone = |actuator: &&Actuator| {
                let reality = actuator.reality();
                reality.ready.is_empty() && reality.starting + reality.leaving == 0
            };
            while !actuators.iter().all(is_gone) {
                self.changed.notified().await;
            }
        };
        tokio::select! {
            gone = timeout(Duration::from(longest) + STOPPING, gone) => {
                if gone.is_err() {
                    log::warn!("some servers do not end");
                }
            }
            () = signals.wait() => {}
        }
    }
}

/// How busy each would be if so many more did their part of the work of those that there are.
fn with_imagined(busy: &[f64], imagined: u32) -> Vec<f64> {
    let all = busy.len() + imagined as usize;
    match (busy, imagined) {
        ([], _) | (_, 0) => busy.to_vec(),
        _ => vec![busy.iter().sum::<f64>() / all as f64; all],
    }
}

fn change(of: &str, from: u32, to: u32, reason: String, mode: Mode) -> Change {
    let (of, ts, enforced) = (of.to_owned(), clock::wall().as_secs_f64(), mode == Mode::Enforce);
    Change { ts, of, from, to, reason, enforced }
}
