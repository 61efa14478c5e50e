//! `[herald]`: who tells which threads of a host are about to be short of CPU.

use super::table::{choice, table};
use crate::Nanos;

table! {
    /// The herald of an agent: reads how long every thread of the host ran and waited, and tells who is about to be short of CPU.
    pub struct Herald {
        /// From one reading to the next, while that costs no more than the budget; once a second while nobody asks. Longer notices late, shorter costs more.
        period: Nanos ["10ms"..="5s"] = "100ms",
        /// CPU time that it may use, as a part of one CPU, in 0.001..1: it reads less often before it costs more. A reading of 1,000 threads
        /// every 100ms fits in on a machine that is not overloaded.
        budget: f64 [0.001..=1.0] = 0.02,
        /// By files of /proc ("pread"), by BPF, which costs less and wants root, by BPF where that can be ("auto"), or not at all.
        reader: HeraldReader = "auto",
    }
}

choice! {
    /// How the herald reads threads.
    pub enum HeraldReader {
        /// By BPF where it can be loaded, else by files.
        Auto = "auto",
        /// By a BPF iterator.
        Bpf = "bpf",
        /// By files of `/proc`.
        Pread = "pread",
        /// Not at all.
        Off = "off",
    }
}
