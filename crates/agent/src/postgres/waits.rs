//! What a backend waits for (`wait_event_type`, `wait_event`) as a resource of the server.

use crate::server::backend::Waits;

/// What a wait is for; nothing for those that are no contention: clients, timers, other processes of the same statement.
pub fn classify(kind: &str, event: &str) -> Option<Waits> {
    // `WALSync` is `WalSync` from version 17 on, and so on.
    let is_wal = event.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("wal"));
    match kind {
        "Lock" => Some(Waits::Lock),
        "BufferPin" => Some(Waits::BufferPin),
        "IO" | "LWLock" if is_wal => Some(Waits::Wal),
        "IO" if event.starts_with("DataFile") || event.starts_with("BufFile") => Some(Waits::DataFiles),
        // Pages are looked for, brought in and thrown out under these.
        "LWLock" if ["BufferMapping", "BufferContent", "BufferIO"].contains(&event) => Some(Waits::DataFiles),
        "IPC" if event.eq_ignore_ascii_case("BufferIO") => Some(Waits::DataFiles),
        "LWLock" => Some(Waits::Latch(event.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_apart() {
        let latch = Waits::Latch("ProcArray".to_owned());
        for (kind, event, waits) in [
            ("IO", "WALSync", Some(Waits::Wal)),
            ("IO", "WalSync", Some(Waits::Wal)),
            ("LWLock", "WALInsert", Some(Waits::Wal)),
            ("IO", "DataFileRead", Some(Waits::DataFiles)),
            ("LWLock", "BufferMapping", Some(Waits::DataFiles)),
            ("LWLock", "ProcArray", Some(latch)),
            ("Lock", "transactionid", Some(Waits::Lock)),
            ("BufferPin", "BufferPin", Some(Waits::BufferPin)),
            ("Client", "ClientRead", None),
            ("Timeout", "PgSleep", None),
            ("IPC", "ParallelFinish", None),
            ("Activity", "WalWriterMain", None),
        ] {
            assert_eq!(classify(kind, event), waits, "{kind} {event}");
        }
    }
}
