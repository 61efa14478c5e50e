//! `provision` of a pool: who starts its servers, and how many there may be.

use std::fmt;
use std::str::FromStr;

use http::uri::PathAndQuery;

use super::pool::Pool;
use super::report::Report;
use super::table::{choice, table};
use super::value::{Node, text};
use crate::Nanos;

/// Most periods of one season; each is remembered.
const MAX_PERIODS: u64 = 10_000;

table! {
    /// Servers that the controller starts and stops as the load asks for.
    pub struct Provision {
        /// "process" starts them on this host, "kubernetes" scales a Deployment (in a build with that feature).
        provider: ProviderKind = "process",
        /// Servers that there are at least, those of `servers` among them.
        min: u32 [0..=10000] = 1,
        /// Servers that there are at most, those of `servers` among them.
        max: u32 [1..=10000] = 8,
        /// Most servers that are added or given back at a time. Left out, as many as the load asks for: what is missing is
        /// known from what arrives and what it takes, and `pause` alone keeps the number from swinging.
        step: Option<u32> [1..=10000],
        /// Least time from one change to the next, longer than a server takes to start and to show in what is refused.
        pause: Nanos ["100ms"..="24h"] = "5m",
        /// The share of requests in 0..1 whose refusal calls for more servers at once. Less is what a gateway refuses when
        /// a burst passes.
        drop_rate: f64 [0.0..=1.0] = 0.05,
        /// How often servers are planned ahead, from what arrived. What is not needed is given back after two periods.
        period: Nanos ["100ms"..="24h"] = "5m",
        /// After how long the load repeats itself. "0s" where it does not.
        season: Nanos ["0s"..="10000h"] = "24h",
        /// The program and its arguments; `{port}` becomes the server's port.
        command: Vec<String> = [] where provider = "process",
        /// Ports of 127.0.0.1 that its servers listen on, as in "9101-9120": at least as many as there may be servers.
        ports: Option<Ports> where provider = "process",
        /// What a server that is ready answers to GET with 2xx. Left out, one that can be connected to is ready.
        ready: Option<PathAndQuery> where provider = "process",
        /// How long a server may take until it is ready; then it is given up and another is tried.
        start_timeout: Nanos ["100ms"..="1h"] = "30s" where provider = "process",
        /// How long requests in flight may take when a server is given back.
        drain_timeout: Nanos ["0s"..="24h"] = "30s" where provider = "process",
        /// How long a server may take to end after SIGTERM; then it is killed.
        stop_timeout: Nanos ["0s"..="1h"] = "10s" where provider = "process",
        /// The Deployment's namespace. Left out, that of the kubeconfig's context, or of the pod that the controller runs in.
        namespace: Option<String> where provider = "kubernetes",
        /// The Deployment's name. Nobody else scales it.
        deployment: Option<String> where provider = "kubernetes",
        /// The port that its pods listen on.
        port: Option<u32> [1..=65535] where provider = "kubernetes",
    }
}

choice! {
    /// Who starts servers.
    pub enum ProviderKind {
        /// Processes on this host.
        Process = "process",
        /// Pods of a Deployment.
        Kubernetes = "kubernetes",
    }
}

/// A range of ports, both ends among them. Written "9101-9120"; a single port is a range of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last, not below the first.
    pub last: u16,
}

impl Ports {
    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// How many.
    pub fn count(self) -> u32 {
        u32::from(self.last - self.first) + 1
    }
}

impl FromStr for Ports {
    type Err = String;
    fn from_str(text: &str) -> Result<Ports, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Ports { first, last }),
            (Some(first), Some(last)) => {
                Err(format!("\"{text}\" ends before it begins; write \"{last}-{first}\""))
            }
            _ => Err(format!(
                "\"{text}\" is not a range of ports from 1 to 65535; write for example \"9101-9120\""
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

text! {
    Ports: "a range of ports", "9101-9120", { "pattern": "^[0-9]+(-[0-9]+)?$" }, str::parse;
}

/// What is wrong within a pool's `provision`, and between it and the pool.
pub(super) fn check(pool: &Pool, root: Node<'_>, report: &mut Report) {
    let Some(provision) = &pool.provision else { return };
    let at = |key: &str| root.at(&["pool", &pool.name, "provision", key]);
    let Provision { min, max, .. } = *provision;
    if min > max {
        let message = format!("`min` {min} is above `max` {max}; write min = {max}, or raise max");
        report.error(at("min"), message);
    }
    let fixed = pool.servers.len();
    if fixed > max as usize {
        let message =
            format!("`max` is {max}, but `servers` has {fixed}; write max = {fixed} or more, or list fewer");
        report.error(at("max"), message);
    }
    if provision.season.0 / provision.period.0.max(1) > MAX_PERIODS {
        let message = format!(
            "`season` has more than {MAX_PERIODS} periods; write a longer `period`, or a shorter season"
        );
        report.error(at("season"), message);
    }
    match provision.provider {
        ProviderKind::Process => check_process(provision, max.saturating_sub(fixed as u32), at, report),
        ProviderKind::Kubernetes => {
            for (key, missing, example) in [
                ("deployment", provision.deployment.is_none(), format!("\"{}\"", pool.name)),
                ("port", provision.port.is_none(), "8080".to_owned()),
            ] {
                if missing {
                    let message = format!("`{key}` is missing; add for example {key} = {example}");
                    report.error(at(key), message);
                }
            }
            for (key, name) in [("deployment", &provision.deployment), ("namespace", &provision.namespace)] {
                if let Some(name) = name.as_ref().filter(|name| !is_object_name(name)) {
                    let message = format!(
                        "\"{name}\" names nothing in Kubernetes; write lower-case letters, digits, `-` and `.`, as in \"my-shop\""
                    );
                    report.error(at(key), message);
                }
            }
        }
    }
}

/// Whether an object of Kubernetes may be called so: a DNS subdomain (RFC 1123). It becomes part of a path.
fn is_object_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_part)
}

fn check_process(
    provision: &Provision,
    most: u32,
    at: impl Fn(&str) -> super::report::Span,
    report: &mut Report,
) {
    const EXAMPLE: &str = "command = [\"my-server\", \"--listen\", \"127.0.0.1:{port}\"]";
    match provision.command.first().map(String::as_str) {
        None => {
            report.error(at("command"), format!("`command` is missing; add for example {EXAMPLE}"));
        }
        Some("") => {
            report.error(at("command"), format!("`command` names no program; write for example {EXAMPLE}"))
        }
        Some(_) => {}
    }
    for unknown in provision.command.iter().flat_map(|word| placeholders(word)).filter(|name| *name != "port")
    {
        let message =
            format!("`command` has {{{unknown}}}, which nothing stands for; there is {{port}} alone");
        report.error(at("command"), message);
    }
    let names_port = provision.command.iter().any(|word| placeholders(word).any(|name| name == "port"));
    match provision.ports {
        None => report.error(
            at("ports"),
            format!("`ports` is missing; add ports = \"9101-{}\", one for each server", 9100 + most.max(1)),
        ),
        Some(ports) if ports.count() < most => {
            let last = (u32::from(ports.first) + most - 1).min(65535);
            let message = format!(
                "`ports` has {}, but there may be {most} servers; write \"{}-{last}\"",
                ports.count(),
                ports.first
            );
            report.error(at("ports"), message);
        }
        Some(ports) if ports.count() > 1 && !provision.command.is_empty() && !names_port => {
            let message = "`command` has no {port}, so that all servers would listen on the same; write it where \
                           the program expects its port";
            report.error(at("command"), message);
        }
        Some(_) => {}
    }
}

/// The names in braces; braces around anything else are left as they are.
fn placeholders(word: &str) -> impl Iterator<Item = &str> {
    word.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'))
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
}

/// Two pools must not start servers on the same ports, nor on those of the controller's sentries.
pub(super) fn check_ports(pools: &[Pool], sentries: Option<Ports>, root: Node<'_>, report: &mut Report) {
    let of_pools = pools.iter().filter_map(|pool| Some((pool, pool.provision.as_ref()?.ports?)));
    let mut taken: Vec<(String, Ports)> =
        sentries.into_iter().map(|ports| ("`sentry_ports` of [controller]".to_owned(), ports)).collect();
    for (pool, ports) in of_pools {
        let clash = taken.iter().find(|(_, other)| ports.first <= other.last && other.first <= ports.last);
        if let Some((owner, other)) = clash {
            let message = format!("`ports` {ports} and those of {owner}, {other}, overlap; move one of them");
            report.error(root.at(&["pool", &pool.name, "provision", "ports"]), message);
        }
        taken.push((format!("pool `{}`", pool.name), ports));
    }
}

/// Two pools must not scale one Deployment.
pub(super) fn check_deployments(pools: &[Pool], root: Node<'_>, report: &mut Report) {
    let mut taken: Vec<(&Pool, (&Option<String>, &String))> = Vec::new();
    for pool in pools {
        let Some(provision) = &pool.provision else { continue };
        let Some(deployment) = &provision.deployment else { continue };
        let own = (&provision.namespace, deployment);
        if let Some((owner, _)) = taken.iter().find(|(_, other)| *other == own) {
            let message = format!(
                "`deployment` \"{deployment}\" is that of pool `{}`; each needs one of its own",
                owner.name
            );
            report.error(root.at(&["pool", &pool.name, "provision", "deployment"]), message);
        }
        taken.push((pool, own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ports_read_and_print() {
        for (text, first, count) in [("9101-9120", 9101, 20), ("80", 80, 1), ("1 - 65535", 1, 65535)] {
            let ports: Ports = text.parse().unwrap();
            assert_eq!((ports.first, ports.count(), ports.iter().count()), (first, count, count as usize));
            assert_eq!(ports.to_string().parse::<Ports>(), Ok(ports));
        }
        for bad in ["", "-", "0-5", "5-1", "1-70000", "a-b", "1-2-3"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }

    #[test]
    fn objects_are_named_as_dns_would_have_it() {
        for good in ["shop", "shop-2", "a.b-c.9", &"x".repeat(253)] {
            assert!(is_object_name(good), "{good}");
        }
        for bad in ["", "Shop", "../x", "a/b", "-a", "a-", "a..b", "a b", "a?b", &"x".repeat(254)] {
            assert!(!is_object_name(bad), "{bad}");
        }
    }

    #[test]
    fn placeholders_are_names_in_braces() {
        let names = |word| placeholders(word).collect::<Vec<_>>();
        assert_eq!(names("127.0.0.1:{port}{prot}"), ["port", "prot"]);
        assert!(names("{\"a\": {}} { port } {").is_empty());
    }
}
