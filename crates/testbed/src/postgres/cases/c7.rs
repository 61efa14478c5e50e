//! c7: an import and the write-ahead log. A commit returns when the log is on disk up to its own record, so behind an import that writes as
//! fast as it can every commit waits for the import's records, too.
//!
//! A disk that takes gigabytes a second hides much of that, so it gets the bandwidth of a small one in a cloud.

use super::Ground;
use crate::disk_cap::Disk;
use crate::postgres::task::{Step, run};

pub(super) fn ground() -> Ground {
    Ground {
        memory_bytes: Some(2 << 30),
        disk: Some(Disk { read_bytes_per_s: 200 << 20, write_bytes_per_s: 30 << 20, reads_per_s: 20_000 }),
        ..Ground::default()
    }
}

pub(super) fn script(rows: u64) -> Vec<Step> {
    vec![run(format!(
        "insert into history (account, delta, note)
         select i, 1, repeat(md5(i::text), 8) from (select generate_series(1, {rows}) i) rows"
    ))]
}
