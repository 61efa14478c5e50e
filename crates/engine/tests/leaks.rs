//! What is left of an engine that has ended: nothing. Alone in its process, whose descriptors and threads it counts.

use std::fs;
use std::thread::park_timeout;
use std::time::Duration;

use plimsoll_engine::Engine;
use plimsoll_sdk::App;

/// Open descriptors, but for the bell of an application, which the SDK keeps for as long as the process lives.
fn descriptors() -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = open.map(|open| fs::read_link(open.path()).unwrap_or_default());
    names.filter(|name| name.to_str() != Some("anon_inode:[eventfd]")).count()
}

/// Those that live. One that was joined has begun to exit, and the kernel lists it for a moment longer.
fn threads_of_the_engine() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    stats.filter(|stat| is_of_the_engine(stat)).count()
}

/// A line of `/proc/PID/task/TID/stat`: its name is in brackets, its flags are the seventh field behind it.
fn is_of_the_engine(stat: &str) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 0x4;
    let Some((front, fields)) = stat.rsplit_once(") ") else { return false };
    let is_named = ["(plimsoll-engine", "(plimsoll-events"].iter().any(|name| front.ends_with(name));
    let flags: u64 = fields.split(' ').nth(6).and_then(|flags| flags.parse().ok()).unwrap();
    is_named && flags & EXITING == 0
}

fn until(mut good: impl FnMut() -> bool) -> bool {
    (0..60_000).any(|_| {
        park_timeout(Duration::from_millis(1));
        good()
    })
}

#[test]
fn nothing_is_left_of_an_engine_that_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[app.shop]\nslo = { p99 = \"50ms\" }";
    let events = dir.path().join("events.jsonl");
    let before = descriptors();
    for _ in 0..8 {
        let engine = Engine::of_config(config, "shop").unwrap().events(&events);
        let (app, engine) = engine.open(App::options().directory(dir.path()));
        assert_eq!((app.problem(), engine.problem()), (None, None));
        // A thread gives itself its name.
        assert!(until(|| threads_of_the_engine() == 2));
        drop(engine);
        assert_eq!(threads_of_the_engine(), 0, "its threads have ended when it has");
        app.close();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the events are left");
    }
    // A pair of sockets for signals is tokio's, once a process. The SDK's own thread closes its connection a moment later.
    assert!(until(|| descriptors() <= before + 2), "{} are left", descriptors() - before);
}
