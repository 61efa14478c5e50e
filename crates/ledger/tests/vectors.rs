//! The test vectors of `sdk/vectors`: what is played is what is there, and what is there is read as it says.
//!
//! `PLIMSOLL_VECTORS` names another directory of them. `UPDATE_VECTORS=1` writes what is compared otherwise. Do that only where the format itself changes: six languages hold themselves to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plimsoll_ledger::layout::{self, Owner, Shape, at};
use plimsoll_ledger::{dump, script};

fn vectors() -> PathBuf {
    match std::env::var_os("PLIMSOLL_VECTORS") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/vectors").canonicalize().unwrap(),
    }
}

/// Compares, or writes where that is asked for.
fn is(name: &str, bytes: &[u8]) {
    let path = vectors().join(name);
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        std::fs::write(path, bytes).unwrap();
        return;
    }
    let there = std::fs::read(path).unwrap_or_else(|why| panic!("{name}: {why}"));
    let differ = there.iter().zip(bytes).position(|(a, b)| a != b);
    assert!(there == bytes, "{name}: {} bytes, not {}; differ from {differ:x?} on", there.len(), bytes.len());
}

/// Plays a script and gives the bytes of its ledger.
fn played(name: &str) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let script = std::fs::read_to_string(vectors().join(format!("{name}.script"))).unwrap();
    let ledger = script::play(&script, directory.path()).unwrap_or_else(|why| panic!("{name}: {why}"));
    std::fs::read(ledger.path()).unwrap()
}

/// A ledger that is read: its bytes, and its dump or the word for why it is refused.
fn read(name: &str, bytes: &[u8]) {
    is(&format!("{name}.ledger"), bytes);
    match dump::dump(bytes) {
        Ok(text) => is(&format!("{name}.dump"), text.as_bytes()),
        Err(why) => is(&format!("{name}.error"), format!("{}\n", why.word()).as_bytes()),
    }
}

const SCRIPTS: [&str; 6] = ["calm", "cancelled", "exact", "full", "memory", "reuse"];

#[test]
fn scripts_end_up_as_their_ledgers() {
    for name in SCRIPTS {
        read(name, &played(name));
    }
}

/// What a vector without a script is called, and how it comes from `calm`.
type Hostile = (&'static str, fn(&mut Vec<u8>));

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

const HOSTILE: [Hostile; 12] = [
    ("bad-app", |bytes| bytes[at::APP..at::APP + 4].copy_from_slice(b"../x")),
    ("bad-counts-absurd", |bytes| put32(bytes, at::ACCOUNTS, u32::MAX)),
    ("bad-counts-none", |bytes| put32(bytes, at::TASKS, 0)),
    ("bad-length-header", |bytes| bytes.truncate(100)),
    ("bad-length-long", |bytes| bytes.push(0)),
    ("bad-length-other", |bytes| put32(bytes, at::LANES, 3)),
    ("bad-length-short", |bytes| bytes.truncate(bytes.len() - 1)),
    ("bad-magic", |bytes| bytes[at::MAGIC..at::MAGIC + 8].fill(0)),
    ("bad-nothing", Vec::clear),
    ("bad-version", |bytes| put32(bytes, at::VERSION, 2)),
    ("odd-numbers", |bytes| {
        let shape = shape(bytes);
        put32(bytes, at::TASKS_USED, u32::MAX);
        put32(bytes, at::ACCOUNTS_USED, u32::MAX);
        put64(bytes, at::FLAGS, u64::MAX);
        // A kind that nobody knows, a label that is no UTF-8 and more than one line, numbers that cannot be.
        put32(bytes, layout::HEADER_BYTES + layout::RESOURCE_BYTES, 9);
        let task = shape.tasks_at();
        bytes[task + 64..task + 80].copy_from_slice(b"one\nline \xff still");
        put64(bytes, task + 24, u64::MAX);
        let account = shape.accounts_at();
        put64(bytes, account + 16, 1_000);
        put64(bytes, account + 40, u64::MAX);
        put64(bytes, account + 56, u64::MAX);
    }),
    ("odd-owners", |bytes| {
        let shape = shape(bytes);
        let live = 1;
        let owners = [
            Owner { task: Some(live), resource: 0, turn: 1 },
            Owner { task: Some(live), resource: 4, turn: 1 },
            Owner { task: Some(live), resource: 1, turn: 3 },
            Owner { task: Some(3), resource: 0, turn: 0 },
            Owner { task: Some(4), resource: 0, turn: 1 },
            Owner { task: Some(u32::MAX - 1), resource: u16::MAX, turn: u16::MAX },
            Owner { task: None, resource: 1, turn: 1 },
            Owner { task: None, resource: 0, turn: 0 },
        ];
        put32(bytes, at::TASKS_USED, 4);
        put32(bytes, at::ACCOUNTS_USED, 8);
        for (i, owner) in owners.into_iter().enumerate() {
            put64(bytes, shape.accounts_at() + layout::ACCOUNT_BYTES * i, owner.to_word());
        }
    }),
];

fn shape(bytes: &[u8]) -> Shape {
    let count = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    Shape {
        resources: count(at::RESOURCES),
        lanes: count(at::LANES),
        tasks: count(at::TASKS),
        accounts: count(at::ACCOUNTS),
    }
}

#[test]
fn hostile_ledgers_are_refused_or_read_for_what_they_are() {
    let calm = played("calm");
    for (name, spoil) in HOSTILE {
        let mut bytes = calm.clone();
        spoil(&mut bytes);
        assert_eq!(dump::dump(&bytes).is_err(), name.starts_with("bad-"), "{name}");
        read(name, &bytes);
    }
}

#[test]
fn no_vector_is_forgotten() {
    let there: BTreeSet<String> = std::fs::read_dir(vectors())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let (name, ending) = name.rsplit_once('.')?;
            ["script", "ledger", "dump", "error"].contains(&ending).then(|| name.to_owned())
        })
        .collect();
    let tested = SCRIPTS.into_iter().chain(HOSTILE.map(|(name, _)| name)).map(str::to_owned).collect();
    assert_eq!(there, tested);
}
