//! What is shown while the crowd lasts: a line a class, one for the servers, one for who refuses.

use std::collections::BTreeMap;

use plimsoll_core::Nanos;
use plimsoll_sentry::admin::model::Overview;

use super::super::screen::{Screen, time};
use super::Phases;
use super::stage::{TARGET_MS, TIERS};
use crate::observed::{RECENT, Requests, Seen, Tally};
use crate::platform::PoolNow;

/// Of a promised rate, which is a leaky bucket's and not a clock's.
const KEPT: f64 = 0.99;

/// What there was of the platform at some time since the start.
pub struct Look {
    pub at: Nanos,
    pub pool: PoolNow,
}

/// The live view, and all that it has seen.
pub struct View {
    screen: Screen,
    phases: Phases,
    now: Nanos,
    requests: Requests,
    looks: Vec<Look>,
    /// Refusals by mechanism, as of the last look.
    refused: BTreeMap<String, u64>,
    refused_at: Nanos,
}

impl View {
    pub fn new(phases: Phases) -> View {
        View {
            screen: Screen::new(phases.end, TIERS.len() + 2),
            phases,
            now: Nanos::ZERO,
            requests: Requests::default(),
            looks: Vec::new(),
            refused: BTreeMap::new(),
            refused_at: Nanos::ZERO,
        }
    }

    /// More requests have ended.
    pub fn observe(&mut self, now: Nanos, ended: Vec<Seen>) {
        self.now = now;
        self.requests.add(now, ended);
        let (span_s, recent) = self.requests.recent();
        if span_s == 0.0 {
            return;
        }
        for (class, tier) in TIERS.iter().enumerate() {
            let recent = Tally::of(recent.iter().filter(|seen| seen.class == class));
            let promise = self.promise(class);
            let text = format!(
                "{:<8} {:>5.0}/s come   {:>3.0} % let in   p95 {} of {TARGET_MS}   {:>2}/s promised, {promise}",
                tier.name,
                recent.came as f64 / span_s,
                recent.admitted_pct().unwrap_or(100.0),
                time(recent.p95.map(Nanos::as_millis_f64)),
                tier.promised_per_s,
            );
            self.screen.set(class, now, text);
        }
    }

    /// Whether a class has had what it is promised since the present phase began.
    fn promise(&self, class: usize) -> &'static str {
        let begun = self.phases.each().map(|(_, from, _)| from);
        let from = begun.into_iter().rfind(|&from| from <= self.now).unwrap_or(Nanos::ZERO);
        let is_of_it = |seen: &&Seen| seen.class == class && seen.at >= from;
        let (came, admitted) = self
            .requests
            .all()
            .iter()
            .filter(is_of_it)
            .fold((0, 0), |(came, admitted), seen| (came + 1, admitted + u64::from(seen.is_admitted())));
        match promise_kept(class, came, admitted, self.now.since(from).as_secs_f64()) {
            true => "kept",
            false => "not kept",
        }
    }

    /// What the controller and the sentry say.
    pub fn platform(&mut self, pool: PoolNow, overview: Option<&Overview>) {
        let PoolNow { planned, ready, starting, leaving, changed, trouble } = &pool;
        let more = [changed, trouble].into_iter().flatten().map(|text| format!("   {text}"));
        let text = format!(
            "servers  {ready} ready of {planned} planned, {starting} starting, {leaving} leaving{}",
            more.collect::<String>()
        );
        self.screen.set(TIERS.len(), self.now, text);
        self.looks.push(Look { at: self.now, pool });
        if let Some(overview) = overview {
            self.refusals(overview);
        }
    }

    fn refusals(&mut self, overview: &Overview) {
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        for (mechanism, count) in overview.classes.iter().flat_map(|class| &class.total.refused) {
            *refused.entry(mechanism.clone()).or_default() += count;
        }
        let span_s = self.now.since(self.refused_at).as_secs_f64();
        if span_s < RECENT.as_secs_f64() {
            return;
        }
        let words = |(mechanism, count): (&String, &u64)| {
            let before = self.refused.get(mechanism).copied().unwrap_or(0);
            let per_s = count.saturating_sub(before) as f64 / span_s;
            format!("{mechanism} {count}, now {per_s:.0}/s")
        };
        let by: Vec<String> = refused.iter().filter(|(_, count)| **count > 0).map(words).collect();
        let by = if by.is_empty() { "nobody yet".to_owned() } else { by.join("; ") };
        self.screen.set(TIERS.len() + 1, self.now, format!("refused  by {by}"));
        (self.refused, self.refused_at) = (refused, self.now);
    }

    /// Clears the lines and gives away what was seen.
    pub fn finish(self) -> (Vec<Seen>, Vec<Look>) {
        self.screen.clear();
        (self.requests.into_all(), self.looks)
    }
}

/// Whether a class had what it is promised, or all that it asked for, in so many seconds.
pub fn promise_kept(class: usize, came: u64, admitted: u64, span_s: f64) -> bool {
    let promised = f64::from(TIERS[class].promised_per_s) * span_s;
    admitted as f64 >= KEPT * promised.min(came as f64)
}
