//! A node that gives answers as the products' documents have them.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_core::config::{self, Config, parse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::figures::tests::answer;
use super::*;
use crate::server::conformance::on_one_thread;
use crate::server::lies::{are_borne, lied};

mod front;
mod real;

const OPENSEARCH: &str = r#"{"name":"n","version":{"distribution":"opensearch","number":"3.8.0"}}"#;
const ELASTICSEARCH: &str = r#"{"name":"n","version":{"number":"7.10.2","build_flavor":"oss"}}"#;
const NODES: &str = r#"{"nodes":{"n1":{"os":{"allocated_processors":2},"process":{"id":0},"jvm":{"start_time_in_millis":1700000000500,"gc_collectors":["Copy","MarkSweepCompact"]}}}}"#;
const NO_SUCH_TASK: &str = r#"{"node_failures":[{"type":"failed_node_exception","caused_by":{"type":"resource_not_found_exception"}}]}"#;
const SEARCHES: &str = r#"{"tasks":[
    {"id":7,"action":"indices:data/read/search","start_time_in_millis":1700000000500,"running_time_in_nanos":500000000,"cancellable":true},
    {"id":8,"action":"indices:data/read/search[phase/query]","start_time_in_millis":1700000000500,
     "running_time_in_nanos":499000000,"cancellable":true,"parent_task_id":"n1:7",
     "resource_stats":{"total":{"cpu_time_in_nanos":310000000,"memory_in_bytes":4096}}},
    {"id":9,"action":"indices:admin/forcemerge","start_time_in_millis":1700000000000,"running_time_in_nanos":1,"cancellable":false}]}"#;

/// What a node answers to whom asks for what begins so: status and body.
pub(super) type Answers = Rc<RefCell<Vec<(&'static str, u16, String)>>>;

/// A node; within a [`tokio::task::LocalSet`].
pub(super) async fn node(answers: &[(&'static str, u16, &str)]) -> (Target, Answers) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target =
        Target::read(&format!("http://watcher:hush@{}", listener.local_addr().unwrap()), 9_200, None)
            .unwrap();
    let answers = answers.iter().map(|&(path, status, body)| (path, status, body.to_owned())).collect();
    let answers: Answers = Rc::new(RefCell::new(answers));
    let given = Rc::clone(&answers);
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(serve(stream, Rc::clone(&given)));
        }
    });
    (target, answers)
}

async fn serve(mut stream: TcpStream, answers: Answers) {
    let mut asked = Vec::new();
    while stream.read_buf(&mut asked).await.is_ok_and(|read| read > 0) {
        if !asked.ends_with(b"\r\n\r\n") {
            continue;
        }
        let request = String::from_utf8(std::mem::take(&mut asked)).unwrap();
        assert!(request.contains("authorization: Basic d2F0Y2hlcjpodXNo\r\n"), "{request}");
        let path = request.split(' ').nth(1).unwrap();
        let answer = {
            let said = answers.borrow();
            let found = said.iter().find(|(wanted, ..)| path.starts_with(wanted));
            let (_, status, body) = found.unwrap_or_else(|| panic!("nobody answers to {path}"));
            format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn healthy() -> Vec<(&'static str, u16, &'static str)> {
    vec![
        ("/_nodes/_local/os", 200, NODES),
        ("/_tasks/n1:0/_cancel", 200, NO_SUCH_TASK),
        ("/_tasks?", 200, SEARCHES),
        ("/_tasks/n1:7/_cancel", 200, r#"{"nodes":{"n1":{"tasks":{"n1:7":{"cancelled":true}}}}}"#),
        ("/_tasks/n1:6/_cancel", 404, NO_SUCH_TASK),
        ("/_tasks/n1:5/_cancel", 200, NO_SUCH_TASK),
        (
            "/_tasks/n1:7?",
            200,
            r#"{"task":{"action":"indices:data/read/search","description":"indices[a], source[{\"size\":1}]","headers":{}}}"#,
        ),
    ]
}

const GLANCE: Glance = Glance { now: Nanos::ZERO, since: Stamp::EARLIEST, suspicious: false };

#[test]
fn a_look_shows_who_runs_and_what_it_has() {
    on_one_thread(async {
        let (target, answers) = node(&healthy()).await;
        answers.borrow_mut().push(("/_nodes/_local/stats", 200, answer(1_000, 100, 5_000, 0)));
        answers.borrow_mut().push(("/", 200, OPENSEARCH.to_owned()));
        let mut node = OpenSearch::connect(&target, Nanos::ZERO).await.unwrap();
        assert!(node.warnings(true).is_empty());
        node.look(GLANCE).await.unwrap();
        let of_stats = |it: &&mut (&'static str, u16, String)| it.0 == "/_nodes/_local/stats";
        answers.borrow_mut().iter_mut().find(of_stats).unwrap().2 = answer(1_100, 120, 5_000, 0);
        let seen = node.look(GLANCE).await.unwrap();
        assert_eq!((seen.requests, seen.moved), (120 + 10 + 5, 20));
        let mut backends = seen.backends;
        backends.sort_by_key(|backend| backend.pid);
        assert_eq!(
            backends.iter().map(|b| (b.pid, b.is_client())).collect::<Vec<_>>(),
            [(7, true), (9, false)]
        );
        assert_eq!(seen.at.since_ns(backends[0].since()), 600_000_000);
        assert_eq!(node.untouchable(&backends[0]), None);
        let why = node.untouchable(&backends[1]).unwrap();
        assert_eq!(why, "the server cannot cancel indices:admin/forcemerge");
        let threads = seen.measured.iter().find(|measured| measured.name == "search threads").unwrap();
        assert_eq!((threads.resource.capacity, threads.uses[0].0, threads.uses[0].1.held), (4, 7, 1));
        let told = node.told(&[&backends[0]]).await;
        assert_eq!(told[&7].statement.as_deref(), Some("data/read/search: indices[a] {\"size\":?}"));
        let mut end = async |pid| node.end(&Backend { pid, ..backends[0].clone() }, false).await;
        assert_eq!(end(7).await, Ok(Some(true)));
        assert_eq!((end(6).await, end(5).await), (Ok(None), Ok(None)), "gone, as either product says it");
    });
}

#[test]
fn a_right_that_is_missing_is_named() {
    on_one_thread(async {
        let mut answers = healthy();
        answers[1] = ("/_tasks/n1:0/_cancel", 403, "{}");
        answers[2] = ("/_tasks?", 403, r#"{"error":{"type":"security_exception","reason":"hush"}}"#);
        let stats = answer(1_000, 100, 5_000, 0);
        answers.push(("/_nodes/_local/stats", 200, &stats));
        answers.push(("/", 200, ELASTICSEARCH));
        let (target, answers) = node(&answers).await;
        let mut node = Elasticsearch::connect(&target, Nanos::ZERO).await.unwrap();
        let warnings = node.warnings(true);
        assert!(warnings[0].contains("user watcher") && warnings[0].contains("cluster:admin/tasks/cancel"));
        assert!(node.warnings(true).is_empty(), "told once");
        let error = node.look(GLANCE).await.unwrap_err();
        assert!(error.contains("user watcher may not ask for /_tasks") && !error.contains("hush"), "{error}");
        for (status, body, said) in [
            (401, "{}", "does not take watcher and that password"),
            (
                503,
                r#"{"error":{"type":"master_not_discovered_exception","reason":"hush"}}"#,
                "503 to /_tasks: master_not",
            ),
            (200, "{\"tasks\":7}", "makes no sense"),
        ] {
            answers.borrow_mut()[2] = ("/_tasks?", status, body.to_owned());
            let mut node = Elasticsearch::connect(&target, Nanos::ZERO).await.unwrap();
            let error = node.look(GLANCE).await.unwrap_err();
            assert!(error.contains(said) && !error.contains("hush"), "{error}");
        }
    });
}

#[test]
fn whatever_a_node_says_is_borne() {
    on_one_thread(async {
        let (target, answers) = node(&healthy()).await;
        answers.borrow_mut().push(("/_nodes/_local/stats", 200, String::new()));
        answers.borrow_mut().push(("/", 200, OPENSEARCH.to_owned()));
        let mut looks = 0_i64;
        are_borne::<OpenSearch>(
            settings::<OpenSearch>(&format!("watcher:hush@{}", target.address()), ""),
            |rng| {
                looks += 1;
                let stats = answer(100 * looks, 20 * looks as u64, 120 * looks, looks as u64);
                let mut say = |path: &str, truth: &str| {
                    let truth: Value = serde_json::from_str(truth).unwrap();
                    let mut answers = answers.borrow_mut();
                    let said = answers.iter_mut().find(|(begins, ..)| *begins == path).unwrap();
                    said.2 = lied(&truth, rng).to_string();
                };
                say("/_nodes/_local/stats", &stats);
                say("/_tasks?", SEARCHES);
            },
        )
        .await;
    });
}

#[test]
fn another_product_is_told_its_table() {
    let [opensearch, elasticsearch] =
        [OPENSEARCH, ELASTICSEARCH].map(|text| serde_json::from_str(text).unwrap());
    assert_eq!(version(&opensearch, false).unwrap(), "OpenSearch 3.8.0");
    assert_eq!(version(&elasticsearch, true).unwrap(), "Elasticsearch 7.10.2");
    let error = version(&elasticsearch, false).unwrap_err();
    assert_eq!(
        error,
        "this is Elasticsearch 7.10.2; write [elasticsearch.NAME] instead of [opensearch.NAME]"
    );
    assert!(version(&opensearch, true).unwrap_err().contains("write [opensearch.NAME]"));
    let old = serde_json::json!({ "version": { "number": "6.8.23" } });
    assert!(version(&old, true).unwrap_err().contains("7.10 is the oldest"));
    assert!(version(&Value::Null, true).unwrap_err().contains("neither"));
}

#[test]
fn a_node_says_who_it_is_and_which_process() {
    let node = about(&serde_json::from_str(NODES).unwrap()).unwrap();
    let process = Some((0, 1_700_000_000.5));
    assert_eq!(node, About { node: "n1".to_owned(), processors: 2, process, serial: true });
    let silent = about(&serde_json::json!({ "nodes": { "n2": {} } })).unwrap();
    assert_eq!(silent, About { node: "n2".to_owned(), processors: 1, process: None, serial: false });
    assert!(about(&Value::Null).is_err());
}

fn settings<A: Adapter>(at: &str, more: &str) -> config::Database {
    let text = format!("[{}.main]\nurl = \"http://{at}\"\nslo = {{ p99 = \"250ms\" }}\n{more}", A::SOURCE);
    parse::<Config>(&text, "").unwrap_or_else(|e| panic!("{e}")).0.databases.remove(0)
}
