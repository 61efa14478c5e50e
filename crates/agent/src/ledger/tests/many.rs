//! More tasks than anybody has.

use super::*;

const TASKS: usize = 100_000;

#[test]
fn of_a_hundred_thousand_tasks_the_one_that_holds_them_up_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape { resources: 1, lanes: 1, tasks: TASKS as u32 + 1, accounts: TASKS as u32 + 1 };
    let now_ns = clock::now().0;
    let create = Create { app: "shop", shape, ..Create::in_directory(dir.path(), now_ns) };
    let writer = Writer::create(&create).unwrap();
    let table = writer.resource(Kind::Lock, 1, "table").unwrap();
    let begin = |key: u64, label: &str| {
        let started_ns = clock::now().0;
        let flags = CANCELLABLE;
        writer.begin(&Begin { key, flags, label, started_ns, ..Begin::default() }).unwrap()
    };
    let dump = begin(0, "dump");
    writer.account(dump, table).unwrap().get(1, || clock::now().0);
    for key in 1..=TASKS as u64 {
        let task = begin(key, "request");
        writer.account(task, table).unwrap().wait(|| clock::now().0);
    }
    assert_eq!(writer.refused(), (0, 0, 0));
    let events = with_agent(dir.path(), "shadow", async |status| {
        loop {
            if let Some(watched) = status.borrow().watched.values().next()
                && watched.would_cancel > 0
            {
                assert_eq!(watched.tasks, TASKS + 1);
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    let named = events.iter().find(|event| event["event"] == "would_cancel").unwrap();
    assert!(named["task"].as_str().unwrap().contains("dump"), "{named}");
}
