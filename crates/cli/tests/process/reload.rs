//! Going over to another config under load.

use crate::harness::{Connection, Load, Sentry, Upstream, get, wait_for};
use crate::pool;

#[test]
fn a_reload_loses_no_request_whether_the_file_is_good_or_bad() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let sentry = Sentry::start(&pool(&first, 8));
    let load = Load::start(sentry.address, 8, "/1");
    load.more(200);
    assert_eq!(second.peak(), 0);

    sentry.rewrite(&pool(&second, 8));
    sentry.signal("-HUP");
    sentry.log("msg=reloaded", 1);
    load.more(200);
    assert!(second.peak() > 0, "the new config is in use");

    sentry.rewrite("threads = \"many\"\n[pool.test]\nservers = []\n");
    sentry.signal("-HUP");
    let line = sentry.log("msg=\"config is wrong\"", 1);
    assert!(line.contains(":4:11"), "{line}");
    sentry.log("msg=\"not reloaded; the running config stays\"", 1);
    load.more(200);

    sentry.rewrite(&pool(&first, 4));
    sentry.signal("-HUP");
    sentry.log("msg=reloaded", 2);
    load.more(200);
    load.stop();
    let metrics = get(sentry.admin, "/metrics").unwrap().body;
    assert!(metrics.contains("plimsoll_reloads_total{result=\"done\"} 2"), "{metrics}");
    assert!(metrics.contains("plimsoll_reloads_total{result=\"failed\"} 1"), "{metrics}");
}

#[test]
fn a_changed_file_is_noticed_without_a_signal() {
    let (first, second) = (Upstream::start(), Upstream::start());
    let sentry = Sentry::start(&pool(&first, 8));
    assert_eq!(get(sentry.address, "/0").unwrap().status, 200);
    sentry.rewrite(&pool(&second, 8));
    sentry.log("msg=reloaded", 1);
    assert_eq!(get(sentry.address, "/0").unwrap().status, 200);
    assert_eq!(second.peak(), 1);
}

#[test]
fn a_pool_that_changes_leaves_the_slots_alone_that_its_requests_use() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 2));
    let mut slow: Vec<_> = (0..2).map(|_| Connection::open(sentry.address).unwrap()).collect();
    slow.iter_mut().for_each(|connection| connection.send("/800", "").unwrap());
    wait_for("the slots to be taken", || upstream.at_once() == 2);
    sentry.rewrite(&pool(&upstream, 2).replace("workers = 2", "workers = 2\nmax_queue = 99"));
    sentry.signal("-HUP");
    sentry.log("msg=reloaded", 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(get(sentry.address, "/20").unwrap().status, 200));
        }
    });
    slow.iter_mut().for_each(|connection| assert_eq!(connection.receive().unwrap().status, 200));
    assert_eq!(upstream.peak(), 2, "the server never saw more than its two workers");
}

#[test]
fn what_lies_with_the_parent_is_said_to_need_an_upgrade() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 8));
    sentry.rewrite(&pool(&upstream, 8).replace("threads = 2", "threads = 3"));
    let line = sentry.log("takes effect at the next upgrade", 1);
    assert!(line.contains("what=threads"), "{line}");
    sentry.signal("-USR2");
    sentry.log("msg=\"worker ready\"", 2);
    assert_eq!(get(sentry.address, "/0").unwrap().status, 200);
}
