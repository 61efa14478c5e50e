use std::path::Path;
use std::sync::Arc;

use plimsoll_core::config;

use super::*;
use crate::reload::Reloads;

const SHADOW: &str = "[sentry]\nmax_connections = 7\n[pool.p]\nservers = [\"127.0.0.1:1\"]\n\
    admission = { mode = \"shadow\" }\npolicing = { policy = \"auto\" }\n[class.default]\nslo = { p50 = \"18ms\" }\n";

fn admin() -> Admin {
    admin_of(SHADOW)
}

fn admin_of(text: &str) -> Admin {
    let config = config::parse::<config::Config>(text, "test").unwrap().0;
    let shared = Arc::new(Shared::new(config, 1, None).unwrap());
    Admin::new(shared, Arc::<Reloads>::default(), 0, true)
}

#[test]
fn what_a_shadow_lets_in_against_its_verdict_is_admitted() {
    let admin = admin();
    let shared = Arc::clone(&admin.shared);
    let routing = shared.routing().load();
    let counters = routing.classes[0].stats.shard(0);
    counters.granted(Grant::Estimate).add(4);
    counters.would_refuse(Mechanism::Codel).add(3);
    counters.gone.bump();
    let text = render(&admin);
    for line in [
        "plimsoll_requests_admitted_total{pool=\"p\",class=\"default\",grant=\"estimate\"} 4",
        "plimsoll_requests_admitted_total{pool=\"p\",class=\"default\",grant=\"shadow\"} 3",
        "plimsoll_requests_would_refuse_total{pool=\"p\",class=\"default\",reason=\"codel\"} 3",
        "plimsoll_requests_gone_total{pool=\"p\",class=\"default\"} 1",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn connections_are_shown_beside_their_limit() {
    let admin = admin();
    let limits = &admin.shared.routing().load().config.sentry;
    let place = admin.shared.connect([127, 0, 0, 1].into(), limits).unwrap();
    let shows = |line: &str| render(&admin).lines().any(|l| l == line);
    assert!(shows("plimsoll_connections_open 1.0") && shows("plimsoll_connections_limit 7.0"));
    drop(place);
    assert!(shows("plimsoll_connections_open 0.0"));
}

#[test]
fn the_policer_at_work_is_shown_where_there_is_one() {
    let shown = |policing: &str| {
        let policing = format!("policing = {{ {policing} }}");
        let admin = admin_of(&SHADOW.replace("policing = { policy = \"auto\" }", &policing));
        let text = render(&admin);
        let lines = text.lines().filter_map(|line| line.strip_prefix("plimsoll_policer{pool=\"p\",policer="));
        (
            super::super::views::overview(&admin, 0).pools[0].policer.clone(),
            lines.collect::<Vec<_>>().join(" "),
        )
    };
    let at_work = |word: &str, lines: &str| (Some(word.to_owned()), lines.to_owned());
    let batch = at_work("batch", "\"batch\"} 1.0 \"threshold\"} 0.0");
    assert_eq!((shown("policy = \"auto\""), shown("policy = \"batch\"")), (batch.clone(), batch));
    let threshold = at_work("threshold", "\"batch\"} 0.0 \"threshold\"} 1.0");
    assert_eq!(shown("policy = \"threshold\""), threshold);
    let none = (None, String::new());
    assert_eq!(
        (shown("policy = \"off\""), shown("mode = \"off\", policy = \"batch\"")),
        (none.clone(), none)
    );
}

#[test]
fn the_manual_names_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let manual = std::fs::read_to_string(path).unwrap();
    let text = render(&admin());
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names = types.map(|(name, kind)| match kind {
        "counter" => format!("`{name}_total`"),
        _ => format!("`{name}`"),
    });
    let missing: Vec<String> = names.filter(|name| !manual.contains(name)).collect();
    assert!(text.contains("plimsoll_requests_offered_total") && missing.is_empty(), "{missing:?}");
}
