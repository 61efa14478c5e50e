//! c6: a long write holds what others need. One transaction has changed every account and is not done yet: who wants to change any of them
//! waits for its end, connection after connection, until nobody is left to read either.

use plimsoll_core::Nanos;

use super::working;
use crate::postgres::task::{Step, run};

const REPRICE: &str = "update account set balance = balance + 1";

/// It goes on with a statement that takes long, which can be cancelled.
pub(super) fn script(hold: Nanos) -> Vec<Step> {
    vec![run("begin"), run(REPRICE), run(working(hold, "account")), run("commit")]
}

/// It does nothing, as a client that waits for somebody else does. `pg_cancel_backend` finds nothing to cancel.
pub(super) fn idle_script(hold: Nanos) -> Vec<Step> {
    vec![run("begin"), run(REPRICE), Step::Idle(hold), run("commit")]
}
