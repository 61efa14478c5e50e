//! The binary `plimsoll`.
fn main() {}
