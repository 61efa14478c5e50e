//! The file of all roles: names become indices, and contradictions between tables become errors.

use std::net::IpAddr;

use super::Mode;
use super::agent::{
    Agent, App, AppTable, Database, DatabaseTables, HttpdTable, MariaDbTable, PhpFpmTable, PostgresTable,
    SearchTable,
};
use super::class::{Class, ClassTable, Match};
use super::controller::Controller;
use super::etcd::{EtcdGuard, EtcdTable};
use super::herald::Herald;
use super::objective::SloRef;
use super::pool::{Pool, Workers};
use super::report::{Report, Span};
use super::sentry::Sentry;
use super::suggest::{did_you_mean, one_of};
use super::table::{literal, table};
use super::value::{Derived, Node, Tables};
use super::{Policy, WaitLimit, agent, controller, etcd, provision};
use crate::{MAX_CLASSES, Slo};

/// Most matches of all classes together; each is held against all before it.
const MAX_MATCHES: usize = 1024;

table! {
    /// The file of all roles.
    pub struct ConfigFile {
        /// The gateway: where it listens, what it holds its clients to, whom it trusts.
        sentry: Sentry = {},
        /// The controller: which sentries it reads, and how many servers and sentries it may have.
        controller: Controller = {},
        /// Servers that do the same work, behind one queue. At least one pool, unless the file is for the agent alone.
        pool: Tables<Pool>,
        /// Objectives with a name, for classes that share one.
        slo: Tables<Slo>,
        /// Classes of requests: what an objective, a share and a refusal are counted by.
        class: Tables<ClassTable>,
        /// The agent: finds the task that holds up all others, and cancels that one.
        agent: Agent = {},
        /// The herald of the agent: reads how long every thread of the host ran and waited, and tells who is about to be short of CPU.
        herald: Herald = {},
        /// Applications that keep a ledger through an SDK; NAME is what they call themselves.
        app: Tables<AppTable>,
        /// PostgreSQL servers, 15 or newer, as they are.
        postgres: Tables<PostgresTable>,
        /// MariaDB servers, 10.6 or newer, as they are.
        mariadb: Tables<MariaDbTable>,
        /// Nodes of OpenSearch, 2 or newer, as they are.
        opensearch: Tables<SearchTable>,
        /// Nodes of Elasticsearch, 7.10 or newer, as they are.
        elasticsearch: Tables<SearchTable>,
        /// Solrs, 9.1 or newer, behind a pool of the sentry; those that see to it that their queries can be cancelled, also without.
        solr: Tables<SearchTable>,
        /// Pools of php-fpm, 8.0 or newer, as they are.
        phpfpm: Tables<PhpFpmTable>,
        /// Apache httpds, 2.4, with our module.
        httpd: Tables<HttpdTable>,
        /// Etcds, 3.4 or newer, behind pools of the sentry.
        etcd: Tables<EtcdTable>,
    }
}

/// The file of all roles, with every name resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The gateway.
    pub sentry: Sentry,
    /// Who sizes the pools.
    pub controller: Controller,
    /// In the order of the file; none where it is for the agent alone.
    pub pools: Vec<Pool>,
    /// In the order of the file, `default` last; the index is the [`ClassId`](crate::ClassId). None without a pool.
    pub classes: Vec<Class>,
    /// Who cancels.
    pub agent: Agent,
    /// Who tells which threads are short of CPU.
    pub herald: Herald,
    /// Applications with ledgers, in the order of the file.
    pub apps: Vec<App>,
    /// Database servers, those of each kind in the order of the file.
    pub databases: Vec<Database>,
    /// Etcds behind pools, in the order of the file.
    pub etcds: Vec<EtcdGuard>,
}

impl Derived for Config {
    type Written = ConfigFile;

    fn derive(file: ConfigFile, root: Node<'_>, report: &mut Report) -> Option<Config> {
        let named = |(name, pool)| Pool { name, ..pool };
        let pools: Vec<Pool> = file.pool.0.into_iter().map(named).collect();
        let tables = DatabaseTables {
            postgres: file.postgres.0,
            mariadb: file.mariadb.0,
            opensearch: file.opensearch.0,
            elasticsearch: file.elasticsearch.0,
            solr: file.solr.0,
            phpfpm: file.phpfpm.0,
            httpd: file.httpd.0,
        };
        let has_herald = root.value.get_ref().get("herald").is_some();
        let for_agent = has_herald || !file.app.0.is_empty() || !tables.is_empty();
        if pools.is_empty() && (!for_agent || !file.class.0.is_empty()) {
            let span = if for_agent { root.at(&["class"]) } else { root.span() };
            report.error(span, "there is no pool; add [pool.NAME] with servers = [\"127.0.0.1:9001\"]");
            return None;
        }
        check_sentry(&file.sentry, root, report);
        agent::check(&file.agent, root, report);
        let apps = agent::apps(file.app.0, &file.slo.0, &pools, root, report);
        let databases = agent::databases(tables, &file.sentry, &file.slo.0, &pools, root, report);
        let etcds = etcd::guards(file.etcd.0, &file.slo.0, &pools, root, report);
        let classes = match pools.is_empty() {
            true => Vec::new(),
            false => resolve_classes(file.class.0, &file.slo.0, &pools, root, report)?,
        };
        check_matches(&classes, root, report);
        if file.controller.rates.is_none() {
            for class in classes.iter().filter(|class| class.max_rate.is_some()) {
                let span = root.at(&["class", &class.name, "max_rate"]);
                report.warn(span, "nobody keeps this without [controller.rates]; add that table");
            }
        }
        for (index, pool) in pools.iter().enumerate() {
            check_pool(index, pool, &classes, root, report);
            check_promises(index, pool, &classes, root, report);
        }
        controller::check(&file.controller, &pools, root, report);
        provision::check_ports(&pools, file.controller.sentry_ports, root, report);
        provision::check_deployments(&pools, root, report);
        let ConfigFile { sentry, controller, agent, herald, .. } = file;
        let (apps, databases, etcds) = (apps?, databases?, etcds?);
        let mut pools = pools;
        etcd::widen(&mut pools, &etcds);
        Some(Config { sentry, controller, pools, classes, agent, herald, apps, databases, etcds })
    }
}

fn check_sentry(sentry: &Sentry, root: Node<'_>, report: &mut Report) {
    if !sentry.admin.ip().is_loopback() && sentry.admin_token.is_none() {
        let message = "`admin` is open to the network; add admin_token, or write admin = \"127.0.0.1:9900\"";
        report.error(root.at(&["sentry", "admin"]), message);
    }
    if let Some(rates) = &sentry.rates {
        super::sentry::check_rates(rates, root, report);
    }
    for (i, listen) in sentry.listen.0.iter().enumerate() {
        if sentry.listen.0[..i].contains(listen) {
            report.error(
                root.at(&["sentry", "listen"]),
                format!("`listen` has {listen} twice; remove one of them"),
            );
        }
        let admin = sentry.admin;
        let overlap = takes(listen.ip(), admin.ip()) || takes(admin.ip(), listen.ip());
        if listen.port() != 0 && listen.port() == admin.port() && overlap {
            let span =
                ["admin", "listen"].map(|key| root.at(&["sentry", key])).into_iter().max_by_key(|s| s.start);
            let message =
                format!("`listen` {listen} and `admin` {admin} clash; give one of them another port");
            report.error(span.unwrap_or_default(), message);
        }
    }
}

/// Whether listening on `a` takes the ports of `b` as well; the IPv6 wildcard takes those of IPv4.
fn takes(a: IpAddr, b: IpAddr) -> bool {
    a == b || a.is_unspecified() && (a.is_ipv6() || b.is_ipv4())
}

fn check_pool(index: usize, pool: &Pool, classes: &[Class], root: Node<'_>, report: &mut Report) {
    let at = |path: &[&str]| root.at(&[&["pool", &pool.name], path].concat());
    if pool.servers.is_empty() && pool.provision.is_none() {
        let written = root.find(&["pool", &pool.name]).get_ref().get("servers").is_some();
        let wrong = if written { "empty; write" } else { "missing; add" };
        let message = format!("`servers` is {wrong} for example servers = [\"127.0.0.1:9001\"]");
        report.error(at(&["servers"]), message);
    }
    provision::check(pool, root, report);
    if let Some(twice) = (1..pool.servers.len()).find(|&i| pool.servers[..i].contains(&pool.servers[i])) {
        let span =
            root.find(&["pool", &pool.name, "servers"]).get_ref().get(twice).map(|server| server.span());
        let message = format!("server {} is there twice; remove one of them", pool.servers[twice]);
        report.error(span.unwrap_or_else(|| at(&["servers"])), message);
    }
    let ours: Vec<&str> =
        classes.iter().filter(|class| class.pool == index).map(|class| class.name.as_str()).collect();
    if ours.is_empty() {
        report.warn(
            at(&[]),
            format!("no class is served by pool `{}`; remove it, or name it in a class", pool.name),
        );
    }
    if let Policy::MaxQwt { limit: WaitLimit::PerClass(limits) } = &pool.admission.policy {
        for (name, _) in limits.iter().filter(|(name, _)| !ours.contains(&name.as_str())) {
            let message = format!("no class `{name}` in pool `{}`; {}", pool.name, did_you_mean(name, &ours));
            report.error(at(&["admission", "limit", name]), message);
        }
    }
}

/// Promises that cannot be kept whatever is done, as far as service times were written down.
fn check_promises(index: usize, pool: &Pool, classes: &[Class], root: Node<'_>, report: &mut Report) {
    let known = classes
        .iter()
        .filter(|class| class.pool == index)
        .filter_map(|class| Some((class, class.service_time?)));
    let mut promised = 0.0;
    if pool.policing.mode == Mode::Off {
        let promising = classes.iter().filter(|class| class.pool == index && class.min_rate.is_some());
        for class in promising {
            let span = root.at(&["class", &class.name, "min_rate"]);
            report.warn(span, format!("nobody keeps this while `policing` of pool `{}` has mode = \"off\"; leave the mode out, policy = \"off\" polices nobody and keeps promises", pool.name));
        }
    }
    for (class, service) in known {
        let at = |key: &str| root.at(&["class", &class.name, key]);
        if let Some(mean) = class.slo.mean().filter(|&mean| mean <= service) {
            let name = &class.name;
            report.error(at("slo"), format!("a mean of {mean} cannot be had where serving [class.{name}] takes {service}; write more than that"));
        }
        if let Some(mean) =
            pool.ladder.as_ref().map(|ladder| ladder.owed_at(0.0)).filter(|&mean| mean <= service)
        {
            let message = format!(
                "a mean of {mean} cannot be had where serving [class.{}] takes {service}; write more than that",
                class.name
            );
            report.error(root.at(&["pool", &pool.name, "ladder"]), message);
        }
        let Some(rate) = class.min_rate else { continue };
        promised += rate.per_s * service.as_secs_f64();
        let Workers::Fixed(workers) = pool.workers else { continue };
        // What a promise may need, the controller may start.
        let most = pool.provision.as_ref().map_or(0, |provision| provision.max as usize);
        let slots = f64::from(workers) * pool.servers.len().max(most) as f64;
        if slots > 0.0 && promised > slots {
            let (least, pool) = (promised.ceil(), &pool.name);
            report.error(at("min_rate"), format!("the promised rates of pool `{pool}` keep {least} workers busy up to here, and it has {slots}; promise less, or add servers"));
            return;
        }
    }
}

fn resolve_classes(
    tables: Vec<(String, ClassTable)>,
    slos: &[(String, Slo)],
    pools: &[Pool],
    root: Node<'_>,
    report: &mut Report,
) -> Option<Vec<Class>> {
    let (default, mut tables): (Vec<_>, Vec<_>) = tables.into_iter().partition(|(name, _)| name == "default");
    if tables.len() >= MAX_CLASSES {
        let (name, _) = &tables[MAX_CLASSES - 1];
        let message = format!("more than {MAX_CLASSES} classes with [class.default]; merge some of them");
        report.error(root.at(&["class", name]), message);
        return None;
    }
    let default = default.into_iter().next();
    tables.push(default.unwrap_or_else(|| ("default".to_owned(), literal("{}"))));
    // Resolved to the end before any is dropped, so that every wrong name is reported.
    let classes: Vec<Option<Class>> = tables
        .into_iter()
        .map(|(name, table)| resolve_class(name, table, slos, pools, root, report))
        .collect();
    classes.into_iter().collect()
}

fn resolve_class(
    name: String,
    table: ClassTable,
    slos: &[(String, Slo)],
    pools: &[Pool],
    root: Node<'_>,
    report: &mut Report,
) -> Option<Class> {
    let at = |key: &str| root.at(&["class", &name, key]);
    match (name.as_str(), table.matches.is_empty()) {
        ("default", false) => {
            report.error(at("match"), "[class.default] takes what no other class does; remove its `match`");
        }
        ("default", true) | (_, false) => {}
        (_, true) => {
            let message =
                format!("[class.{name}] would take no request; add match = [{{ path = \"/{name}\" }}]");
            report.error(at("match"), message);
        }
    }
    let slo = match table.slo {
        None => Some(Slo::default()),
        Some(slo) => objective(slo, slos, at("slo"), report),
    };
    let pool = match (table.pool, pools) {
        (Some(wanted), _) => find("pool", &wanted, pools, |pool| &pool.name, at("pool"), report),
        (None, [_]) => Some(0),
        (None, pools) => {
            let names: Vec<String> = pools.iter().map(|pool| format!("\"{}\"", pool.name)).collect();
            let wanted = format!("write pool = {} in [class.{name}]", one_of(&names));
            // A default class that nobody wrote has no place; what makes it ambiguous has.
            let classes = root.find(&["class"]).get_ref();
            let span = match classes.get(&name) {
                Some(class) => class.span(),
                None => root.at(&["pool", &pools[1].name]),
            };
            report.error(span, format!("class `{name}` could go to several pools; {wanted}"));
            None
        }
    };
    let ClassTable { matches, priority, revenue, min_rate, max_rate, service_time, fair_share, .. } = table;
    if let (Some(min), Some(max)) = (min_rate, max_rate)
        && max < min
    {
        let message =
            format!("at most {max} contradicts the promise of {min}; write max_rate = \"{min}\" or more");
        report.error(at("max_rate"), message);
    }
    Some(Class {
        name,
        matches,
        slo: slo?,
        priority,
        revenue,
        min_rate,
        max_rate,
        service_time,
        pool: pool?,
        fair_share,
    })
}

/// The objective that is written at `span`, in place or by its name.
pub(super) fn objective(slo: SloRef, slos: &[(String, Slo)], span: Span, report: &mut Report) -> Option<Slo> {
    match slo {
        SloRef::Inline(slo) => Some(slo),
        SloRef::Named(wanted) => {
            find("slo", &wanted, slos, |(name, _)| name, span, report).map(|index| slos[index].1.clone())
        }
    }
}

/// The index of the pool that is named at `span`, or of the only one. `of` is the header of the table.
pub(super) fn pool(
    wanted: Option<&str>,
    pools: &[Pool],
    of: &str,
    span: Span,
    report: &mut Report,
) -> Option<usize> {
    match (wanted, pools) {
        (Some(wanted), _) => find("pool", wanted, pools, |pool| &pool.name, span, report),
        (None, [_]) => Some(0),
        (None, pools) => {
            let names: Vec<String> = pools.iter().map(|pool| format!("\"{}\"", pool.name)).collect();
            let wanted = match names.as_slice() {
                [] => format!("add [pool.NAME] with its members, for {of}"),
                names => format!("write pool = {} in {of}", one_of(names)),
            };
            report.error(span, format!("it is not said which pool it is; {wanted}"));
            None
        }
    }
}

/// The index of what a class names.
fn find<T>(
    what: &str,
    wanted: &str,
    known: &[T],
    name: impl Fn(&T) -> &String,
    span: Span,
    report: &mut Report,
) -> Option<usize> {
    let index = known.iter().position(|entry| name(entry) == wanted);
    if index.is_none() {
        let names: Vec<&str> = known.iter().map(|entry| name(entry).as_str()).collect();
        let hint = match names.as_slice() {
            [] => format!("add [{what}.{wanted}]"),
            names => did_you_mean(wanted, names),
        };
        report.error(span, format!("there is no [{what}.{wanted}]; {hint}"));
    }
    index
}

/// What is wrong with single matches, and which can never be reached.
fn check_matches(classes: &[Class], root: Node<'_>, report: &mut Report) {
    let mut before: Vec<(&Class, &Match)> = Vec::new();
    for class in classes {
        let list = root.find(&["class", &class.name, "match"]);
        for (i, each) in class.matches.iter().enumerate() {
            let span = list.get_ref().get(i).unwrap_or(list).span();
            if before.len() == MAX_MATCHES {
                return report.error(
                    span,
                    format!("more than {MAX_MATCHES} matches in all classes; merge some of them"),
                );
            }
            if let Match { method: None, path: None, host: None, header: None, grpc: None } = each {
                report.error(
                    span.clone(),
                    "an empty match takes everything; write for example { path = \"/cart\" }",
                );
            }
            if each.grpc.is_some() && (each.method.is_some() || each.path.is_some()) {
                report.error(span.clone(), "`grpc` stands for method and path; remove those, or it");
            }
            if let Some((taker, _)) = before.iter().find(|(_, earlier)| earlier.covers(each)) {
                let name = &taker.name;
                report.warn(span, match *name == class.name {
                    true => "this never matches: an earlier match of the class takes all of it; remove it".to_owned(),
                    false => format!("this never matches: [class.{name}] takes all of it; move that class below this one"),
                });
            }
            before.push((class, each));
        }
    }
}
