//! What an exporter's page says of services. Counters become rates from one page to the next, by the exporter's own times where it tells
//! them: cAdvisor counts every few seconds, however often it is asked.

use std::collections::HashMap;

use plimsoll_core::config::{Scrape, ScrapeKind};

use super::exposition::{Sample, samples};
use super::{Told, What};

/// Containers, hosts or processes of one page; more are left out.
const MOST: usize = 1 << 14;
/// Labels that tell containers apart, and those that name a service where the config does not say which does.
const INSTANCE: [&str; 4] = ["id", "pod", "name", "instance"];
const CADVISOR_SERVICE: [&str; 3] = ["container_label_com_docker_compose_service", "container", "name"];

/// Service, instance.
type Key = (String, String);

/// What there was on a page.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// CPU time, or that of idleness, in seconds.
    cpu_s: f64,
    at_s: f64,
    /// CPUs that it may use.
    capacity: f64,
    quota: f64,
    period: f64,
    /// What it used a second when it was last counted.
    rate: Option<f64>,
    /// Whether that was since the last page.
    is_new: bool,
}

/// What our agents call how slow processes will be, and how many requests an application has done.
const SLOWDOWN: &str = "plimsoll_herald_predicted_slowdown_ratio";
const COMPLETED: &str = "plimsoll_agent_requests_completed_total";
/// How long its requests have waited for workers, permits and connections, by what it tells in its ledger.
const QUEUED: &str = "plimsoll_agent_queued_seconds_total";
/// Nothing counted for so long is nothing done. Less may mean that nobody has counted since: agents do so twice a second.
const QUIET_S: f64 = 1.0;

/// An exporter, from page to page.
pub struct Exporter {
    settings: Scrape,
    before: HashMap<Key, Counted>,
    /// What was done when something was last.
    served: HashMap<Key, Work>,
}

/// Work that was done.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    requests: f64,
    /// For how long they have waited, where that is told.
    queued_s: Option<f64>,
    at_s: f64,
}

impl Exporter {
    /// Nothing seen yet.
    pub fn new(settings: &Scrape) -> Exporter {
        Exporter { settings: settings.clone(), before: HashMap::new(), served: HashMap::new() }
    }

    /// What a page says that was read at `now_s`. The first page of counters says nothing yet.
    pub fn read(&mut self, page: &str, now_s: f64) -> Vec<Told> {
        match self.settings.kind {
            ScrapeKind::Gauge => self.gauges(page, now_s),
            ScrapeKind::Agent => self.agent(page, now_s),
            ScrapeKind::Cadvisor | ScrapeKind::Node | ScrapeKind::Process => self.counters(page, now_s),
            // It has no page of metrics that is read here.
            ScrapeKind::Sentry => Vec::new(),
        }
    }

    fn service(&self, sample: &Sample<'_>, usual: &[&str]) -> Option<String> {
        let label = match &self.settings.label {
            Some(label) => sample.label(label),
            None => usual.iter().find_map(|label| sample.label(label).filter(|value| !value.is_empty())),
        };
        let named = label.filter(|value| !value.is_empty()).map(|value| value.into_owned());
        named.or_else(|| self.settings.service.clone())
    }

    fn gauges(&mut self, page: &str, now_s: f64) -> Vec<Told> {
        let of = |name: &Option<String>, sample: &Sample<'_>| name.as_deref() == Some(sample.name);
        let told = samples(page).filter_map(|sample| {
            let what = if of(&self.settings.metric, &sample) {
                What::Uses { used: sample.value, of: 1.0 }
            } else if of(&self.settings.queue, &sample) {
                What::Waits(sample.value)
            } else {
                return None;
            };
            let (service, instance) = self.whose(&sample, &["service"])?;
            // What an exporter says of now is new.
            Some(Told { service, instance, what, is_new: sample.at_s.is_none().then_some(true) })
        });
        let mut told: Vec<Told> = told.take(MOST).collect();
        if let Some(counter) = self.settings.served.clone() {
            told.extend(self.served(page, &counter, None, &["service"], now_s));
        }
        told
    }

    /// Which service a sample is about, and which of its instances.
    fn whose(&self, sample: &Sample<'_>, usual: &[&str]) -> Option<Key> {
        let instance = INSTANCE.iter().find_map(|label| sample.label(label)).unwrap_or_default().into_owned();
        Some((self.service(sample, usual)?, instance))
    }

    /// What is done a second, from one page to the next, and how long each waited. Samples that differ in other labels add up.
    fn served(
        &mut self,
        page: &str,
        counter: &str,
        queued: Option<&str>,
        usual: &[&str],
        now_s: f64,
    ) -> Vec<Told> {
        let mut now: HashMap<Key, Work> = HashMap::new();
        for sample in samples(page) {
            let waits = queued == Some(sample.name);
            if !waits && sample.name != counter {
                continue;
            }
            let Some(key) = self.whose(&sample, usual) else { continue };
            if now.len() >= MOST && !now.contains_key(&key) {
                continue;
            }
            let work = now.entry(key).or_default();
            if waits {
                *work.queued_s.get_or_insert(0.0) += sample.value;
            } else {
                work.requests += sample.value;
            }
            work.at_s = sample.at_s.unwrap_or(now_s);
        }
        let mut told = Vec::new();
        for (key, work) in &mut now {
            let Some(before) = self.served.get(key) else { continue };
            let (done, passed_s) = (work.requests - before.requests, work.at_s - before.at_s);
            if done == 0.0 && passed_s < QUIET_S {
                *work = *before;
                continue;
            }
            // Begun anew: nothing is known yet.
            if done < 0.0 || passed_s <= 0.0 {
                continue;
            }
            let mut tell = |what| {
                let (service, instance) = key.clone();
                told.push(Told { service, instance, what, is_new: Some(true) });
            };
            tell(What::Serves(done / passed_s));
            let waited = work.queued_s.zip(before.queued_s).map(|(now, before)| (now - before) / done);
            if let Some(waited_s) = waited.filter(|waited_s| done > 0.0 && *waited_s >= 0.0) {
                tell(What::Waits(waited_s));
            }
        }
        self.served = now;
        told
    }

    /// Whoever shares CPUs with others is slowed 1/(1-u) times where they are busy for a part u of the time (M/G/1 with processor
    /// sharing), so a slowdown of s says that they are busy for 1 - 1/s. What is predicted is known a second earlier than what was.
    fn agent(&mut self, page: &str, now_s: f64) -> Vec<Told> {
        let slowed = samples(page).filter(|sample| sample.name == SLOWDOWN);
        let told = slowed.filter_map(|sample| {
            let instance = sample.label("process")?.into_owned();
            let used = (1.0 - 1.0 / sample.value).clamp(0.0, 1.0);
            let service = self.service(&sample, &["process"])?;
            Some(Told { service, instance, what: What::Uses { used, of: 1.0 }, is_new: None })
        });
        let mut told: Vec<Told> = told.take(MOST).collect();
        told.extend(self.served(page, COMPLETED, Some(QUEUED), &["app"], now_s));
        told
    }

    fn counters(&mut self, page: &str, now_s: f64) -> Vec<Told> {
        let mut now: HashMap<Key, Counted> = HashMap::new();
        let mut machine_cpus = None;
        for sample in samples(page) {
            if sample.name == "machine_cpu_cores" {
                machine_cpus = Some(sample.value);
                continue;
            }
            let Some(of) = self.place(&sample, &mut now) else { continue };
            match sample.name {
                "container_spec_cpu_quota" => of.quota = sample.value,
                "container_spec_cpu_period" => of.period = sample.value,
                "node_cpu_seconds_total" => {
                    // Of a host it is idleness that is counted; each CPU has one counter of it.
                    let mode = sample.label("mode");
                    of.cpu_s -= sample.value;
                    of.capacity += f64::from(u8::from(mode.as_deref() == Some("idle")));
                    of.at_s = sample.at_s.unwrap_or(now_s);
                }
                _ => {
                    of.cpu_s += sample.value;
                    of.at_s = sample.at_s.unwrap_or(now_s);
                }
            }
        }
        let is_node = self.settings.kind == ScrapeKind::Node;
        let mut told = Vec::new();
        for (key, of) in &mut now {
            let limit = Some(of.quota / of.period).filter(|cpus| cpus.is_finite() && *cpus > 0.0);
            let own = if is_node { Some(of.capacity) } else { limit.or(machine_cpus) };
            of.capacity = self.settings.cpus.or(own).unwrap_or(1.0);
            if let Some(before) = self.before.get(key) {
                let passed = of.at_s - before.at_s;
                let rate = (of.cpu_s - before.cpu_s) / passed;
                of.is_new = passed > 0.0;
                // Counted no more since: what was said then still holds. Begun anew: nothing is known yet.
                of.rate = if passed <= 0.0 {
                    before.rate
                } else {
                    Some(if is_node { of.capacity + rate } else { rate })
                };
            }
            if let Some(rate) = of.rate.filter(|rate| *rate >= 0.0) {
                let (service, instance) = key.clone();
                let what = What::Uses { used: rate, of: of.capacity };
                told.push(Told { service, instance, what, is_new: Some(of.is_new) });
            }
        }
        self.before = now;
        told
    }

    /// Where a sample counts, if it does.
    fn place<'a>(&self, sample: &Sample<'_>, now: &'a mut HashMap<Key, Counted>) -> Option<&'a mut Counted> {
        let usual: &[&str] = match (self.settings.kind, sample.name) {
            (
                ScrapeKind::Cadvisor,
                "container_cpu_usage_seconds_total"
                | "container_spec_cpu_quota"
                | "container_spec_cpu_period",
            ) => &CADVISOR_SERVICE,
            (ScrapeKind::Node, "node_cpu_seconds_total") => match sample.label("mode").as_deref() {
                Some("idle" | "iowait") => &[],
                _ => return None,
            },
            (ScrapeKind::Process, "process_cpu_seconds_total" | "process_cpu_seconds") => &[],
            _ => return None,
        };
        let service = self.service(sample, usual)?;
        let instance = match self.settings.kind {
            ScrapeKind::Cadvisor => {
                INSTANCE.iter().find_map(|label| sample.label(label)).unwrap_or_default().into_owned()
            }
            _ => String::new(),
        };
        let key = (service, instance);
        if now.len() >= MOST && !now.contains_key(&key) {
            return None;
        }
        Some(now.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::config::{Config, parse};

    use super::*;

    fn exporter(scrape: &str) -> Exporter {
        let text = format!(
            "[controller.telemetry]\nscrape = [{{ server = \"a:1\", {scrape} }}]\n[pool.p]\nservers = [\"a:1\"]"
        );
        let config = parse::<Config>(&text, "").unwrap_or_else(|errors| panic!("{errors}")).0;
        Exporter::new(&config.controller.telemetry.unwrap().scrape[0])
    }

    /// In order, as text.
    fn told(exporter: &mut Exporter, page: &str, now_s: f64) -> Vec<String> {
        let mut told: Vec<String> = exporter
            .read(page, now_s)
            .iter()
            .map(|t| {
                let again = if t.is_new == Some(false) { " again" } else { "" };
                match t.what {
                    What::Uses { used, of } => format!("{} {used:.2}/{of:.2}{again}", t.service),
                    What::Waits(seconds) => format!("{} waits {seconds:.3}{again}", t.service),
                    What::Serves(per_s) => format!("{} serves {per_s:.1}{again}", t.service),
                }
            })
            .collect();
        told.sort();
        told
    }

    /// Only what lies between two times that an exporter says is used, so its clock may be wrong by any amount.
    #[test]
    fn exporters_whose_clocks_are_apart_say_the_same_and_a_clock_that_is_set_back_says_nothing_once() {
        const NOW: u64 = 1_700_000_000_000;
        const MINUTES: u64 = 7 * 60_000;
        for base in [NOW, NOW + MINUTES, NOW - MINUTES, NOW / 2, 3 * NOW] {
            let mut exporter = exporter("kind = \"cadvisor\"");
            let page = |cpu: f64, ms: u64| {
                format!(
                    "machine_cpu_cores 8\ncontainer_cpu_usage_seconds_total{{id=\"/a\",name=\"cart\"}} {cpu} {ms}\n"
                )
            };
            assert!(told(&mut exporter, &page(5.0, base), 0.0).is_empty(), "{base}");
            assert_eq!(told(&mut exporter, &page(6.0, base + 5_000), 5.0), ["cart 0.20/8.00"], "{base}");
            let back = told(&mut exporter, &page(7.0, base + 1_000), 10.0);
            assert!(back.iter().all(|told| told.ends_with("again")), "{base}: {back:?}");
            let on = told(&mut exporter, &page(8.0, base + 6_000), 15.0);
            assert_eq!(on, ["cart 0.20/8.00"], "{base}");
        }
    }

    #[test]
    fn containers_are_told_by_their_limits_and_their_own_times() {
        let mut exporter = exporter("kind = \"cadvisor\"");
        let page = |cpu: f64, ms: u64| {
            format!(
                "machine_cpu_cores 8\n\
                 container_cpu_usage_seconds_total{{id=\"/\",name=\"\",cpu=\"cpu00\"}} 999 {ms}\n\
                 container_cpu_usage_seconds_total{{id=\"/a\",name=\"cart\",cpu=\"cpu00\"}} {cpu} {ms}\n\
                 container_cpu_usage_seconds_total{{id=\"/a\",name=\"cart\",cpu=\"cpu01\"}} 10 {ms}\n\
                 container_spec_cpu_quota{{id=\"/a\",name=\"cart\"}} 50000\ncontainer_spec_cpu_period{{id=\"/a\",name=\"cart\"}} 100000\n\
                 container_cpu_usage_seconds_total{{id=\"/b\",name=\"cart\",container_label_com_docker_compose_service=\"shop\"}} {cpu} {ms}\n"
            )
        };
        assert!(told(&mut exporter, &page(5.0, 1_700_000_000_000), 0.0).is_empty());
        let expected = ["cart 0.20/0.50", "shop 0.20/8.00"];
        assert_eq!(told(&mut exporter, &page(6.0, 1_700_000_005_000), 1.0), expected);
        assert_eq!(
            told(&mut exporter, &page(6.0, 1_700_000_005_000), 2.0),
            expected.map(|told| format!("{told} again")),
            "counted no more since"
        );
        assert!(told(&mut exporter, &page(0.5, 1_700_000_006_000), 3.0).is_empty(), "begun anew");
        assert_eq!(
            told(&mut exporter, &page(0.7, 1_700_000_007_000), 4.0),
            ["cart 0.20/0.50", "shop 0.20/8.00"]
        );
    }

    #[test]
    fn hosts_and_processes_are_the_service_that_is_said() {
        let mut node = exporter("kind = \"node\", service = \"db\"");
        let page = |idle: f64| {
            let of = |cpu: u32| {
                format!(
                    "node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"idle\"}} {idle}\nnode_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"iowait\"}} 5\nnode_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"user\"}} 77\n"
                )
            };
            of(0) + &of(1)
        };
        assert!(told(&mut node, &page(10.0), 100.0).is_empty());
        assert_eq!(told(&mut node, &page(10.5), 102.0), ["db 1.50/2.00"]);
        let mut process = exporter("kind = \"process\", service = \"cart\", cpus = 2.0");
        told(&mut process, "process_cpu_seconds_total 3", 10.0);
        assert_eq!(told(&mut process, "process_cpu_seconds_total 4.5", 11.0), ["cart 1.50/2.00"]);
    }

    #[test]
    fn gauges_and_agents_say_it_at_once() {
        let mut gauge = exporter("kind = \"gauge\", metric = \"busy\"");
        assert_eq!(
            told(&mut gauge, "busy{service=\"cart\"} 0.5\nbusy 1\nidle{service=\"x\"} 1", 0.0),
            ["cart 0.50/1.00"]
        );
        let mut agent = exporter("kind = \"agent\"");
        let page = "plimsoll_herald_predicted_slowdown_ratio{process=\"cart\"} 5\nplimsoll_herald_predicted_slowdown_ratio{process=\"idle\"} 1\n";
        assert_eq!(told(&mut agent, page, 0.0), ["cart 0.80/1.00", "idle 0.00/1.00"]);
    }
    #[test]
    fn an_exporter_may_tell_all_at_once() {
        let mut exporter = exporter(
            "kind = \"gauge\", metric = \"busy\", queue = \"queue_seconds\", served = \"done_total\"",
        );
        let page = |done: u32| {
            format!(
                "busy{{service=\"cart\"}} 0.5\nqueue_seconds{{service=\"cart\"}} 0.125\n\
                 done_total{{service=\"cart\",code=\"200\"}} {done}\ndone_total{{service=\"cart\",code=\"500\"}} 7\n"
            )
        };
        assert_eq!(told(&mut exporter, &page(100), 10.0), ["cart 0.50/1.00", "cart waits 0.125"]);
        let all = ["cart 0.50/1.00", "cart serves 20.0", "cart waits 0.125"];
        assert_eq!(told(&mut exporter, &page(105), 10.25), all);
        assert_eq!(told(&mut exporter, &page(3), 10.5).len(), 2, "begun anew");
    }

    #[test]
    fn an_agent_tells_what_applications_get_done_and_how_long_that_waited() {
        let mut agent = exporter("kind = \"agent\"");
        let page = |done: u32, queued_s: f64| {
            let of = "{app=\"cart\",watched=\"cart\"}";
            format!(
                "plimsoll_agent_requests_completed_total{of} {done}\nplimsoll_agent_queued_seconds_total{of} {queued_s}\n"
            )
        };
        assert!(told(&mut agent, &page(0, 0.0), 1.0).is_empty());
        assert_eq!(told(&mut agent, &page(30, 6.0), 3.0), ["cart serves 15.0", "cart waits 0.200"]);
        assert!(told(&mut agent, &page(30, 6.0), 3.25).is_empty(), "not counted since");
        assert_eq!(told(&mut agent, &page(35, 6.0), 3.5), ["cart serves 10.0", "cart waits 0.000"]);
        assert_eq!(told(&mut agent, &page(35, 7.0), 4.75), ["cart serves 0.0"], "all still wait");
    }
}
