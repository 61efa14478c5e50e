//! What a look finds, and what it makes of what cannot be.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plimsoll_ledger::layout::{self, Kind, Shape, at};
use plimsoll_ledger::{Account, Begin, Create, Ledger, Look, Refusal, TOLD_LATE_NS, TaskRef, Writer};

const SHAPE: Shape = Shape { resources: 4, lanes: 2, tasks: 8, accounts: 16 };
const MS: u64 = 1_000_000;

/// An application and who looks at it.
struct Both {
    _directory: tempfile::TempDir,
    app: Writer,
    ledger: Ledger,
    look: Look,
}

fn both() -> Both {
    let directory = tempfile::tempdir().unwrap();
    let create = Create { app: "app", shape: SHAPE, ..Create::in_directory(directory.path(), 1) };
    let app = Writer::create(&create).unwrap();
    assert_eq!(app.resource(Kind::Lock, 1, "table"), Some(0));
    assert_eq!(app.resource(Kind::Queue, 8, "workers"), Some(1));
    let ledger = Ledger::open(app.path()).unwrap();
    Both { _directory: directory, app, ledger, look: Look::default() }
}

impl Both {
    fn look(&mut self, now_ms: u64) -> &Look {
        self.ledger.look(now_ms * MS, &mut self.look).unwrap();
        &self.look
    }

    fn begin(&self, started_ms: u64) -> TaskRef {
        self.app.begin(&Begin { started_ns: started_ms * MS, label: "t", ..Begin::default() }).unwrap()
    }
}

fn account<'a>(app: &'a Writer, task: TaskRef, resource: u16) -> Account<'a> {
    app.account(task, resource).unwrap()
}

/// Overwrites a word of the file.
fn spoil(path: &Path, at: usize, word: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&word.to_le_bytes(), at as u64).unwrap();
}

fn account_at(index: usize, field: usize) -> usize {
    SHAPE.accounts_at() + layout::ACCOUNT_BYTES * index + field
}

#[test]
fn a_hold_counts_in_every_window_that_it_lasts_through() {
    let mut both = both();
    both.look(9);
    let task = both.begin(10);
    let a = account(&both.app, task, 0);
    a.get(1, || 12 * MS);
    let mut held = Vec::new();
    for now_ms in [20, 30, 40] {
        both.ledger.look(now_ms * MS, &mut both.look).unwrap();
        let found = both.look.uses[0];
        assert_eq!((found.held, found.holding_since_ns, found.waiting), (1, 12 * MS, 0));
        held.push(found.window.hold_ns / MS);
    }
    a.free(1, || 45 * MS);
    both.ledger.look(50 * MS, &mut both.look).unwrap();
    let found = both.look.uses[0];
    held.push(found.window.hold_ns / MS);
    assert_eq!(held, [8, 10, 10, 5]);
    assert_eq!((found.held, found.total.hold_ns, found.total.gets, found.window.gets), (0, 33 * MS, 1, 0));
    let table = both.look.resource(0).unwrap();
    assert_eq!((table.total.hold_ns, table.window.hold_ns, table.window.frees), (33 * MS, 5 * MS, 1));
}

#[test]
fn what_was_before_the_first_look_is_no_window() {
    let mut both = both();
    let task = both.begin(10);
    let a = account(&both.app, task, 0);
    a.get(1, || 11 * MS);
    a.free(1, || 12 * MS);
    a.wait(|| 13 * MS);
    both.app.complete(0, 5 * MS, false);
    let look = both.look(20);
    assert_eq!((look.uses[0].window.gets, look.uses[0].window.wait_ns, look.window.completed), (0, 0, 0));
    assert_eq!((look.uses[0].waiting, look.uses[0].waiting_since_ns), (1, 13 * MS));
    assert_eq!(both.look(21).uses[0].window.wait_ns, MS);
}

#[test]
fn a_delay_that_is_told_when_it_is_over_counts_in_full() {
    let mut both = both();
    both.look(10);
    let task = both.begin(11);
    let a = account(&both.app, task, 0);
    // What the task waited, and what was waited for the resource, in ms.
    let mut waited = |now_ms: u64| {
        both.ledger.look(now_ms * MS, &mut both.look).unwrap();
        (both.look.uses[0].window.wait_ns / MS, both.look.resources[0].window.wait_ns / MS)
    };
    for now_ms in (20..=100).step_by(10) {
        assert_eq!(waited(now_ms), (0, 0));
    }
    a.slow(1, 95 * MS);
    assert_eq!(waited(110), (95, 95));
    assert_eq!(waited(120), (0, 0));
    // No task waits for longer than it lives, and no account twice at a time.
    a.slow(1, 5_000 * MS);
    let (task, resource) = waited(130);
    assert!(task == 119 && resource <= TOLD_LATE_NS / MS, "{task} {resource}");
    a.slow(1, 5_000 * MS);
    assert_eq!(waited(140), (10, 10));
}

#[test]
fn nothing_is_lost_when_a_task_ends_between_looks() {
    let mut both = both();
    both.look(10);
    let task = both.begin(11);
    let a = account(&both.app, task, 0);
    a.get(1, || 11 * MS);
    a.wait(|| 14 * MS);
    a.end(15 * MS);
    both.app.end(task);
    both.app.complete(1, 4 * MS, true);
    both.app.complete(0, 4 * MS, false);
    let look = both.look(20);
    assert!(look.tasks.is_empty() && look.uses.is_empty());
    let window = look.resource(0).unwrap().window;
    assert_eq!((window.gets, window.frees, window.hold_ns, window.wait_ns), (1, 1, 4 * MS, MS));
    assert_eq!((look.window.completed, look.window.cancelled, look.window.sum_ns), (2, 1, 8 * MS));
    assert_eq!(look.window.bins.iter().sum::<u64>(), 1);
}

#[test]
fn who_takes_over_an_account_is_charged_for_its_own_life_at_most() {
    let mut both = both();
    let first = both.begin(10);
    let a = account(&both.app, first, 0);
    a.get(1, || 10 * MS);
    both.ledger.look(10 * MS, &mut both.look).unwrap();
    a.end(97 * MS);
    both.app.end(first);
    let second = both.begin(98);
    let b = account(&both.app, second, 0);
    assert_eq!(b.index(), 0);
    b.get(1, || 99 * MS);
    both.ledger.look(100 * MS, &mut both.look).unwrap();
    let (found, table) = (both.look.uses[0], both.look.resource(0).unwrap());
    assert_eq!((found.window.hold_ns, found.total.hold_ns), (2 * MS, 2 * MS));
    assert_eq!(table.window.hold_ns, 88 * MS);
}

#[test]
fn who_takes_over_an_account_is_charged_for_its_part_of_what_was_taken() {
    let mut both = both();
    let first = both.begin(10);
    let a = account(&both.app, first, 1);
    a.get(1, || 10 * MS);
    both.ledger.look(10 * MS, &mut both.look).unwrap();
    a.end(11 * MS);
    both.app.end(first);
    for at in [11, 20] {
        let between = both.begin(at);
        let a = account(&both.app, between, 1);
        a.get(500, || at * MS);
        a.slow(500, 0);
        a.end(at * MS);
        both.app.end(between);
    }
    let second = both.begin(90);
    let a = account(&both.app, second, 1);
    a.get(30, || 95 * MS);
    a.wait(|| 96 * MS);
    both.ledger.look(110 * MS, &mut both.look).unwrap();
    // It was there for a fifth of the time.
    let (own, all) = (both.look.uses[0].window, both.look.resource(1).unwrap().window);
    assert_eq!((all.gets, all.frees, all.slows), (1_030, 1_001, 1_001));
    assert_eq!((own.gets, own.frees, own.slows), (206, 176, 200));
    a.end(110 * MS);
    both.app.end(second);
    let third = both.begin(209);
    account(&both.app, third, 1).get(40, || 209 * MS);
    // What it holds it has taken, however short its life.
    both.ledger.look(210 * MS, &mut both.look).unwrap();
    let own = both.look.uses[0].window;
    assert_eq!((own.gets, own.frees), (40, 0));
}

#[test]
fn accounts_of_one_task_and_resource_are_one_use() {
    let mut both = both();
    both.look(10);
    let (one, other) = (both.begin(10), both.begin(10));
    for (task, resource, at) in [(other, 1, 12), (one, 1, 11), (one, 0, 14), (other, 1, 11), (one, 1, 13)] {
        account(&both.app, task, resource).get(2, || at * MS);
    }
    let look = both.look(20);
    let of = |task: usize| {
        let uses = look.uses_of(&look.tasks[task]).iter();
        uses.map(|u| (u.task, u.resource, u.held, u.holding_since_ns / MS, u.window.hold_ns / MS))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(0), [(0, 0, 2, 14, 6), (0, 1, 4, 11, 9 + 7)]);
    assert_eq!(of(1), [(1, 1, 4, 11, 8 + 9)]);
    assert_eq!(look.resource(1).unwrap().held, 8);
}

#[test]
fn counters_that_go_backwards_are_nothing() {
    let mut both = both();
    let task = both.begin(10);
    let a = account(&both.app, task, 0);
    a.get(9, || 10 * MS);
    a.free(9, || 15 * MS);
    both.ledger.look(20 * MS, &mut both.look).unwrap();
    for (field, word) in [(8, 3), (16, 3), (40, 7)] {
        spoil(both.app.path(), account_at(0, field), word);
    }
    both.ledger.look(30 * MS, &mut both.look).unwrap();
    assert_eq!(both.look.uses[0].window, Default::default());
    for (field, word) in [(8, 5), (16, 4), (40, 8)] {
        spoil(both.app.path(), account_at(0, field), word);
    }
    both.ledger.look(40 * MS, &mut both.look).unwrap();
    let window = both.look.uses[0].window;
    assert_eq!((window.gets, window.frees, window.hold_ns), (2, 1, 1));
}

#[test]
fn nobody_waits_or_holds_longer_than_there_was_time() {
    let mut both = both();
    let task = both.begin(15);
    let a = account(&both.app, task, 0);
    both.ledger.look(10 * MS, &mut both.look).unwrap();
    a.slow(1, 3_600_000 * MS);
    a.get(1, || 1);
    both.ledger.look(20 * MS, &mut both.look).unwrap();
    assert_eq!((both.look.uses[0].window.wait_ns, both.look.uses[0].window.hold_ns), (5 * MS, 5 * MS));
    // In the future, and more given back than taken.
    spoil(both.app.path(), account_at(0, 48), u64::MAX);
    spoil(both.app.path(), account_at(0, 56), u64::MAX);
    both.ledger.look(21 * MS, &mut both.look).unwrap();
    let found = both.look.uses[0];
    assert_eq!((found.waiting_since_ns, found.holding_since_ns), (21 * MS, 21 * MS));
    spoil(both.app.path(), account_at(0, 16), 2);
    both.ledger.look(22 * MS, &mut both.look).unwrap();
    assert_eq!((both.look.uses[0].held, both.look.uses[0].holding_since_ns), (0, 0));
}

#[test]
fn tasks_are_no_older_than_time_and_never_more_than_done() {
    let mut both = both();
    let task = both.begin(50);
    both.app.progress(task, 9, 4);
    let task = &both.look(20).tasks[0];
    assert_eq!((task.started_ns, task.done, task.total), (20 * MS, 4, 4));
}

#[test]
fn one_agent_a_ledger() {
    let both = both();
    both.ledger.sign(77).unwrap();
    let refused = Ledger::open(both.app.path()).err().unwrap();
    assert!(matches!(refused, Refusal::Taken { pid: 77 }), "{refused}");
    assert!(Ledger::peek(both.app.path()).is_ok_and(|peek| peek.beat(1).is_err()));
    let path = both.app.path().to_owned();
    drop(both.ledger);
    assert!(Ledger::open(&path).is_ok());
}

#[test]
fn a_ledger_that_is_closed_is_not_alive_though_its_process_is() {
    let both = both();
    assert!(both.ledger.is_alive());
    both.app.remove();
    assert!(!both.ledger.is_alive() && both.ledger.has_process());
}

#[test]
fn the_agent_writes_its_own_words() {
    let both = both();
    both.ledger.beat(5).unwrap();
    both.ledger.tick(6).unwrap();
    assert_eq!((both.app.agent_beat_ns(), both.app.stamp(|| 7)), (5, 6));
    both.ledger.set_exact(true).unwrap();
    assert_eq!(both.app.stamp(|| 7), 7);
    both.ledger.set_exact(false).unwrap();
    assert_eq!(both.app.stamp(|| 7), 6);
    assert!(both.ledger.is_alive());
}

#[test]
fn a_file_that_is_no_ledger_or_is_one_no_more_is_refused() {
    let mut both = both();
    let path = both.app.path().to_owned();
    let refused = |path: &Path| Ledger::peek(path).err().map(|why| why.word());
    let beside = |name: &str| path.with_file_name(name);
    std::os::unix::fs::symlink(&path, beside("link")).unwrap();
    std::fs::write(beside("short"), "PLIMSOLL").unwrap();
    std::fs::write(beside("empty"), "").unwrap();
    assert_eq!(refused(&beside("link")), Some("file"));
    assert_eq!(refused(path.parent().unwrap()), Some("file"));
    assert_eq!(refused(&beside("short")), Some("length"));
    assert_eq!(refused(&beside("empty")), Some("magic"));
    assert_eq!(refused(&beside("none")), Some("io"));

    both.look(10);
    let bytes = std::fs::read(&path).unwrap();
    // Under its hands, at every part.
    for left in [SHAPE.bytes() as u64 - 1, 5_000, 4_096, 100, 0] {
        both.begin(1);
        spoil(&path, at::ACCOUNTS_USED, u64::from(SHAPE.accounts));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(left).unwrap();
        let refused = both.ledger.look(20 * MS, &mut both.look).err().map(|why| why.word());
        assert_eq!(refused, Some("length"), "{left}");
        std::fs::write(&path, &bytes).unwrap();
    }
    both.look(30);
    spoil(&path, 0, 0);
    assert_eq!(both.ledger.look(40 * MS, &mut both.look).err().map(|why| why.word()), Some("magic"));
}

#[test]
fn who_made_the_file_is_not_replaced_and_who_is_gone_is() {
    let directory = tempfile::tempdir().unwrap();
    let create = Create { app: "app", shape: SHAPE, ..Create::in_directory(directory.path(), 1) };
    let writer = Writer::create(&create).unwrap();
    assert_eq!(Writer::create(&create).err().map(|why| why.word()), Some("already"));
    let later = Create { pid_started: create.pid_started + 1, ..create };
    let later = Writer::create(&later).unwrap();
    assert_eq!(writer.path(), later.path());
    let names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    later.remove();
    assert!(!later.path().exists());
}

#[test]
fn what_a_program_left_that_this_one_has_replaced_is_replaced_too() {
    let directory = tempfile::tempdir().unwrap();
    let create = Create { app: "app", shape: SHAPE, ..Create::in_directory(directory.path(), 1) };
    let before = Writer::create(&create).unwrap();
    // Of the same process by its words, but nothing that this program made.
    let bytes = std::fs::read(before.path()).unwrap();
    before.remove();
    std::fs::write(before.path(), bytes).unwrap();
    let after = Writer::create(&Create { created_ns: 2, ..create }).unwrap();
    assert_eq!(Ledger::peek(after.path()).unwrap().created_ns(), 2);
    assert_eq!(Writer::create(&create).err().map(|why| why.word()), Some("already"));
}

#[test]
fn the_directory_is_private_or_it_is_none() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("ledgers");
    plimsoll_ledger::place::prepare(&directory).unwrap();
    plimsoll_ledger::place::prepare(&directory).unwrap();
    assert_eq!(directory.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = plimsoll_ledger::place::prepare(&directory).unwrap_err();
    assert!(refused.to_string().contains("anybody may write there"), "{refused}");
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(plimsoll_ledger::place::prepare(&file).unwrap_err().word(), "directory");
}
