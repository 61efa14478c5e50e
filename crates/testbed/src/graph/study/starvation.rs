//! Fig. 3: how queries with a tight objective starve under Bouncer without a strategy against it, when so
//! many cheap ones come that these alone fill the store.

use std::io;

use plimsoll_core::Nanos;
use serde::Serialize;
use serde_json::Value;

use super::load::Mix;
use super::{Study, count, percent};
use crate::clock::Clock;
use crate::graph::queries::QueryType;

/// The paper does not name its two types. These have the largest shares of the mix, and times far enough apart.
const FAST: QueryType = QueryType::TwoHopsOfKind;
const SLOW: QueryType = QueryType::Distance;

/// FAST alone all but fills the store: few of them must go, and the queue is as long as their objective
/// allows, which SLOW's does not.
const FAST_LOAD: f64 = 0.98;
/// SLOW queries for each FAST one: enough to fill at once whatever gap FAST leaves. With the few slots of this
/// store the queue still falls below SLOW's limit now and then, so that some 95 % of them starve rather than 99 %.
const SLOW_PER_FAST: f64 = 1.0;

/// The interval that Fig. 3 shows, and how finely.
const SHOWN: Nanos = Nanos::from_secs(1);
const STEP: Nanos = Nanos::from_millis(20);

/// Two types under Bouncer's basic formulation.
#[derive(Clone, Debug, Serialize)]
pub struct Starvation {
    /// Refused of the cheap type, in per cent.
    pub fast_rejected_pct: f64,
    /// Refused of the dear type, in per cent.
    pub slow_rejected_pct: f64,
    /// What Bouncer expected, over one second.
    pub samples: Vec<Estimates>,
}

/// Expected response times at one moment, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimates {
    /// Since the first sample.
    pub at_ms: f64,
    /// Of the cheap type.
    pub fast_p50_ms: f64,
    /// Of the cheap type.
    pub fast_p90_ms: f64,
    /// Of the dear type.
    pub slow_p50_ms: f64,
    /// Of the dear type.
    pub slow_p90_ms: f64,
}

/// Runs the two types against each other.
pub(super) fn show(study: &Study) -> io::Result<Starvation> {
    let capacity_per_s = study.capacity_per_s(&Mix::of([(FAST, 1.0)]))?;
    let mix = Mix::of([(FAST, 1.0), (SLOW, SLOW_PER_FAST)]);
    let rate_per_s = FAST_LOAD * capacity_per_s * (1.0 + SLOW_PER_FAST);
    let store = study.store("bouncer")?;
    let load = study.load(&store, &mix, rate_per_s)?;
    let clock = Clock::start();
    let mut samples = Vec::new();
    while clock.now() < SHOWN {
        let at_ms = clock.now().as_millis_f64();
        samples.push(Estimates::read(at_ms, &study.client.get(store.broker(), "/classes")?));
        clock.sleep_until(clock.now() + STEP);
    }
    let report = load.finish()?;
    let rejected_pct = |of: QueryType| {
        let figures = &report["requests"][of.to_string()];
        percent(count(&figures["rejected"]), count(&figures["sent"]))
    };
    Ok(Starvation { fast_rejected_pct: rejected_pct(FAST), slow_rejected_pct: rejected_pct(SLOW), samples })
}

impl Estimates {
    fn read(at_ms: f64, classes: &Value) -> Estimates {
        let of = |of: QueryType, percentile: &str| {
            classes[of.to_string()][percentile]["estimate_ms"].as_f64().unwrap_or_default()
        };
        Estimates {
            at_ms,
            fast_p50_ms: of(FAST, "p50"),
            fast_p90_ms: of(FAST, "p90"),
            slow_p50_ms: of(SLOW, "p50"),
            slow_p90_ms: of(SLOW, "p90"),
        }
    }
}
