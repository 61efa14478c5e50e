//! What the broker counts, a query type at a time, until somebody asks.

use hdrhistogram::Histogram;
use plimsoll_core::{Grant, Nanos};
use serde_json::{Map, Value, json};

use super::queries::QueryType;

/// Longest time that is told apart; longer ones count as this.
const LONGEST: Nanos = Nanos::from_secs(100);

/// Counts and times since the last reset.
pub struct Stats {
    since: Nanos,
    types: Vec<TypeStats>,
    /// How long the gate took to decide, in ns.
    decisions: Histogram<u64>,
}

/// What became of a query after it was admitted.
pub enum End {
    /// It was answered.
    Served {
        /// Why it was let in.
        grant: Grant,
        /// In the broker's queue.
        waited: Nanos,
        /// By the broker's engine, shards included.
        processed: Nanos,
    },
    /// The broker's gate refused it, at the door or in the queue.
    Refused,
    /// A shard's gate did.
    RefusedByShard,
    /// A shard failed, or it took too long.
    Failed,
}

struct TypeStats {
    refused: u64,
    refused_by_shard: u64,
    failed: u64,
    served: [u64; Grant::ALL.len()],
    response: Histogram<u64>,
    /// Of those that were let in by the estimate alone.
    response_estimate: Histogram<u64>,
    waiting: Histogram<u64>,
    processing: Histogram<u64>,
}

impl Stats {
    /// Nothing counted yet.
    pub fn new(since: Nanos) -> Stats {
        Stats { since, types: QueryType::ALL.map(|_| TypeStats::new()).into(), decisions: histogram() }
    }

    /// The gate took this long for a decision.
    pub fn decided(&mut self, took: Nanos) {
        self.decisions.saturating_record(took.0);
    }

    /// A query has ended.
    pub fn ended(&mut self, of: QueryType, end: End) {
        let stats = &mut self.types[of.index()];
        match end {
            End::Refused => stats.refused += 1,
            End::RefusedByShard => stats.refused_by_shard += 1,
            End::Failed => stats.failed += 1,
            End::Served { grant, waited, processed } => {
                stats.served[grant as usize] += 1;
                let response = (waited + processed).0;
                stats.response.saturating_record(response);
                if grant == Grant::Estimate {
                    stats.response_estimate.saturating_record(response);
                }
                stats.waiting.saturating_record(waited.0);
                stats.processing.saturating_record(processed.0);
            }
        }
    }

    /// Everything, as the broker's `/stats` shows it.
    pub fn to_json(&self, now: Nanos) -> Value {
        let types = QueryType::ALL.iter().map(|of| (of.to_string(), self.types[of.index()].to_json()));
        json!({
            "seconds": now.since(self.since).as_secs_f64(),
            "decision_us": {
                "mean": self.decisions.mean() / 1e3,
                "p50": self.decisions.value_at_quantile(0.5) as f64 / 1e3,
                "p99": self.decisions.value_at_quantile(0.99) as f64 / 1e3,
            },
            "types": types.collect::<Map<_, _>>(),
        })
    }
}

impl TypeStats {
    fn new() -> TypeStats {
        TypeStats {
            refused: 0,
            refused_by_shard: 0,
            failed: 0,
            served: [0; Grant::ALL.len()],
            response: histogram(),
            response_estimate: histogram(),
            waiting: histogram(),
            processing: histogram(),
        }
    }

    fn to_json(&self) -> Value {
        let served: u64 = self.served.iter().sum();
        let grants =
            Grant::ALL.iter().map(|grant| (grant.as_str().to_owned(), self.served[*grant as usize].into()));
        json!({
            "received": served + self.refused + self.refused_by_shard + self.failed,
            "refused": self.refused,
            "refused_by_shard": self.refused_by_shard,
            "failed": self.failed,
            "served": served,
            "served_by_grant": grants.collect::<Map<_, _>>(),
            "response_ms": times(&self.response),
            "response_estimate_ms": times(&self.response_estimate),
            "waiting_ms": times(&self.waiting),
            "processing_ms": times(&self.processing),
        })
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST.0, 3).expect("valid bounds")
}

fn times(of: &Histogram<u64>) -> Value {
    let ms = |quantile| Nanos(of.value_at_quantile(quantile)).as_millis_f64();
    json!({ "mean": of.mean() / 1e6, "p50": ms(0.5), "p90": ms(0.9), "p99": ms(0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_counted_once() {
        let mut stats = Stats::new(Nanos::from_secs(1));
        let served =
            |grant| End::Served { grant, waited: Nanos::from_millis(2), processed: Nanos::from_millis(8) };
        for end in [
            served(Grant::Estimate),
            served(Grant::Allowance),
            End::Refused,
            End::RefusedByShard,
            End::Failed,
        ] {
            stats.ended(QueryType::Distance, end);
        }
        let all = stats.to_json(Nanos::from_secs(3));
        assert_eq!(all["seconds"], 2.0);
        let of = &all["types"]["QT11"];
        for (name, count) in
            [("received", 5), ("served", 2), ("refused", 1), ("refused_by_shard", 1), ("failed", 1)]
        {
            assert_eq!(of[name], count, "{name}");
        }
        assert_eq!(
            (&of["served_by_grant"]["estimate"], &of["served_by_grant"]["probe"]),
            (&json!(1), &json!(0))
        );
        let p50 = of["response_ms"]["p50"].as_f64().unwrap();
        assert!((9.9..10.1).contains(&p50), "{p50}");
        assert_eq!(all["types"]["QT1"]["received"], 0);
    }
}
