//! Recorded traffic: the requests of a log, at their own pace or faster.

use plimsoll_core::{ClassId, Nanos};

use crate::access_log::{AccessLog, OTHER, class_name};
use crate::engine::Arrival;

/// A log whose classes are those of a scenario.
pub struct Log {
    arrivals: Vec<Arrival>,
    unknown: Vec<String>,
}

impl Log {
    /// Finds the classes of a log among `names`, of which the last is `default`. That also takes what has no other.
    pub fn new(log: AccessLog, names: &[String]) -> Log {
        let default = names.len().saturating_sub(1);
        let find = |name: &String| {
            let slug = class_name(name);
            names.iter().position(|n| n == name || *n == slug)
        };
        let found: Vec<Option<usize>> = log.names.iter().map(find).collect();
        let class = |name: u16| ClassId(found[usize::from(name)].unwrap_or(default) as u16);
        let arrivals = log.records.iter();
        let arrivals =
            arrivals.map(|r| Arrival { at: r.at, class: class(r.name), service: r.service }).collect();
        let unknown = log.names.iter().zip(&found).filter(|(name, found)| found.is_none() && *name != OTHER);
        Log { arrivals, unknown: unknown.map(|(name, _)| name.clone()).collect() }
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.arrivals.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// The classes of the log that count as `default`.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// The requests, coming `speed` times as fast as they did. Their service times stay.
    pub fn at_speed(&self, speed: f64) -> impl Iterator<Item = Arrival> + '_ {
        self.arrivals.iter().map(move |arrival| {
            // At its own pace a log keeps every digit.
            let at = if speed == 1.0 { arrival.at } else { Nanos((arrival.at.0 as f64 / speed) as u64) };
            Arrival { at, ..*arrival }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log;

    #[test]
    fn classes_are_found_and_speed_scales_time_alone() {
        let text = "ts,path,service_ms\n0,/product/1,5\n1,/cart,6\n3,/product/2,7\n";
        let log = access_log::read(text.as_bytes(), "a.csv").unwrap();
        let names = ["product-id", "default"].map(String::from);
        let log = Log::new(log, &names);
        assert_eq!(log.unknown(), ["/cart"]);
        let arrivals: Vec<_> = log.at_speed(2.0).map(|a| (a.at.0, a.class.0, a.service.0)).collect();
        let ms = 1_000_000;
        assert_eq!(arrivals, [(0, 0, 5 * ms), (500 * ms, 1, 6 * ms), (1_500 * ms, 0, 7 * ms)]);
    }
}
