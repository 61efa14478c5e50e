//! c8: a vacuum and IO. A table that was just loaded is vacuumed for the first time, by hand and hence without a pause: it reads ahead as far
//! as the kernel lets it, and every read of the others waits behind that.
//!
//! Their reads reach the disk only where memory does not hold their table, and wait only where the disk is slow. So this one needs control
//! groups: where there are none, it cannot be had.

use super::Ground;
use crate::disk_cap::Disk;
use crate::postgres::tables::Scale;
use crate::postgres::task::{Step, run};

pub(super) fn ground() -> Ground {
    Ground {
        // The server's own vacuum would come a minute after the tables are loaded, and do the same.
        settings: vec![
            ("shared_buffers".to_owned(), "32MB".to_owned()),
            ("autovacuum".to_owned(), "off".to_owned()),
        ],
        // 400 MB and 600 MB.
        scale: Scale { accounts: 800_000, account_bytes: 400, archived: 700_000 },
        // Some 90 MB are the server's own. With much less left than this the kernel keeps on reclaiming, and the load does not recover.
        memory_bytes: Some(256 << 20),
        disk: Some(Disk { read_bytes_per_s: 20 << 20, write_bytes_per_s: 40 << 20, reads_per_s: 2_000 }),
    }
}

pub(super) fn script() -> Vec<Step> {
    vec![run("vacuum (freeze) archive")]
}
