//! In whose hands an API is: the network's, until it falls behind what the model says could be had.

use std::fmt;

use plimsoll_core::Nanos;

use crate::controller::View;
use crate::topology::ApiId;

/// When the model takes over, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Goodput below this part of what is predicted is behind.
    pub least: f64,
    /// What is behind for so long is handed over; the paper's own controller settles within 5 s.
    pub patience: Nanos,
    /// Goodput and prediction are followed within about this time.
    pub follow: Nanos,
    /// For how long the model decides at first, and twice as long every further time,
    pub hold: Nanos,
    /// but no longer than this. What went well for so long begins anew.
    pub longest: Nanos,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            least: 0.9,
            patience: Nanos::from_secs(5),
            follow: Nanos::from_secs(2),
            hold: Nanos::from_secs(30),
            longest: Nanos::from_secs(600),
        }
    }
}

/// What the model says could be had of an API.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Of which.
    pub api: ApiId,
    /// How important it is.
    pub priority: u32,
    /// Requests a second.
    pub predicted_per_s: f64,
}

/// Why APIs changed hands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The network has less goodput than the model predicts, of those of some importance and all that are more important.
    Behind {
        /// Requests a second.
        goodput_per_s: f64,
        /// Requests a second.
        predicted_per_s: f64,
    },
    /// The network was not trained on what it saw.
    Beyond {
        /// Goodput over the rate limits.
        goodput: f64,
        /// Tail latency over the SLO.
        latency: f64,
    },
    /// The model has had them for long enough: the network is tried again.
    Again,
}

impl Reason {
    /// Who decides from here on.
    pub const fn to(self) -> &'static str {
        match self {
            Reason::Behind { .. } | Reason::Beyond { .. } => "model",
            Reason::Again => "learned",
        }
    }
}

/// In the words that the operator knows.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Behind { goodput_per_s, predicted_per_s } => {
                write!(f, "goodput is {goodput_per_s:.1}/s where the model expects {predicted_per_s:.1}/s")
            }
            Reason::Beyond { goodput, latency } => {
                write!(
                    f,
                    "it was not trained on goodput of {goodput:.2} of the limits at {latency:.1} times the SLO"
                )
            }
            Reason::Again => f.write_str("it is tried again"),
        }
    }
}

/// APIs that changed hands.
#[derive(Clone, Debug, PartialEq)]
pub struct Handover {
    /// Which.
    pub apis: Vec<ApiId>,
    /// Why, and so to whom.
    pub reason: Reason,
}

/// What is known of one API.
#[derive(Clone, Copy, Debug, Default)]
struct Trust {
    /// Goodput and what was predicted, followed; none before they were first heard.
    had: Option<(f64, f64)>,
    heard: Nanos,
    /// Since when it is behind.
    behind: Option<Nanos>,
    /// Until when it is the model's.
    until: Option<Nanos>,
    /// When it last came back to the network,
    back: Nanos,
    /// and how often it had been taken away by then.
    failures: u32,
}

/// Says in whose hands APIs are.
#[derive(Clone, Debug)]
pub struct Guard {
    settings: Settings,
    apis: Vec<Trust>,
    handovers: Vec<Handover>,
}

impl Guard {
    /// All are the network's.
    pub fn new(settings: Settings) -> Guard {
        Guard { settings, apis: Vec::new(), handovers: Vec::new() }
    }

    /// Begins a step: gives back what the model has had for long enough.
    pub(crate) fn begin(&mut self, now: Nanos, apis: usize) {
        self.handovers.clear();
        self.apis.resize(apis, Trust::default());
        let mut again = Vec::new();
        for (at, trust) in self.apis.iter_mut().enumerate() {
            if trust.until.is_some_and(|until| now >= until) {
                *trust = Trust { failures: trust.failures, back: now, ..Trust::default() };
                again.push(ApiId(at as u32));
            }
        }
        if !again.is_empty() {
            self.handovers.push(Handover { apis: again, reason: Reason::Again });
        }
    }

    /// Whether the model decides about an API.
    pub fn is_with_model(&self, api: ApiId) -> bool {
        self.apis.get(api.index()).is_some_and(|trust| trust.until.is_some())
    }

    /// What changed hands in this step.
    pub fn handovers(&self) -> &[Handover] {
        &self.handovers
    }

    /// Holds the goodput of APIs that are decided about together against what could be had; the most important come first.
    pub(crate) fn judge(&mut self, view: &View<'_>, claims: &[Claim]) {
        if claims.iter().any(|claim| self.is_with_model(claim.api)) {
            return;
        }
        let mut heard = false;
        for claim in claims {
            let signal = view.memory.api_now(claim.api);
            if let Some(goodput_per_s) = signal.goodput_per_s {
                self.apis[claim.api.index()].follow(view.now, goodput_per_s, claim, &self.settings);
                heard = true;
            }
        }
        if !heard {
            return;
        }
        let behind = self.behind(claims);
        let mut since = view.now;
        for claim in claims {
            let trust = &mut self.apis[claim.api.index()];
            trust.behind = behind.map(|_| trust.behind.unwrap_or(view.now));
            since = since.min(trust.behind.unwrap_or(view.now));
        }
        if let Some(reason) = behind.filter(|_| view.now.since(since) >= self.settings.patience) {
            let apis: Vec<ApiId> = claims.iter().map(|claim| claim.api).collect();
            self.hand_over(&apis, view.now, reason);
        }
    }

    /// The first level of importance that, with all above, has less than it could.
    fn behind(&self, claims: &[Claim]) -> Option<Reason> {
        let (mut goodput_per_s, mut predicted_per_s) = (0.0, 0.0);
        for level in claims.chunk_by(|a, b| a.priority == b.priority) {
            for (goodput, predicted) in level.iter().filter_map(|claim| self.apis[claim.api.index()].had) {
                goodput_per_s += goodput;
                predicted_per_s += predicted;
            }
            if goodput_per_s < self.settings.least * predicted_per_s {
                return Some(Reason::Behind { goodput_per_s, predicted_per_s });
            }
        }
        None
    }

    /// Gives APIs to the model.
    pub(crate) fn hand_over(&mut self, apis: &[ApiId], now: Nanos, reason: Reason) {
        let Settings { hold, longest, .. } = self.settings;
        for api in apis {
            let Some(trust) = self.apis.get_mut(api.index()) else { continue };
            if now.since(trust.back) >= longest {
                trust.failures = 0;
            }
            let hold = Nanos(hold.0.saturating_mul(1 << trust.failures.min(20))).min(longest);
            trust.failures += 1;
            trust.until = Some(now + hold);
        }
        self.handovers.push(Handover { apis: apis.to_vec(), reason });
    }
}

impl Trust {
    fn follow(&mut self, now: Nanos, goodput_per_s: f64, claim: &Claim, settings: &Settings) {
        let passed = now.since(std::mem::replace(&mut self.heard, now));
        if passed >= settings.patience {
            // It was looked at so long ago that nobody knows whether it was behind all the time.
            self.behind = None;
        }
        let seconds = passed.as_secs_f64();
        let part = 1.0 - (-seconds / settings.follow.as_secs_f64().max(1e-3)).exp();
        let (goodput, predicted) = self.had.unwrap_or((goodput_per_s, claim.predicted_per_s));
        let step = |before: f64, sample: f64| before + (sample - before) * part;
        self.had = Some((step(goodput, goodput_per_s), step(predicted, claim.predicted_per_s)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{ApiSignal, Memory, Observation};
    use crate::overload::Thresholds;
    use crate::topology::{Api, Topology};

    /// The goodput of an API of which 100 a second could be had is judged in each of these seconds; those in which it was handed over.
    fn handed_over(goodput: impl IntoIterator<Item = (u64, f64)>) -> Vec<u64> {
        let topology = Topology::new(1, vec![Api::along([0], Nanos::from_secs(1), 1)]);
        let (mut guard, mut memory) = (Guard::new(Settings::default()), Memory::default());
        let mut handed_over = Vec::new();
        for (second, per_s) in goodput {
            let now = Nanos::from_secs(second);
            let signal = ApiSignal { goodput_per_s: Some(per_s), ..ApiSignal::default() };
            memory.take(now, 1, 1, &Observation { services: &[], apis: &[signal] });
            let second_long = Nanos::from_secs(1);
            let view = View {
                now,
                elapsed: second_long,
                freeze: second_long,
                relax: second_long,
                release: second_long,
                thresholds: &Thresholds::default(),
                topology: &topology,
                memory: &memory,
            };
            guard.begin(now, 1);
            guard.judge(&view, &[Claim { api: ApiId(0), priority: 1, predicted_per_s: 100.0 }]);
            handed_over
                .extend(guard.handovers().iter().filter(|it| it.reason != Reason::Again).map(|_| second));
        }
        handed_over
    }

    #[test]
    fn who_is_behind_for_long_enough_is_relieved() {
        assert_eq!(handed_over((1..10).map(|second| (second, 50.0))), [6]);
        assert!(handed_over((1..10).map(|second| (second, 95.0))).is_empty());
    }

    #[test]
    fn what_was_behind_before_nobody_looked_is_not_behind_ever_since() {
        // Four seconds, a minute in which it was not limited, and four seconds.
        assert!(handed_over((1..5).chain(65..69).map(|second| (second, 50.0))).is_empty());
        assert_eq!(handed_over((1..5).chain(65..72).map(|second| (second, 50.0))), [70]);
    }
}
