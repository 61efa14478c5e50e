//! What a sentry of ours knows of a service that it stands in front of, within the fleet: how long requests wait there, and what is done.
//!
//! How busy the service is it does not tell: slots and CPUs cannot be added, and a queue says more.

use std::collections::HashMap;

use plimsoll_core::Nanos;
use plimsoll_core::config::Scrape;

use super::{Told, What};
use crate::measure::Meter;
use crate::reading::parse;

/// Where a sentry says it.
pub const PATH: &str = "/pools";

/// A sentry, from look to look.
pub struct Front {
    /// What all of its pools are; where that is not said, each is the service of its name.
    service: Option<String>,
    /// By pool.
    meters: HashMap<String, Meter>,
}

impl Front {
    /// Nothing seen yet.
    pub fn new(settings: &Scrape) -> Front {
        Front { service: settings.service.clone(), meters: HashMap::new() }
    }

    /// What it says that was read at `now`. The first answer does not say yet what is done.
    ///
    /// # Errors
    /// Where it is no sentry's.
    pub fn read(&mut self, body: &[u8], now: Nanos) -> Result<Vec<Told>, String> {
        let reading = parse(body)?;
        self.meters.retain(|name, _| reading.pools.iter().any(|pool| pool.name == *name));
        let mut told = Vec::new();
        for pool in &reading.pools {
            let rates = self.meters.entry(pool.name.clone()).or_default().rates(now, pool);
            let served = rates.map(|rates| What::Serves(rates.iter().map(|rates| rates.served_per_s).sum()));
            for what in pool.wait_s.map(What::Waits).into_iter().chain(served) {
                let service = self.service.clone().unwrap_or_else(|| pool.name.clone());
                told.push(Told { service, instance: pool.name.clone(), what, is_new: Some(true) });
            }
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::{Config, parse as config};

    use super::*;

    fn front(scrape: &str) -> Front {
        let text = format!(
            "[controller.telemetry]\nscrape = [{{ server = \"a:1\", kind = \"sentry\"{scrape} }}]\n[pool.p]\nservers = [\"a:1\"]"
        );
        let config = config::<Config>(&text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
        Front::new(&config.controller.telemetry.unwrap().scrape[0])
    }

    fn page(pools: &[(&str, u32, f64)]) -> String {
        let pool = |&(name, served, wait_ms): &(&str, u32, f64)| {
            let class = |name: &str, served: u32| {
                format!("{{\"name\":\"{name}\",\"offered\":{served},\"refused\":0,\"served\":{served}}}")
            };
            let classes = [class("one", served), class("two", 2 * served)].join(",");
            format!(
                "{{\"name\":\"{name}\",\"slots\":4,\"wait_ms\":{wait_ms},\"servers\":[],\"classes\":[{classes}]}}"
            )
        };
        let pools: Vec<String> = pools.iter().map(pool).collect();
        format!("{{\"sentry\":{{\"busy\":0.1}},\"pools\":[{}]}}", pools.join(","))
    }

    fn told(front: &mut Front, page: &str, now: Nanos) -> Vec<(String, What)> {
        let told = front.read(page.as_bytes(), now).unwrap();
        told.into_iter().map(|told| (told.service, told.what)).collect()
    }

    #[test]
    fn waits_are_told_at_once_and_what_is_done_from_the_second_look_on() {
        let s = Nanos::from_secs;
        let mut each = front("");
        let first = told(&mut each, &page(&[("cart", 10, 250.0), ("stock", 0, 0.0)]), s(1));
        assert_eq!(first, [("cart".to_owned(), What::Waits(0.25)), ("stock".to_owned(), What::Waits(0.0))]);
        let second = told(&mut each, &page(&[("cart", 30, 100.0)]), s(3));
        assert_eq!(second, [("cart".to_owned(), What::Waits(0.1)), ("cart".to_owned(), What::Serves(30.0))]);
        assert!(each.read(b"{}", s(4)).unwrap_err().contains("pools"));

        let mut named = front(", service = \"carts\"");
        assert_eq!(told(&mut named, &page(&[("p", 1, 0.0)]), s(1)), [("carts".to_owned(), What::Waits(0.0))]);
        let older = page(&[("p", 5, 0.0)]).replace("\"wait_ms\":0,", "");
        assert_eq!(told(&mut named, &older, s(2)), [("carts".to_owned(), What::Serves(12.0))]);
    }
}
