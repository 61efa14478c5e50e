//! The ledger's reader over a file that changes between looks: whatever is in it, a look is refused or is within what a reader holds
//! against a ledger.
//!
//! The input is a script for whoever spoils the file. It begins as one of the test vectors, or as the rest of the input; then each step of
//! 12 bytes writes a word somewhere, cuts the file, or lets time pass and looks.
#![no_main]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plimsoll_ledger::{Ledger, Look, TOLD_LATE_NS, dump};

const BEGINNINGS: [&[u8]; 4] = [
    include_bytes!("../../sdk/vectors/calm.ledger"),
    include_bytes!("../../sdk/vectors/exact.ledger"),
    include_bytes!("../../sdk/vectors/reuse.ledger"),
    include_bytes!("../../sdk/vectors/odd-owners.ledger"),
];

/// One file for all inputs; removed with its directory when the program ends, or by whoever cleans up shared memory.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = ["/dev/shm", "/tmp"].map(PathBuf::from).into_iter().find(|dir| dir.is_dir()).unwrap();
    directory.join(format!("plimsoll-fuzz.{}.ledger", std::process::id()))
});

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let (begins, steps) = match BEGINNINGS.get(usize::from(first)) {
        Some(begins) => (*begins, rest),
        None => (rest, rest),
    };
    assert!(dump::dump(begins).is_err() || begins.len() >= 4096);
    std::fs::write(&*FILE, begins).unwrap();
    let file = OpenOptions::new().write(true).open(&*FILE).unwrap();
    if let Ok(mut ledger) = Ledger::open(&FILE) {
        let mut look = Look::default();
        let mut now = 1_000_000_000;
        for step in steps.as_chunks::<12>().0.iter().take(64) {
            if spoil(&file, step, begins.len() as u64) {
                now += u64::from(u32::from_le_bytes([step[4], step[5], step[6], step[7]]));
                if ledger.look(now, &mut look).is_ok() {
                    check(&look);
                }
            }
        }
    }
});

/// Does one thing to the file; `true` where it is time to look.
fn spoil(file: &File, step: &[u8; 12], length: u64) -> bool {
    let at = u64::from(u32::from_le_bytes([step[0], step[1], step[2], 0]));
    match step[3] % 8 {
        0..=4 => file.write_all_at(&step[4..], at % length.max(1) & !7).unwrap(),
        5 if at % 16 == 0 => file.set_len(at % (length + 1)).unwrap(),
        _ => return true,
    }
    false
}

/// What holds of every look.
fn check(look: &Look) {
    let now = look.now_ns;
    assert!(look.app_beat_ns <= now);
    assert!(look.resources.is_sorted_by(|a, b| a.index < b.index));
    assert!(look.tasks.is_sorted_by(|a, b| a.index < b.index));
    let mut seen = 0;
    for (place, task) in look.tasks.iter().enumerate() {
        assert!(task.turn % 2 == 1 && task.started_ns <= now, "{task:?}");
        assert!(task.total == 0 || task.done <= task.total, "{task:?}");
        assert!(!(task.rerun() && task.cancellable()), "{task:?}");
        let lives = now - task.started_ns;
        let (most, most_told) = (look.since_ns.min(lives), look.since_ns.saturating_add(TOLD_LATE_NS).min(lives));
        let uses = look.uses_of(task);
        assert!(uses.is_sorted_by(|a, b| a.resource < b.resource), "{uses:?}");
        for one in uses {
            assert_eq!(one.task as usize, place);
            assert!(look.resource(one.resource).is_some(), "{one:?}");
            assert!((one.held > 0) == (one.holding_since_ns > 0), "{one:?}");
            assert!((one.waiting > 0) == (one.waiting_since_ns > 0), "{one:?}");
            assert!(one.holding_since_ns <= now && one.waiting_since_ns <= now, "{one:?}");
            // These ledgers have no more than 8 accounts.
            assert!(one.window.hold_ns <= 8 * most && one.window.wait_ns <= 8 * most_told, "{one:?} in {most}");
        }
        seen += uses.len();
    }
    assert_eq!(seen, look.uses.len());
    for resource in &look.resources {
        assert!(resource.window.hold_ns <= 8 * look.since_ns, "{resource:?}");
        assert!(resource.window.gets <= resource.total.gets, "{resource:?}");
        let _ = resource.name.show();
    }
}
