//! What was learnt, as rate control takes it: services by place, and the classes of the sentries as its APIs.
//!
//! A sentry limits classes, so an API is a class. What traces call `GET /cart/{id}` is of the class that a request for that path would be
//! of; several such may be of one class, and then their paths are all its paths. Headers are not in traces: what may be of several classes,
//! depending on these, is of each of them.

use std::collections::{HashMap, HashSet};

use plimsoll_core::classify::Classifier;
use plimsoll_core::config::{Class, Config};
use plimsoll_core::{ClassId, Nanos, Statistic};
use plimsoll_ratecontrol::paths::{ApiPaths, PathBranch, Paths};
use plimsoll_ratecontrol::{Api, ApiId, Branch, OwnTime, ServiceId, ServiceSignal, Topology};

use super::usage::{Figure, Usage};

/// Services that are told apart.
const MOST_SERVICES: usize = 1 << 16;
/// More calls of one service by one request count as so many.
const MOST_CALLS: f64 = 64.0;
/// The rare branches of an API, which are known together, are taken for so many, each as rare.
const REST_PARTS: usize = 16;

/// Which class an operation is of; none where there are no classes.
pub struct Classes(Option<Classifier>);

impl Classes {
    /// Those of the config.
    pub fn new(classes: &[Class]) -> Classes {
        Classes((!classes.is_empty()).then(|| Classifier::new(classes)))
    }

    /// The classes that `GET /cart/{id}`, `GET shop.example/cart/{id}` or `shop.Cart/Add` may be of, last the one that it is of where no header
    /// makes it another; none where it is nothing like that.
    pub fn of(&self, operation: &str) -> Vec<ClassId> {
        let Some(classifier) = &self.0 else { return Vec::new() };
        let is_method = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase());
        match (operation.split_once(' '), operation.find('/')) {
            (Some((method, url)), Some(_)) if is_method(method) => {
                url.find('/').map_or_else(Vec::new, |slash| {
                    classifier.candidates(method, &url[slash..], &url[..slash], false)
                })
            }
            (None, Some(0)) => classifier.candidates("GET", operation, "", false),
            (None, Some(_)) => classifier.candidates("POST", &format!("/{operation}"), "", true),
            _ => Vec::new(),
        }
    }
}

/// The places of services: each keeps its own until there are too many. Then those that are on no path any more make room.
#[derive(Default)]
pub struct Directory {
    places: HashMap<String, ServiceId>,
    names: Vec<String>,
    /// Once there are no other places: those of services that were on no path in the last topology. In between their state is forgotten.
    vacant: Vec<ServiceId>,
}

impl Directory {
    /// The place of a service, a new one where it has none; nothing where there are too many.
    fn place(&mut self, name: &str) -> Option<ServiceId> {
        if let Some(&place) = self.places.get(name) {
            return Some(place);
        }
        let place = if self.names.len() < MOST_SERVICES {
            self.names.push(String::new());
            ServiceId(self.names.len() as u32 - 1)
        } else {
            self.vacant.pop()?
        };
        let former = std::mem::replace(&mut self.names[place.index()], name.to_owned());
        self.places.remove(&former);
        self.places.insert(name.to_owned(), place);
        Some(place)
    }

    /// The places of services on none of these paths, where there are no others.
    fn off_path(&self, paths: &Paths) -> Vec<ServiceId> {
        if self.names.len() < MOST_SERVICES {
            return Vec::new();
        }
        let branches = paths.apis.iter().flat_map(|api| &api.branches);
        let on_path: HashSet<&str> =
            branches.flat_map(|branch| &branch.visits).map(|visit| &*visit.service).collect();
        let off_path = self.names.iter().enumerate().filter(|(_, name)| !on_path.contains(name.as_str()));
        off_path.map(|(at, _)| ServiceId(at as u32)).collect()
    }

    /// The name of a service.
    pub fn name(&self, place: ServiceId) -> Option<&str> {
        self.names.get(place.index()).map(String::as_str)
    }

    /// The fleet: an API for each class, at the place of the class. One of which no trace was seen has no paths.
    pub fn topology(&mut self, config: &Config, paths: &Paths) -> Topology {
        let classes = Classes::new(&config.classes);
        let mut of_class: Vec<Vec<&ApiPaths>> = vec![Vec::new(); config.classes.len()];
        for api in &paths.apis {
            classes.of(&api.operation).into_iter().for_each(|class| of_class[class.index()].push(api));
        }
        let off_path = self.off_path(paths);
        self.vacant.retain(|place| off_path.binary_search(place).is_ok());
        let api = |(class, seen): (&Class, &Vec<&ApiPaths>)| {
            let branches =
                shares(seen).flat_map(|(part, api)| api.branches.iter().map(move |branch| (part, branch)));
            Api {
                branches: branches.flat_map(|(part, branch)| self.branches(part, branch)).collect(),
                slo: tail(class).unwrap_or(Nanos::MAX),
                priority: class.priority,
                min_per_s: class.min_rate.map_or(0.0, |rate| rate.per_s),
            }
        };
        let apis = config.classes.iter().zip(&of_class).map(api).collect();
        self.vacant = self.off_path(paths);
        let topology = Topology::new(self.names.len(), apis);
        topology.with_own_times((0..).zip(of_class).flat_map(|(class, seen)| {
            self.own_times(&seen).into_iter().map(move |(service, own)| (ApiId(class), service, own))
        }))
    }

    /// How long services work for requests of these APIs, which are of one class.
    fn own_times(&self, apis: &[&ApiPaths]) -> HashMap<ServiceId, OwnTime> {
        let mut all: HashMap<ServiceId, OwnTime> = HashMap::new();
        for (service, own) in apis.iter().flat_map(|api| &api.own_times) {
            if let Some(&place) = self.places.get(&**service) {
                let sum = all.entry(place).or_default();
                let calls = sum.calls + own.calls;
                let seconds = sum.mean_s * sum.calls + own.mean_s * own.calls;
                *sum = OwnTime { mean_s: seconds / calls, calls };
            }
        }
        all
    }

    fn branches(&mut self, part: f64, branch: &PathBranch) -> Vec<Branch> {
        let visits =
            branch.visits.iter().filter_map(|visit| Some((self.place(&visit.service)?, visit.calls)));
        let visits: Vec<(ServiceId, f64)> = visits.collect();
        // No request visits all of these, so they are taken apart, such that each is called as often as in the mean.
        let parts = if branch.is_rest { REST_PARTS } else { 1 };
        let of_part = |nth: usize| {
            let calls = |calls: f64| match branch.is_rest {
                // Called less than once in the mean still is called.
                false => calls.round().max(1.0),
                true => (calls + (nth as f64 + 0.5) / parts as f64)
                    .floor()
                    .max(f64::from(u8::from(nth + 1 == parts))),
            };
            let services = visits
                .iter()
                .flat_map(|&(place, mean)| std::iter::repeat_n(place, calls(mean).min(MOST_CALLS) as usize));
            Branch { share: part * branch.share / parts as f64, services: services.collect() }
        };
        (0..parts).map(of_part).collect()
    }

    /// What was told anew since `since` of each service that is or was on a path, by place. What was told before has been said, and what was
    /// not told is not known.
    pub fn signals(&self, usage: &Usage, since: Nanos) -> Vec<ServiceSignal> {
        let news = |figure: Option<Figure>| Some(figure.filter(|figure| figure.changed > since)?.value);
        let mut signals = vec![ServiceSignal::default(); self.names.len()];
        for known in &usage.services {
            let Some(place) = self.places.get(&known.service) else { continue };
            signals[place.index()] = ServiceSignal {
                utilization: news(known.utilization),
                queue_delay: news(known.queue_s).map(Nanos::from_secs_f64),
                served_per_s: news(known.served_per_s),
            };
        }
        signals
    }
}

/// Of APIs that are of one class, the part of its requests that each is: by how often they came of late, or where none did for long, by how many
/// they are known by.
fn shares<'a>(apis: &[&'a ApiPaths]) -> impl Iterator<Item = (f64, &'a ApiPaths)> {
    let by_recent = apis.iter().any(|api| api.recent > 0.0);
    let weight = move |api: &ApiPaths| if by_recent { api.recent } else { api.requests };
    let all: f64 = apis.iter().map(|api| weight(api)).sum();
    apis.iter().map(move |&api| (weight(api) / all, api))
}

/// The objective of the highest percentile that there is one of, or else of the mean.
fn tail(class: &Class) -> Option<Nanos> {
    let targets = class.slo.targets();
    let percentiles = targets.iter().rfind(|(statistic, _)| *statistic != Statistic::Mean);
    percentiles.or(targets.last()).map(|&(_, limit)| limit)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::parse;
    use plimsoll_ratecontrol::ApiId;
    use plimsoll_ratecontrol::paths::Visit;

    use super::super::usage::Known;
    use super::*;

    fn config() -> Config {
        let text = "[pool.shop]\nservers = [\"127.0.0.1:1\"]
            [class.cart]\nmatch = [{ path = \"/cart/{rest...}\" }, { grpc = \"shop.Cart/*\" }]\nslo = { p50 = \"10ms\", p95 = \"1s\" }\npriority = 1\nmin_rate = \"5/s\"
            [class.browse]\nmatch = [{ method = \"GET\", path = \"/product/{id}\" }]";
        parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0
    }

    /// Operation, requests, services with calls.
    type Seen<'a> = (&'a str, f64, &'a [(&'a str, f64)]);

    fn paths(apis: &[Seen<'_>]) -> Paths {
        let api = |(operation, requests, visits): &Seen<'_>| {
            let visit = |(service, calls): &(&str, f64)| Visit { service: (*service).into(), calls: *calls };
            let branches =
                vec![PathBranch { share: 1.0, is_rest: false, visits: visits.iter().map(visit).collect() }];
            ApiPaths {
                service: "frontend".into(),
                operation: (*operation).into(),
                requests: *requests,
                recent: *requests,
                failed: 0.0,
                branches,
                own_times: Vec::new(),
            }
        };
        Paths { apis: apis.iter().map(api).collect(), ..Paths::default() }
    }

    #[test]
    fn operations_are_of_the_class_that_such_a_request_is_of() {
        let config = config();
        let classes = Classes::new(&config.classes);
        for (operation, class) in [
            ("GET /product/{id}", "browse"),
            ("GET /product/:id", "browse"),
            ("POST /product/{id}", "default"),
            ("DELETE /cart/7", "cart"),
            ("/cart/7", "cart"),
            ("GET shop.example/cart/7", "cart"),
            ("shop.Cart/Add", "cart"),
            ("shop.Other/Add", "default"),
            ("nightly job", ""),
            ("nightly job/a", ""),
            ("GET job", ""),
            ("other", ""),
        ] {
            let found = classes.of(operation).into_iter().map(|class| &*config.classes[class.index()].name);
            assert_eq!(found.collect::<Vec<_>>().join(" "), class, "{operation}");
        }
    }

    #[test]
    fn classes_have_the_paths_of_all_their_operations_and_services_keep_their_places() {
        let (config, mut directory) = (config(), Directory::default());
        let seen = paths(&[
            ("GET /cart/{id}", 30.0, &[("frontend", 1.0), ("cart", 2.2)]),
            ("shop.Cart/Add", 10.0, &[("cart", 0.4)]),
        ]);
        let topology = directory.topology(&config, &seen);
        let [frontend, cart] = [0, 1].map(ServiceId);
        assert_eq!((directory.name(frontend), directory.name(cart)), (Some("frontend"), Some("cart")));
        assert_eq!(topology.uses(ApiId(0)), [(frontend, 0.75), (cart, 1.75)]);
        let api = topology.api(ApiId(0));
        assert_eq!((api.slo, api.priority, api.min_per_s), (Nanos::from_secs(1), 1, 5.0));
        assert!(topology.api(ApiId(1)).branches.is_empty());

        let topology =
            directory.topology(&config, &paths(&[("GET /product/{id}", 1.0, &[("catalog", 1.0)])]));
        assert_eq!((topology.services(), topology.uses(ApiId(1))), (3, &[(ServiceId(2), 1.0)][..]));
    }

    #[test]
    fn own_times_of_a_class_are_the_means_over_the_calls_of_all_its_operations() {
        let mut directory = Directory::default();
        let cart = directory.place("cart").unwrap();
        let mut seen =
            paths(&[("GET /cart/{id}", 1.0, &[("cart", 1.0)]), ("shop.Cart/Add", 1.0, &[("cart", 1.0)])]);
        let own = |mean_s, calls| OwnTime { mean_s, calls };
        seen.apis[0].own_times = vec![("cart".into(), own(0.010, 30.0)), ("nobody".into(), own(1.0, 1.0))];
        seen.apis[1].own_times = vec![("cart".into(), own(0.030, 10.0))];
        let all = directory.own_times(&seen.apis.iter().collect::<Vec<_>>());
        let [(service, found)] = all.into_iter().collect::<Vec<_>>()[..] else {
            panic!("only the cart is known")
        };
        assert_eq!(service, cart);
        assert!((found.mean_s - 0.015).abs() < 1e-12 && (found.calls - 40.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn what_headers_may_make_another_class_is_of_that_too_and_hosts_are_told() {
        let text = "[pool.shop]\nservers = [\"127.0.0.1:1\"]
            [class.gold]\nmatch = [{ header = { name = \"x-tier\", value = \"gold\" } }]
            [class.blog]\nmatch = [{ host = \"blog.example\" }]
            [class.cart]\nmatch = [{ path = \"/cart\" }]";
        let config = parse::<Config>(text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
        let mut directory = Directory::default();
        let seen = paths(&[
            ("GET /cart", 10.0, &[("cart", 1.0)]),
            ("GET blog.example/cart", 30.0, &[("blog", 1.0)]),
        ]);
        let topology = directory.topology(&config, &seen);
        let [cart, blog] = ["cart", "blog"].map(|name| directory.place(name).unwrap());
        let uses = |api: u32| {
            let mut uses = topology.uses(ApiId(api)).to_vec();
            uses.sort_by_key(|&(service, _)| service != cart);
            uses
        };
        assert_eq!(uses(0), [(cart, 0.25), (blog, 0.75)], "gold are some of all");
        assert_eq!((uses(1), uses(2)), (vec![(blog, 1.0)], vec![(cart, 1.0)]));
        assert!(uses(3).is_empty(), "the class of all others, of which there are none");
    }

    #[test]
    fn operations_count_by_how_often_they_come() {
        let mut directory = Directory::default();
        let mut seen = paths(&[
            ("GET /cart/{id}", 200.0, &[("cart", 1.0)]),
            ("shop.Cart/Add", 200.0, &[("stock", 1.0)]),
        ]);
        (seen.apis[0].recent, seen.apis[1].recent) = (90.0, 10.0);
        let topology = directory.topology(&config(), &seen);
        assert_eq!(topology.uses(ApiId(0)), [(ServiceId(0), 0.9), (ServiceId(1), 0.1)]);
        seen.apis.iter_mut().for_each(|api| api.recent = 0.0);
        let topology = directory.topology(&config(), &seen);
        assert_eq!(topology.uses(ApiId(0)), [(ServiceId(0), 0.5), (ServiceId(1), 0.5)]);
    }

    #[test]
    fn who_is_on_no_path_any_more_makes_room_once_there_is_none() {
        let (config, mut directory) = (config(), Directory::default());
        let on_path = |directory: &mut Directory, service: &str| {
            let topology = directory.topology(&config, &paths(&[("GET /cart/{id}", 1.0, &[(service, 1.0)])]));
            topology.uses(ApiId(0)).first().map(|&(place, _)| place)
        };
        let first = on_path(&mut directory, "first").unwrap();
        for other in 1..MOST_SERVICES {
            directory.place(&format!("other-{other}")).unwrap();
        }
        assert_eq!(directory.place("one too many"), None);
        assert_eq!(on_path(&mut directory, "first"), Some(first), "it keeps its place");
        let new = on_path(&mut directory, "new").unwrap();
        assert_eq!((directory.name(new), directory.names.len()), (Some("new"), MOST_SERVICES));
        assert_eq!(directory.places.len(), MOST_SERVICES, "whoever had the place before is forgotten");
    }

    #[test]
    fn signals_are_what_was_told_since() {
        let mut directory = Directory::default();
        for name in ["cart", "catalog", "old"] {
            directory.place(name);
        }
        let told = |value, at| Some(Figure { value, at: Nanos(30), changed: Nanos(at) });
        let known = |service: &str, utilization, queue_s| Known {
            service: service.to_owned(),
            utilization,
            queue_s,
            served_per_s: None,
        };
        let services = vec![
            known("catalog", told(0.9, 20), told(0.25, 25)),
            known("never seen in a trace", told(1.0, 30), None),
            known("old", told(0.8, 10), None),
        ];
        let usage = Usage { services, ..Usage::default() };
        let signals = |since| {
            let signals = directory.signals(&usage, Nanos(since));
            signals.iter().map(|s| (s.utilization, s.queue_delay)).collect::<Vec<_>>()
        };
        let (nothing, queue) = ((None, None), Some(Nanos::from_millis(250)));
        assert_eq!(signals(10), [nothing, (Some(0.9), queue), nothing]);
        assert_eq!(signals(5), [nothing, (Some(0.9), queue), (Some(0.8), None)]);
        assert_eq!(signals(20), [nothing, (None, queue), nothing], "each by itself");
        assert_eq!(signals(25), [nothing; 3]);
    }

    #[test]
    fn rare_branches_call_their_services_as_often_as_they_do_in_the_mean() {
        let (config, mut directory) = (config(), Directory::default());
        let visits = [("frontend", 1.0), ("cart", 2.25), ("mail", 0.5), ("audit", 0.01)];
        let mut seen = paths(&[("GET /product/{id}", 10.0, &[("frontend", 1.0)])]);
        let mut rest = paths(&[("", 1.0, &visits)]).apis.remove(0).branches;
        (rest[0].share, rest[0].is_rest) = (0.2, true);
        seen.apis[0].branches[0].share = 0.8;
        seen.apis[0].branches.append(&mut rest);
        let topology = directory.topology(&config, &seen);
        let uses: HashMap<String, f64> = topology
            .uses(ApiId(1))
            .iter()
            .map(|&(place, calls)| (directory.name(place).unwrap().to_owned(), calls))
            .collect();
        for (service, expected) in
            [("frontend", 1.0), ("cart", 0.2 * 2.25), ("mail", 0.2 * 0.5), ("audit", 0.0)]
        {
            let calls = uses[service];
            assert!(
                (calls - expected).abs() <= 0.2 / REST_PARTS as f64 + 1e-9,
                "{service}: {calls} for {expected}"
            );
        }
        assert!(uses["audit"] > 0.0, "a way that requests may go");
    }
}
