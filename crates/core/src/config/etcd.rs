//! `[controller.etcd]`: where controllers of several hosts find out which of them leads. `[etcd.NAME]`: an etcd behind the sentry.

use std::path::PathBuf;

use super::address::{Scheme, Server};
use super::admission::Mode;
use super::agent::CancelBudget;
use super::objective::SloRef;
use super::pool::{Pool, Workers};
use super::provision::ProviderKind;
use super::report::Report;
use super::resolve;
use super::sentry::Tls;
use super::table::table;
use super::value::Node;
use crate::{Nanos, Slo};

table! {
    /// The etcd by which controllers of several hosts agree on who leads. Needs a build with the feature `etcd`.
    pub struct Etcd {
        /// Its members, tried in turn: "host:port", "http://host:port" or "https://host:port", all of them alike.
        endpoints: Vec<Server>,
        /// What the names of its keys begin with. Controllers with the same prefix are one another's spares.
        prefix: String = "plimsoll",
        /// What this controller is called at `/plan` of the others. Left out, its host and process.
        name: Option<String>,
        /// How long a leader that is not heard of any more stays the leader; whole seconds, which is what etcd counts in. Shorter than the
        /// three seconds for which sentries keep a rate that nobody renews.
        lease: Nanos ["2s"..="1m"] = "2s",
        /// Who to be there. Left out, nobody, which an etcd without authentication takes.
        user: Option<String>,
        /// A file whose one line is the user's password, read at start.
        password_file: Option<PathBuf>,
        /// Certificates in PEM of those who may have signed etcd's. Left out, those that the system trusts.
        ca: Option<PathBuf>,
        /// Certificate and key to show, where etcd wants to see some.
        tls: Option<Tls>,
    }
}

table! {
    /// An etcd, 3.4 or newer, whose members are the servers of a pool: the sentry in front of them finds the range that holds up all other
    /// requests, and drops it. With `workers = "adaptive"` in the pool a member is sent all that comes. What is no request of the KV service (watches, leases, locks) passes by all that the pool does.
    pub struct EtcdTable {
        /// The pool. Left out, the only one.
        pool: Option<String>,
        /// What its writes and its reads of few keys are promised, or the name of such an objective. Whatever takes longer than that by
        /// itself, as it reads too many keys, has no promise.
        slo: SloRef,
        /// Whether ranges are cancelled, or only named, or neither.
        mode: Mode = "enforce",
        /// How much may be cancelled at most.
        budget: CancelBudget = {},
    }
}

/// An etcd with its objective.
#[derive(Clone, Debug, PartialEq)]
pub struct EtcdGuard {
    /// The NAME in its header.
    pub name: String,
    /// Index of the pool whose servers are its members.
    pub pool: usize,
    /// What its requests are promised.
    pub slo: Slo,
    /// Whether ranges are cancelled, or only named, or neither.
    pub mode: Mode,
    /// How much may be cancelled at most.
    pub budget: CancelBudget,
}

/// The etcds behind pools, with the objectives that they name.
pub(super) fn guards(
    tables: Vec<(String, EtcdTable)>,
    slos: &[(String, Slo)],
    pools: &[Pool],
    root: Node<'_>,
    report: &mut Report,
) -> Option<Vec<EtcdGuard>> {
    let mut guards: Vec<Option<EtcdGuard>> = Vec::new();
    for (name, table) in tables {
        let EtcdTable { pool, slo, mode, budget } = table;
        let at = |key: &str| root.at(&["etcd", &name, key]);
        let slo = resolve::objective(slo, slos, at("slo"), report);
        let pool = resolve::pool(pool.as_deref(), pools, &format!("[etcd.{name}]"), at("pool"), report);
        let same = |guard: &&Option<EtcdGuard>| guard.as_ref().is_some_and(|guard| Some(guard.pool) == pool);
        if let Some(Some(other)) = guards.iter().find(same) {
            let message = format!("[etcd.{}] has that pool already; remove one of them", other.name);
            report.error(root.at(&["etcd", &name]), message);
        }
        guards.push(slo.zip(pool).map(|(slo, pool)| EtcdGuard { name, pool, slo, mode, budget }));
    }
    // Resolved to the end before any is dropped, so that every wrong name is reported.
    guards.into_iter().collect()
}

/// Requests that a member is sent at once where its pool does not say how many: as good as all that come. Who waited for a place here, behind
/// ranges that have all of them, could not be seen to wait for etcd.
const AT_ONCE: u32 = 4_096;

/// Pools whose servers are members of an etcd.
pub(super) fn widen(pools: &mut [Pool], guards: &[EtcdGuard]) {
    for guard in guards {
        let workers = &mut pools[guard.pool].workers;
        if *workers == Workers::Adaptive {
            *workers = Workers::Fixed(AT_ONCE);
        }
    }
}

/// What is wrong with `[controller.etcd]`, alone and beside what the controller starts.
pub(super) fn check(etcd: &Etcd, starts_sentries: bool, pools: &[Pool], root: Node<'_>, report: &mut Report) {
    let at = |key: &str| root.at(&["controller", "etcd", key]);
    let is_tls = etcd.endpoints.iter().any(|endpoint| endpoint.scheme == Scheme::Https);
    if etcd.endpoints.is_empty() {
        let message = "`endpoints` is empty; write for example endpoints = [\"http://127.0.0.1:2379\"]";
        report.error(at("endpoints"), message);
    } else if is_tls && etcd.endpoints.iter().any(|endpoint| endpoint.scheme == Scheme::Http) {
        let message = "some endpoints are spoken to over TLS and some in the clear; write https:// before all of them, or before none";
        report.error(at("endpoints"), message);
    } else if !is_tls {
        let written = [("ca", etcd.ca.is_some()), ("tls", etcd.tls.is_some())];
        for (key, _) in written.into_iter().filter(|(_, is_written)| *is_written) {
            let message = format!("`{key}` means nothing in the clear; write https:// before the endpoints");
            report.error(at(key), message);
        }
    }
    let is_name = |text: &str| !text.is_empty() && text.len() <= 128 && !text.contains(char::is_control);
    for (key, text) in
        [("prefix", Some(&etcd.prefix)), ("name", etcd.name.as_ref()), ("user", etcd.user.as_ref())]
    {
        if text.is_some_and(|text| !is_name(text)) {
            report.error(at(key), "write 1 to 128 bytes without control characters");
        }
    }
    match (&etcd.user, &etcd.password_file) {
        (Some(_), None) => {
            report.error(at("user"), "`user` lacks a password; add password_file, the file that has it")
        }
        (None, Some(_)) => report.error(at("password_file"), "`password_file` lacks a user; add user"),
        _ => {}
    }
    let is_process = |pool: &Pool| {
        pool.provision.as_ref().is_some_and(|provision| provision.provider == ProviderKind::Process)
    };
    if pools.iter().any(is_process) || starts_sentries {
        let message = "processes are started on the host of whoever leads, and a leader on another host neither sees nor ends them; use \
                       provider = \"kubernetes\", or keep all controllers on one host";
        report.warn(root.at(&["controller", "etcd"]), message);
    }
}
