//! How many servers one application should have from now on (Cataclysm, section 4.1). Predictive: every [`Pace::period`], enough for
//! what is forecast until two periods from now. Reactive: once too much is refused, enough for what arrives, at most [`Pace::step`]
//! more at a time and no sooner than [`Pace::gap`] after the last change, so that it does not swing.
//!
//! The paper's step is one server, so that what it found missing at 910 s was there at 1800 s (its section 6.7). Here the queueing
//! bound says how many are missing, and all of them may come in one step: what keeps the number from swinging is the gap, longer
//! than a server takes to start and to show in what is refused, and that servers are given back late.
//!
//! They are given back one period later than they could be: only when two plans in a row want fewer, and no fewer than the more
//! careful of the two; and never while anything is refused, for then the model is wrong about what is spare.

use std::cmp::Ordering;

use plimsoll_core::Nanos;

use crate::forecast::Forecast;
use crate::queueing::{Load, Unattainable};

/// A planner that was not asked for so many periods begins anew rather than catch up.
const MOST_LATE: u64 = 1_000;

/// Rates and refusals are averaged over a gap divided by this: what a burst adds is in the bound already, and one that has passed
/// calls for nothing.
const SMOOTHING: f64 = 10.0;

/// A step stays open for a gap divided by this: the first look after a jump has seen only part of it.
const OPEN: f64 = 10.0;

/// The share of requests whose refusal keeps all servers there are. A few are refused for reasons that no server cures.
const NOTHING_SPARE: f64 = 0.01;

/// How many servers an application may have, and how many requests one of them works on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub least: u32,
    /// At most.
    pub most: u32,
    /// Slots a server.
    pub slots: u32,
}

/// How fast it may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Most servers added or given back at a time: the paper's Delta.
    pub step: u32,
    /// Least time between two changes: the paper's delta.
    pub gap: Nanos,
    /// How often it plans ahead, and what one sample of the forecast spans.
    pub period: Nanos,
    /// The share of requests refused above which the reactive mode steps in, in 0..1.
    pub refused: f64,
}

/// What the sentries saw since the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Now.
    pub at: Nanos,
    /// What was asked for, refused or not.
    pub load: Load,
    /// The share of it that was refused, in 0..1.
    pub refused: f64,
    /// The mean response time that is owed.
    pub target: Nanos,
}

/// Why there should be so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing calls for a change, or the last one was too short a time ago.
    Steady,
    /// Nobody has said what arrives.
    Unseen,
    /// Others earn more with the servers that there are.
    Outbid,
    /// Too much is refused.
    Refusals,
    /// More is coming.
    Forecast,
    /// Less has been needed for two plans in a row.
    Spare,
    /// No number of servers is enough for the target.
    Unattainable(Unattainable),
    /// What is said to have been seen cannot be.
    Nonsense,
}

/// So many servers, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Servers.
    pub servers: u32,
    /// Why.
    pub reason: Reason,
}

/// Plans for one application.
pub struct Planner {
    bounds: Bounds,
    pace: Pace,
    forecast: Forecast,
    /// What there should be as of the last plan. What there is may lag behind it.
    servers: u32,
    changed: Option<Nanos>,
    /// When the last step was begun, and how many there were before.
    step: Option<(Nanos, u32)>,
    seen: Option<Smoothed>,
    /// What serving took, and what was owed, when something was served last.
    served: Option<(Load, Nanos)>,
    /// What has arrived since the forecast heard last: the sum of the rates, how many, and the highest smoothed one.
    rates: (f64, u32, f64),
    sampled: Option<Nanos>,
    /// What the last look ahead would have been content with.
    content: u32,
}

/// What was seen, averaged over a while.
struct Smoothed {
    at: Nanos,
    per_s: f64,
    refused: f64,
}

impl Planner {
    /// For an application that has so many servers, and whose load has a season of so many [`Pace::period`]s.
    pub fn new(bounds: Bounds, pace: Pace, season: usize, servers: u32) -> Planner {
        let mut planner = Planner {
            bounds,
            pace,
            forecast: Forecast::new(season),
            servers: 0,
            changed: None,
            step: None,
            seen: None,
            served: None,
            rates: (0.0, 0, 0.0),
            sampled: None,
            content: u32::MAX,
        };
        planner.servers = planner.within(servers);
        planner
    }

    /// How many servers it may have.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// A server turned out to work on so many requests at once.
    pub fn measured(&mut self, slots: u32) {
        self.bounds.slots = slots;
    }

    /// What there should be as of the last plan.
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// It got another number than it planned.
    pub fn settle(&mut self, servers: u32) {
        self.servers = self.within(servers);
    }

    /// The plan after what was seen.
    pub fn plan(&mut self, seen: &Observation) -> Plan {
        let Observation { at, load, refused, .. } = *seen;
        if !load.is_sane() || !(0.0..=1.0).contains(&refused) {
            return Plan { servers: self.servers, reason: Reason::Nonsense };
        }
        if load.service_s > 0.0 {
            self.served = Some((load, seen.target));
        }
        let (per_s, refused) = self.smooth(at, load.per_s, refused);
        // Both in any case: what is seen while nothing may change counts for when something may.
        let coming = self.look_ahead(at, load.per_s, per_s);
        let may_change = self.changed.is_none_or(|changed| at.since(changed) >= self.pace.gap);
        let planned = match coming {
            _ if refused > self.pace.refused && may_change => {
                self.step = Some((at, self.servers));
                self.react(seen, refused)
            }
            _ if refused > self.pace.refused && self.open_step(at).is_some() => self.complete(seen),
            Some(per_s) => self.predict(per_s, refused, may_change),
            None => Ok((self.servers, Reason::Steady)),
        };
        let (servers, reason) =
            planned.unwrap_or_else(|unattainable| (self.servers, Reason::Unattainable(unattainable)));
        if servers != self.servers {
            self.changed = Some(at);
            self.servers = servers;
        }
        Plan { servers, reason }
    }

    fn smooth(&mut self, at: Nanos, per_s: f64, refused: f64) -> (f64, f64) {
        let seen = self.seen.get_or_insert(Smoothed { at, per_s, refused });
        let span_s = self.pace.gap.as_secs_f64() / SMOOTHING;
        let weight = 1.0 - (-at.since(seen.at).as_secs_f64() / span_s.max(1e-9)).exp();
        seen.at = at;
        seen.per_s += weight * (per_s - seen.per_s);
        seen.refused += weight * (refused - seen.refused);
        (seen.per_s, seen.refused)
    }

    /// Feeds the forecast, once a period; then says what to be prepared for.
    fn look_ahead(&mut self, at: Nanos, per_s: f64, smoothed: f64) -> Option<f64> {
        let (sum, count, highest) = self.rates;
        self.rates = (sum + per_s, count + 1, highest.max(smoothed));
        let sampled = *self.sampled.get_or_insert(at);
        if at.since(sampled) < self.pace.period {
            return None;
        }
        let (sum, count, highest) = std::mem::take(&mut self.rates);
        // A late call stands for all the periods that passed, so that the season stays in step.
        let periods = (at.since(sampled).0 / self.pace.period.0.max(1)).min(MOST_LATE);
        (0..periods).for_each(|_| self.forecast.observe(sum / f64::from(count)));
        self.sampled =
            Some(if periods < MOST_LATE { sampled + Nanos(periods * self.pace.period.0) } else { at });
        // What is decided now lasts for a period, and what is given back now is not there early in the next. Bursts within a
        // sample are what they are.
        let coming = self.forecast.ahead(1).max(self.forecast.ahead(2)) + 2.0 * self.forecast.error();
        Some(coming.max(highest))
    }

    /// Too much is refused: more servers, whatever the model thinks.
    fn react(&self, seen: &Observation, refused: f64) -> Result<(u32, Reason), Unattainable> {
        let needed = self.needed(seen.load.per_s)?;
        let served = (1.0 - refused).max(0.01);
        let by_refusals = (f64::from(self.servers) / served).ceil() as u32;
        let servers = needed.max(by_refusals).min(self.servers.saturating_add(self.pace.step));
        let servers = self.within(servers).max(self.servers);
        Ok((servers, if servers > self.servers { Reason::Refusals } else { Reason::Steady }))
    }

    /// What there was before a step that is open.
    fn open_step(&self, at: Nanos) -> Option<u32> {
        let open = self.step.filter(|&(begun, _)| at.since(begun).0 as f64 <= self.pace.gap.0 as f64 / OPEN);
        open.map(|(_, before)| before)
    }

    /// More of a step that is open, as the bound says: what is refused meanwhile says nothing, since nothing has started yet.
    fn complete(&self, seen: &Observation) -> Result<(u32, Reason), Unattainable> {
        let before = self.open_step(seen.at).unwrap_or(self.servers);
        let needed = self.needed(seen.load.per_s)?.min(before.saturating_add(self.pace.step));
        let servers = self.within(needed).max(self.servers);
        Ok((servers, if servers > self.servers { Reason::Refusals } else { Reason::Steady }))
    }

    /// Enough for what is coming.
    fn predict(&mut self, per_s: f64, refused: f64, may_change: bool) -> Result<(u32, Reason), Unattainable> {
        let needed = self.needed(per_s)?;
        let content = std::mem::replace(&mut self.content, needed).max(needed);
        let servers = if needed > self.servers {
            needed.min(self.servers.saturating_add(self.pace.step))
        } else if refused > NOTHING_SPARE {
            self.servers
        } else {
            content.min(self.servers).max(self.servers.saturating_sub(self.pace.step))
        };
        let servers = if may_change { self.within(servers) } else { self.servers };
        let reason = match servers.cmp(&self.servers) {
            Ordering::Greater => Reason::Forecast,
            Ordering::Equal => Reason::Steady,
            Ordering::Less => Reason::Spare,
        };
        Ok((servers, reason))
    }

    fn needed(&self, per_s: f64) -> Result<u32, Unattainable> {
        let Some((load, target)) = self.served else {
            // Nothing has been served yet: what is refused leads the way.
            return Ok(if per_s > 0.0 { self.servers } else { self.bounds.least });
        };
        let slots = Load { per_s, ..load }.slots_for(target)?;
        Ok(slots.div_ceil(self.bounds.slots.max(1)))
    }

    /// Within the bounds; where they contradict each other, what is promised at least.
    fn within(&self, servers: u32) -> u32 {
        servers.min(self.bounds.most).max(self.bounds.least)
    }
}

#[cfg(test)]
mod tests;
