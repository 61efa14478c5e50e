//! Servers and shares that are put through the admin address.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Answer, Connection, Load, Sentry, Upstream, alive, get, kill, put, put_with, wait_for};
use crate::pool;

fn put_servers(sentry: &Sentry, servers: &[&Upstream]) -> Answer {
    let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    put(sentry.admin, "/pools/test/servers", &json!({ "servers": addresses }).to_string())
}

fn pools(sentry: &Sentry) -> Value {
    serde_json::from_str(&get(sentry.admin, "/pools").unwrap().body).unwrap()
}

/// The servers that the sentry says it has, as they were given.
fn servers(sentry: &Sentry) -> Vec<String> {
    let pools = pools(sentry);
    let servers = pools["pools"][0]["servers"].as_array().unwrap();
    servers.iter().map(|s| s["address"].as_str().unwrap().replace("http://", "")).collect()
}

#[test]
fn a_pool_grows_and_shrinks_fifty_times_under_load_and_no_request_fails() {
    let all: Vec<Upstream> = (0..4).map(|_| Upstream::start()).collect();
    let sentry = Sentry::start(&pool(&all[0], 2));
    let load = Load::start(sentry.address, 12, "/3");
    for turn in 0..50 {
        load.more(20);
        // One, three, one other, all four, ...
        let list: Vec<&Upstream> = match turn % 4 {
            0 => all[1..].iter().collect(),
            1 => vec![&all[turn % 3]],
            2 => all.iter().rev().collect(),
            _ => vec![&all[3]],
        };
        let answer = put_servers(&sentry, &list);
        assert_eq!(
            (answer.status, &*answer.body),
            (200, &*format!("{{\"pool\":\"test\",\"servers\":{}}}", list.len()))
        );
        let addresses: Vec<String> = list.iter().map(|server| server.address.to_string()).collect();
        assert_eq!(servers(&sentry), addresses);
    }
    load.more(50);
    eprintln!("{} requests through fifty changes", load.stop());
    let peaks: Vec<u32> = all.iter().map(Upstream::peak).collect();
    assert_eq!(peaks, [2; 4], "each was used, and none had more than its two workers");
    wait_for("the slots of those that left to go with them", || pools(&sentry)["pools"][0]["slots"] == 2);
    assert_eq!(get(sentry.admin, "/metrics").unwrap().body.matches("plimsoll_server_up{").count(), 1);
}

#[test]
fn a_server_that_leaves_finishes_what_it_has_and_gets_nothing_more() {
    let (old, new) = (Upstream::start(), Upstream::start());
    let sentry = Sentry::start(&pool(&old, 1));
    let mut slow = Connection::open(sentry.address).unwrap();
    slow.send("/700", "").unwrap();
    wait_for("the request to arrive", || old.at_once() == 1);
    assert_eq!(put_servers(&sentry, &[&new]).status, 200);
    for _ in 0..5 {
        assert_eq!(get(sentry.address, "/0").unwrap().status, 200, "its slot is not one of the new server's");
    }
    assert_eq!((old.at_once(), old.peak(), new.peak()), (1, 1, 1));
    assert_eq!(slow.receive().unwrap().body, "/700");
}

#[test]
fn what_was_put_survives_a_killed_worker_a_reload_and_an_upgrade() {
    let (configured, put, later) = (Upstream::start(), Upstream::start(), Upstream::start());
    let sentry = Sentry::start(&pool(&configured, 4));
    let is_put = |what: &str| {
        assert_eq!(servers(&sentry), [put.address.to_string()], "{what}");
        assert_eq!(pools(&sentry)["sentry"]["share"], json!({ "part": 1, "of": 2 }), "{what}");
        assert_eq!(get(sentry.address, "/0").unwrap().status, 200, "{what}");
        wait_for("the share to be divided", || pools(&sentry)["pools"][0]["slots"] == 2);
    };
    assert_eq!(put_servers(&sentry, &[&put]).status, 200);
    let share = crate::harness::put(sentry.admin, "/share", "{\"part\":1,\"of\":2}");
    assert_eq!((share.status, &*share.body), (200, "{\"of\":2,\"part\":1}"));
    is_put("at once");

    kill(sentry.worker(1), "-9");
    sentry.log("msg=\"worker ready\"", 2);
    is_put("after a crash");

    sentry.rewrite(&pool(&configured, 4).replace("workers = 4", "workers = 4\nmax_queue = 99"));
    sentry.signal("-HUP");
    sentry.log("msg=reloaded", 1);
    is_put("after a reload");

    let old = sentry.worker(2);
    sentry.signal("-USR2");
    sentry.log("msg=\"worker ready\"", 3);
    wait_for("the old worker to drain", || !alive(old));
    is_put("after an upgrade");
    assert_eq!(configured.peak(), 0);

    sentry.rewrite(&pool(&later, 4));
    sentry.signal("-HUP");
    sentry.log("msg=reloaded", 2);
    assert_eq!(servers(&sentry), [later.address.to_string()], "a config that changes the servers is newer");
    kill(sentry.worker(3), "-9");
    sentry.log("msg=\"worker ready\"", 4);
    assert_eq!(servers(&sentry), [later.address.to_string()]);
}

#[test]
fn an_empty_pool_waits_for_servers_and_refuses_what_cannot() {
    let upstream = Upstream::start();
    let text = pool(&upstream, 8).replace("workers = 8", "workers = 8\nmax_queue = 3");
    let sentry = Sentry::start(&text);
    assert_eq!(put_servers(&sentry, &[]).status, 200);
    let mut late = Connection::open(sentry.address).unwrap();
    late.send("/0", "x-request-deadline-ms: 50\r\n").unwrap();
    let answer = late.receive().unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.head.contains("plimsoll-reason: deadline"), "{answer:?}");

    let mut waiting: Vec<_> = (0..3).map(|_| Connection::open(sentry.address).unwrap()).collect();
    waiting.iter_mut().for_each(|connection| connection.send("/0", "").unwrap());
    wait_for("them to wait", || pools(&sentry)["pools"][0]["queued"] == 3);
    let answer = get(sentry.address, "/0").unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("plimsoll-reason: max-queue"), "{answer:?}");
    assert_eq!((servers(&sentry).len(), upstream.peak()), (0, 0));

    assert_eq!(put_servers(&sentry, &[&upstream]).status, 200);
    waiting.iter_mut().for_each(|connection| assert_eq!(connection.receive().unwrap().status, 200));
}

#[test]
fn what_cannot_be_put_is_said_so_and_changes_nothing() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    let many: Vec<String> = (0..1_025).map(|i| format!("h{i}:1")).collect();
    let many = json!({ "servers": many }).to_string();
    let long = format!("{{\"servers\": [\"{}\"]}}", "x".repeat(600_000));
    for (path, body, status, why) in [
        ("/pools/test/servers", "", 400, "write for example"),
        ("/pools/test/servers", "{\"servers\":\"a:1\"}", 400, "write for example"),
        ("/pools/test/servers", "{\"server\":[\"a:1\"]}", 400, "unknown field"),
        ("/pools/test/servers", "{\"servers\":[\"a:1\",\"http://a:1\"]}", 400, "is there twice"),
        ("/pools/test/servers", "{\"servers\":[\"ftp://a:1\"]}", 400, "is not a server"),
        ("/pools/test/servers", &many, 400, "1025 servers are too many"),
        ("/pools/test/servers", &long, 413, "longer than"),
        ("/pools/tset/servers", "{\"servers\":[\"a:1\"]}", 404, "there is test"),
        ("/share", "{\"part\":2,\"of\":2}", 400, "write a number from 0 to 1"),
        ("/share", "{\"part\":0,\"of\":65}", 400, "write a number from 1 to 64"),
        ("/share", "{\"part\":-1,\"of\":2}", 400, "write for example"),
    ] {
        let answer = put(sentry.admin, path, body);
        let said: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(answer.status, status, "{path} {}: {said}", &body[..body.len().min(50)]);
        assert!(said["error"].as_str().unwrap().contains(why), "{said}");
    }
    assert_eq!(put(sentry.admin, "/pools", "").status, 405);
    assert_eq!(get(sentry.admin, "/share").unwrap().status, 405);
    // What would be right, from a page in somebody's browser.
    for (path, body) in
        [("/share", "{\"part\":1,\"of\":2}"), ("/pools/test/servers", "{\"servers\":[\"127.0.0.1:1\"]}")]
    {
        let answer = put_with(sentry.admin, path, "origin: http://evil.test\r\n", body);
        assert!(answer.status == 403 && answer.body.contains("browser"), "{} {}", answer.status, answer.body);
    }
    assert_eq!(pools(&sentry)["sentry"]["share"]["of"], 1);
    assert_eq!(servers(&sentry), [upstream.address.to_string()]);
    assert_eq!(get(sentry.address, "/0").unwrap().status, 200);
}

#[test]
fn a_controller_reads_what_it_plans_by() {
    let upstream = Upstream::start();
    let text = pool(&upstream, 3).replace(
        "[class.default]",
        "[class.gold]\nmatch = [{ path = \"/5\" }]\npriority = 2\nrevenue = 7.5\n[class.default]",
    );
    let sentry = Sentry::start(&text);
    for _ in 0..8 {
        assert_eq!(get(sentry.address, "/5").unwrap().status, 200);
    }
    wait_for("the times to be learnt", || pools(&sentry)["pools"][0]["classes"][0]["service_mean_ms"] != 0.0);
    let all = pools(&sentry);
    assert_eq!(
        (&all["sentry"]["draining"], &all["sentry"]["share"]),
        (&json!(false), &json!({ "part": 0, "of": 1 }))
    );
    assert!((0.0..1.5).contains(&all["sentry"]["busy"].as_f64().unwrap()), "{all}");
    let pool = &all["pools"][0];
    assert_eq!((&pool["name"], &pool["slots"], &pool["queued"]), (&json!("test"), &json!(3), &json!(0)));
    let server = json!({ "address": format!("http://{}", upstream.address), "up": true, "in_flight": 0 });
    assert_eq!(pool["servers"], json!([server]));
    let gold = &pool["classes"][0];
    for (key, value) in [
        ("name", json!("gold")),
        ("priority", json!(2)),
        ("revenue", json!(7.5)),
        ("min_rate_per_s", json!(0.0)),
        ("offered", json!(8)),
        ("admitted", json!(8)),
        ("refused", json!(0)),
        ("served", json!(8)),
    ] {
        assert_eq!(gold[key], value, "{key}: {gold}");
    }
    assert!(gold["service_mean_ms"].as_f64().unwrap() >= 5.0, "{gold}");
    assert!((0.0..4.0).contains(&gold["service_scv"].as_f64().unwrap()), "{gold}");
}

/// Who is told of a new division waits a second for the others to be told, too.
const TOLD_WITHIN: Duration = Duration::from_millis(900);

#[test]
fn sentries_that_share_a_server_keep_to_its_workers_together() {
    // On a busy machine they may be told too late for what is promised, or one be kept from running for a second when it has been told.
    let peaks: Vec<Option<u32>> = (0..3).map(|_| peak_of_sentries_that_share()).collect();
    assert_eq!(peaks.iter().flatten().min(), Some(&3), "{peaks:?}");
}

/// The most requests that the server had at once; nothing where the sentries were not told in time.
fn peak_of_sentries_that_share() -> Option<u32> {
    let upstream = Upstream::start();
    let config = pool(&upstream, 3);
    let sentries: Vec<_> = (0..2)
        .map(|part| {
            let binary = std::path::Path::new(env!("CARGO_BIN_EXE_plimsoll"));
            Sentry::start_binary(binary, &config, &["--share", &format!("{part}/2")])
        })
        .collect();
    let slots: Vec<Value> = sentries.iter().map(|s| pools(s)["pools"][0]["slots"].clone()).collect();
    assert_eq!(slots, [2, 1]);
    let loads: Vec<_> = sentries.iter().map(|sentry| Load::start(sentry.address, 4, "/2")).collect();
    let mut in_time = true;
    for (part, of) in [(0, 2), (1, 2), (0, 2)] {
        let began = Instant::now();
        // First the one, then the other: in between they have heard different things.
        for (i, sentry) in sentries.iter().enumerate() {
            let share = json!({ "part": (part + i) % of, "of": of });
            assert_eq!(put(sentry.admin, "/share", &share.to_string()).status, 200);
            in_time &= began.elapsed() < TOLD_WITHIN;
            loads[1 - i].more(5);
        }
        let whole =
            || sentries.iter().map(|s| pools(s)["pools"][0]["slots"].as_u64().unwrap()).sum::<u64>() == 3;
        wait_for("all workers to be used", whole);
        loads.iter().for_each(|load| load.more(30));
    }
    loads.into_iter().for_each(|load| _ = load.stop());
    in_time.then(|| upstream.peak())
}
