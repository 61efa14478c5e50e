//! Slow but innocent: a report that reads what nobody else needs, and computes.

use plimsoll_core::Nanos;

use super::working;
use crate::postgres::task::{Step, run};

pub(super) fn script(length: Nanos) -> Vec<Step> {
    vec![run(working(length, "archive"))]
}
