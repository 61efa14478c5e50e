//! A Solr that gives answers as 9.8 does.

use plimsoll_core::config::{Config, parse};
use serde_json::json;

use super::super::tests::node;
use super::*;
use crate::server::conformance::on_one_thread;
use crate::server::lies::{are_borne, lied};

const GLANCE: Glance = Glance { now: Nanos::from_secs(5), since: Stamp::EARLIEST, suspicious: false };
const SYSTEM_SAID: &str = r#"{"mode":"std","lucene":{"solr-spec-version":"9.8.1"},
    "jvm":{"processors":2,"jmx":{"startTime":"2023-11-14T22:13:20.500Z"}}}"#;
const COUNTED: &str = r#"{"metrics":{
    "solr.jvm":{"os.processCpuTime":5000000000,"gc.G1.time":7,"memory.heap.used":1000,"memory.heap.max":1073741824},
    "solr.core.items":{"QUERY./select.requests":20,"QUERY./select.totalTime":80000000}}}"#;
const LISTED: &str = r#"{"responseHeader":{"status":0},"taskList":{"mine 7":"q=user:hush&canCancel=true"}}"#;
const FORBIDDEN: &str = r#"{"error":{"msg":"solr.xml property 'allowUrls' not configured","code":403}}"#;

fn answers() -> Vec<(&'static str, u16, &'static str)> {
    vec![
        ("/solr/admin/info/system", 200, SYSTEM_SAID),
        ("/solr/admin/metrics", 200, COUNTED),
        (
            "/solr/items/tasks/cancel?wt=json&queryUUID=plimsoll%2Dnone&shards=",
            200,
            r#"{"cancellationResult":"not found"}"#,
        ),
        (
            "/solr/items/tasks/cancel?wt=json&queryUUID=mine%207&shards=",
            200,
            r#"{"cancellationResult":"success"}"#,
        ),
        ("/solr/items/tasks/list?wt=json&shards=", 200, LISTED),
    ]
}

#[test]
fn what_clients_have_marked_is_seen_and_can_be_cancelled() {
    on_one_thread(async {
        let (solr, answers) = node(&answers()).await;
        let mut solr = Solr::connect(&Target { solr, sentry: None }, Nanos::ZERO).await.unwrap();
        assert!(solr.warnings(true).is_empty());
        solr.look(GLANCE).await.unwrap();
        let seen = solr.look(Glance { now: Nanos::from_secs(6), ..GLANCE }).await.unwrap();
        assert_eq!((seen.requests, seen.began), (20, Stamp(1_700_000_000_500_000)));
        let [query] = &seen.backends[..] else { panic!("{:?}", seen.backends) };
        assert_eq!(seen.at.since_ns(query.since()), 1_000_000_000, "it was first seen then");
        assert_eq!(solr.untouchable(query), None);
        let told = solr.told(&[query]).await;
        assert_eq!(told[&query.pid].statement.as_deref(), Some("q=user:? canCancel=?"));
        assert_eq!(solr.end(query, false).await, Ok(Some(true)));
        answers.borrow_mut()[3].2 = r#"{"cancellationResult":"not found"}"#.to_owned();
        assert_eq!(solr.end(query, false).await, Ok(None));
    });
}

#[test]
fn a_query_that_passes_the_sentry_began_when_it_was_first_said_to() {
    let listed = |at_us: u64, age_us: u64| {
        let query = json!({ "id": "p-7", "number": 7, "core": "/solr/items", "form": "query", "client": "::1", "age_us": age_us });
        let counts = [("answered", 1), ("took_us", 1), ("served_us", 1), ("slots", 8), ("began_us", 1)];
        let mut said = json!({ "at_us": at_us, "queries": [query] });
        counts.iter().for_each(|&(name, count)| said[name] = json!(count));
        said.to_string()
    };
    on_one_thread(async {
        let (solr, _) = node(&answers()).await;
        let (sentry, said) = node(&[]).await;
        said.borrow_mut().push(("/queries?", 200, listed(1_000_000, 500_000)));
        let target = Target { solr, sentry: Some((sentry, "pool".to_owned())) };
        let mut solr = Solr::connect(&target, Nanos::ZERO).await.unwrap();
        let first = solr.look(GLANCE).await.unwrap();
        said.borrow_mut()[0].2 = listed(1_100_000, 599_999);
        let second = solr.look(GLANCE).await.unwrap();
        assert_eq!(second.backends[0].since(), first.backends[0].since(), "it is no other one");
        assert_eq!(second.at.since_ns(second.backends[0].since()), 600_000_000);
    });
}

#[test]
fn what_it_takes_to_cancel_is_named() {
    on_one_thread(async {
        let mut answers = answers();
        answers[2] = (answers[2].0, 403, FORBIDDEN);
        let (solr, answers) = node(&answers).await;
        let address = solr.address().to_owned();
        let mut solr = Solr::connect(&Target { solr, sentry: None }, Nanos::ZERO).await.unwrap();
        let warnings = solr.warnings(true);
        assert!(warnings[0].contains(&format!("-Dsolr.allowUrls={address}")), "{warnings:?}");
        assert!(solr.warnings(true).is_empty(), "told once");
        let query = super::super::backend(1, Stamp(0), None);
        assert_eq!(solr.untouchable(&query).as_ref(), Some(&warnings[0]));
        // By the same word it lists nothing.
        answers.borrow_mut()[4].1 = 403;
        let error = solr.look(GLANCE).await.unwrap_err();
        assert!(error.contains("does not list") && error.contains("-Dsolr.allowUrls="), "{error}");
    });
}

#[test]
fn an_old_one_and_a_cloud_without_a_sentry_are_told_so() {
    for (system, said) in [
        (r#"{"mode":"std","lucene":{"solr-spec-version":"8.11.2"}}"#, "9.1 is the oldest"),
        (r#"{"mode":"solrcloud","lucene":{"solr-spec-version":"9.8.1"}}"#, "write pool"),
        ("{}", "this is no Solr"),
    ] {
        on_one_thread(async {
            let (solr, _) = node(&[("/solr/admin/info/system", 200, system)]).await;
            let error = Solr::connect(&Target { solr, sentry: None }, Nanos::ZERO).await.err().unwrap();
            assert!(error.contains(said), "{error}");
        });
    }
}

#[test]
fn whatever_a_solr_says_is_borne() {
    on_one_thread(async {
        let (solr, said) = node(&answers()).await;
        let settings = format!(
            "[solr.main]\nurl = \"http://watcher:hush@{}\"\nslo = {{ p99 = \"250ms\" }}\n",
            solr.address()
        );
        let settings = parse::<Config>(&settings, "").unwrap().0.databases.remove(0);
        let truth: Value = serde_json::from_str(COUNTED).unwrap();
        are_borne::<Solr>(settings, |rng| said.borrow_mut()[1].2 = lied(&truth, rng).to_string()).await;
    });
}
