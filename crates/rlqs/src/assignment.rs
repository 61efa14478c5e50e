//! Rates as buckets of tokens, and back.
//!
//! What Envoy makes of a bucket (1.40) decides how one is written. It takes the interval in whole seconds and fills the bucket
//! continuously, so the interval is a second or, where a second's tokens would be too coarse, a minute. And it begins a changed bucket
//! full; so a bucket holds little, and [`keeps`] leaves alone what has not changed much. A sentry's bucket goes on as it was.

use plimsoll_core::Nanos;
use plimsoll_core::bucket::LEAST_BURST;
pub use plimsoll_core::bucket::burst_of;

use crate::messages::{
    Abandon, Action, BlanketRule, BucketAction, BucketId, Kind, QuotaAssignment, Strategy, TokenBucket,
};
use crate::{CLASS, STEP, TIME_TO_LIVE};

/// From this rate on a second's tokens are fine enough: one in a hundred.
const BY_THE_SECOND: f64 = 100.0;
/// A rate that is this much less than it could be is not worth a new bucket that begins full: measured demands differ by some hundredths
/// from one time to the next, and four buckets a second would give away more than the rate.
const SLACK: f64 = 0.1;
/// No rate is higher, and no assignment holds for longer, whatever is said.
const MOST_PER_S: f64 = 1e9;
/// See [`MOST_PER_S`].
const LONGEST: Nanos = Nanos::from_secs(60);

/// How much of a class may enter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// All of it.
    None,
    /// So many requests a second.
    Rate {
        /// Finite, not negative.
        per_s: f64,
        /// At once, after a pause.
        burst: u32,
    },
}

/// What a data plane is told about a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assignment {
    /// How much may enter.
    pub limit: Limit,
    /// For how long that holds if nothing else is said.
    pub holds_for: Nanos,
}

/// Something that cannot be, or that nobody here understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

/// Whether a bucket that was told `before` may keep that where it could have `now`: a little less, and never more.
pub fn keeps(before: f64, now: f64) -> bool {
    before <= now && before >= now * (1.0 - SLACK)
}

/// Assigns so many requests a second; all, where there is no number.
pub fn assign(bucket: BucketId, per_s: Option<f64>) -> BucketAction {
    let assignment = QuotaAssignment {
        assignment_time_to_live: Some(TIME_TO_LIVE.into()),
        rate_limit_strategy: Some(Strategy { strategy: Some(strategy(per_s)) }),
    };
    BucketAction { bucket_id: Some(bucket), bucket_action: Some(Action::Assign(assignment)) }
}

/// Says that nothing more will be said about a bucket.
pub fn abandon(bucket: BucketId) -> BucketAction {
    BucketAction { bucket_id: Some(bucket), bucket_action: Some(Action::Abandon(Abandon {})) }
}

fn strategy(per_s: Option<f64>) -> Kind {
    let Some(per_s) = per_s else { return Kind::Blanket(BlanketRule::AllowAll.into()) };
    let per_s = per_s.clamp(0.0, MOST_PER_S);
    let interval_s = if per_s >= BY_THE_SECOND { 1 } else { 60 };
    // Rounded down: what all are assigned together is never more than what there is.
    let tokens = (per_s * interval_s as f64) as u32;
    if tokens == 0 {
        return Kind::Blanket(BlanketRule::DenyAll.into());
    }
    Kind::TokenBucket(TokenBucket {
        max_tokens: burst_of(per_s),
        tokens_per_fill: Some(tokens),
        fill_interval: Some(Nanos::from_secs(interval_s).into()),
    })
}

/// What is said of which class; no class where the bucket has none.
///
/// # Errors
/// Where it cannot be, or is of a kind that is not known.
pub fn read(action: &BucketAction) -> Result<(&str, Assignment), Nonsense> {
    let class = class_of(action.bucket_id.as_ref()).ok_or(Nonsense)?;
    let assignment = match action.bucket_action.as_ref().ok_or(Nonsense)? {
        Action::Abandon(Abandon {}) => Assignment { limit: Limit::None, holds_for: Nanos::ZERO },
        Action::Assign(assignment) => Assignment {
            limit: match &assignment.rate_limit_strategy {
                None => Limit::None,
                Some(strategy) => limit(strategy)?,
            },
            holds_for: match assignment.assignment_time_to_live {
                None => LONGEST,
                Some(time) => time.read().ok_or(Nonsense)?.min(LONGEST),
            },
        },
    };
    Ok((class, assignment))
}

fn limit(strategy: &Strategy) -> Result<Limit, Nonsense> {
    match strategy.strategy.as_ref().ok_or(Nonsense)? {
        Kind::Blanket(rule) => match BlanketRule::try_from(*rule) {
            Ok(BlanketRule::AllowAll) => Ok(Limit::None),
            Ok(BlanketRule::DenyAll) => Ok(Limit::Rate { per_s: 0.0, burst: 0 }),
            Err(_) => Err(Nonsense),
        },
        Kind::TokenBucket(bucket) => {
            let interval = bucket.fill_interval.and_then(|interval| interval.read()).ok_or(Nonsense)?;
            let per_s = f64::from(bucket.tokens_per_fill.unwrap_or(1)) / interval.as_secs_f64();
            let plausible = bucket.max_tokens > 0 && (0.0..=MOST_PER_S).contains(&per_s);
            // What is written in seconds is meant for the seconds to come, not for this step alone.
            let burst = bucket.max_tokens.min((per_s * STEP.as_secs_f64()) as u32).max(LEAST_BURST);
            if plausible { Ok(Limit::Rate { per_s, burst }) } else { Err(Nonsense) }
        }
    }
}

/// The class that a bucket stands for.
pub fn class_of(bucket: Option<&BucketId>) -> Option<&str> {
    bucket?.bucket.get(CLASS).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::messages::{Duration, Strategy};

    fn bucket(class: &str) -> BucketId {
        BucketId { bucket: BTreeMap::from([(CLASS.to_owned(), class.to_owned())]) }
    }

    fn read_back(per_s: Option<f64>) -> Assignment {
        let action = assign(bucket("a"), per_s);
        let (class, assignment) = read(&action).unwrap();
        assert_eq!((class, assignment.holds_for), ("a", TIME_TO_LIVE));
        assignment
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_a_little_less_and_never_more(per_s in 1.0f64..1e6) {
            let Limit::Rate { per_s: read, burst } = read_back(Some(per_s)).limit else { panic!("no rate") };
            prop_assert!(read <= per_s && read > per_s * 0.98, "{per_s} reads as {read}");
            prop_assert!(f64::from(burst) <= 8f64.max(per_s * STEP.as_secs_f64() / 5.0), "{burst} at {per_s}");
        }
    }

    #[test]
    fn all_and_nothing() {
        assert_eq!(read_back(None).limit, Limit::None);
        for nothing in [0.0, -1.0, 1e-9, f64::NAN] {
            assert_eq!(read_back(Some(nothing)).limit, Limit::Rate { per_s: 0.0, burst: 0 }, "{nothing}");
        }
        assert!(matches!(read_back(Some(f64::INFINITY)).limit, Limit::Rate { per_s: MOST_PER_S, .. }));
        let (_, gone) = read(&abandon(bucket("a"))).map(|(_, gone)| ((), gone)).unwrap();
        assert_eq!(gone, Assignment { limit: Limit::None, holds_for: Nanos::ZERO });
    }

    #[test]
    fn a_little_less_is_kept_and_more_never() {
        assert!(keeps(91.0, 100.0) && keeps(100.0, 100.0));
        assert!(!keeps(89.0, 100.0) && !keeps(100.1, 100.0));
    }

    #[test]
    fn nonsense_is_said_to_be() {
        let of = |bucket: TokenBucket| {
            let strategy = Strategy { strategy: Some(Kind::TokenBucket(bucket)) };
            limit(&strategy)
        };
        let sound = TokenBucket {
            max_tokens: 1_000,
            tokens_per_fill: None,
            fill_interval: Some(Nanos::from_millis(10).into()),
        };
        assert_eq!(
            of(sound.clone()),
            Ok(Limit::Rate { per_s: 100.0, burst: 25 }),
            "no more than a step's worth"
        );
        let in_no_time = Some(Duration { seconds: 0, nanos: 0 });
        let before_now = Some(Duration { seconds: -1, nanos: 0 });
        for fill_interval in [None, in_no_time, before_now, Some(Nanos(1).into())] {
            let bucket = TokenBucket { fill_interval, tokens_per_fill: Some(7), ..sound.clone() };
            assert_eq!(of(bucket), Err(Nonsense), "{fill_interval:?}");
        }
        assert_eq!(of(TokenBucket { max_tokens: 0, ..sound }), Err(Nonsense));
        assert_eq!(limit(&Strategy { strategy: Some(Kind::Blanket(2)) }), Err(Nonsense));
        assert_eq!(limit(&Strategy { strategy: None }), Err(Nonsense));
        assert_eq!(read(&BucketAction::default()), Err(Nonsense));
    }
}
