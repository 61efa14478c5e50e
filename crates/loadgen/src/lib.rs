//! Open-loop load with honest latencies.

pub mod cli;
