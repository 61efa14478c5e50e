//! How many servers one application should have from now on (Cataclysm, section 4.1). Predictive: enough for what is forecast until
//! servers can be added again. Reactive: once too much is refused, enough for what arrives, at most [`Pace::step`] more at a
//! time and no sooner than [`Pace::gap`] after the last change, so that it does not swing.
//!
//! Servers are given back one change later than they could be: only when two plans in a row want fewer, and no fewer than the more
//! careful of the two.

use std::cmp::Ordering;

use plimsoll_core::Nanos;

use crate::forecast::Forecast;
use crate::queueing::{Load, Unattainable};

/// A planner that was not asked for so many gaps begins anew rather than catch up.
const MOST_LATE: u64 = 1_000;

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
    /// Least time between two changes, and how often the forecast is asked: the paper's delta.
    pub gap: Nanos,
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
    /// Too much is refused.
    Refusals,
    /// More is coming.
    Forecast,
    /// Less has been needed for two plans in a row.
    Spare,
    /// No number of servers is enough for the target.
    Unattainable(Unattainable),
    /// What was said to have been seen cannot be.
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
    /// What has arrived since the forecast heard last: the sum of the rates, how many, and the highest.
    rates: (f64, u32, f64),
    sampled: Option<Nanos>,
    /// What the last look ahead would have been content with.
    content: u32,
}

impl Planner {
    /// For an application that has so many servers, and whose load has a season of so many [`Pace::gap`]s.
    pub fn new(bounds: Bounds, pace: Pace, season: usize, servers: u32) -> Planner {
        let mut planner = Planner {
            bounds,
            pace,
            forecast: Forecast::new(season),
            servers: 0,
            changed: None,
            rates: (0.0, 0, 0.0),
            sampled: None,
            content: u32::MAX,
        };
        planner.servers = planner.within(servers);
        planner
    }

    /// The plan after what was seen.
    pub fn plan(&mut self, seen: &Observation) -> Plan {
        let Observation { at, load, refused, .. } = *seen;
        if !load.is_sane() || !(0.0..=1.0).contains(&refused) {
            return Plan { servers: self.servers, reason: Reason::Nonsense };
        }
        // Both in any case: what is seen while nothing may change counts for when something may.
        let coming = self.look_ahead(at, load.per_s);
        let may_change = self.changed.is_none_or(|changed| at.since(changed) >= self.pace.gap);
        let planned = match coming {
            _ if refused > self.pace.refused && may_change => self.react(seen),
            Some(per_s) => self.predict(seen, per_s, may_change),
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

    /// Feeds the forecast, once a gap; then says what to be prepared for.
    fn look_ahead(&mut self, at: Nanos, per_s: f64) -> Option<f64> {
        let (sum, count, highest) = self.rates;
        self.rates = (sum + per_s, count + 1, highest.max(per_s));
        let sampled = *self.sampled.get_or_insert(at);
        if at.since(sampled) < self.pace.gap {
            return None;
        }
        let (sum, count, highest) = std::mem::take(&mut self.rates);
        // A late call stands for all the gaps that passed, so that the season stays in step.
        let gaps = (at.since(sampled).0 / self.pace.gap.0.max(1)).min(MOST_LATE);
        (0..gaps).for_each(|_| self.forecast.observe(sum / f64::from(count)));
        self.sampled = Some(if gaps < MOST_LATE { sampled + Nanos(gaps * self.pace.gap.0) } else { at });
        // What is decided now lasts for a gap. Bursts within a sample are what they are.
        let coming = self.forecast.ahead(1) + 2.0 * self.forecast.error();
        Some(coming.max(highest))
    }

    /// Too much is refused: more servers, whatever the model thinks.
    fn react(&self, seen: &Observation) -> Result<(u32, Reason), Unattainable> {
        let needed = self.needed(seen, seen.load.per_s)?;
        let served = (1.0 - seen.refused).max(0.01);
        let by_refusals = (f64::from(self.servers) / served).ceil() as u32;
        let servers = needed.max(by_refusals).min(self.servers.saturating_add(self.pace.step));
        let servers = self.within(servers).max(self.servers);
        Ok((servers, if servers > self.servers { Reason::Refusals } else { Reason::Steady }))
    }

    /// Enough for what is coming.
    fn predict(
        &mut self,
        seen: &Observation,
        per_s: f64,
        may_change: bool,
    ) -> Result<(u32, Reason), Unattainable> {
        let needed = self.needed(seen, per_s)?;
        let content = std::mem::replace(&mut self.content, needed).max(needed);
        let servers = if needed > self.servers {
            needed.min(self.servers.saturating_add(self.pace.step))
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

    fn needed(&self, seen: &Observation, per_s: f64) -> Result<u32, Unattainable> {
        let slots = Load { per_s, ..seen.load }.slots_for(seen.target)?;
        Ok(slots.div_ceil(self.bounds.slots.max(1)))
    }

    /// Within the bounds; where they contradict each other, what is promised at least.
    fn within(&self, servers: u32) -> u32 {
        servers.min(self.bounds.most).max(self.bounds.least)
    }
}

#[cfg(test)]
mod tests;
