//! Ticks the clocks of ledgers, and gives the agent's sign of life.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Duration;

use plimsoll_ledger::Ledger;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock;

/// The coarse time's step.
const TICK: Duration = Duration::from_millis(10);
/// Ticks from one heartbeat to the next.
const BEAT: u32 = 10;

/// The ledgers that are open, by the names of their files. Whoever watches one holds it.
pub type Open = Rc<RefCell<HashMap<String, Weak<RefCell<Ledger>>>>>;

/// Ticks all that are open, until it is dropped.
pub async fn tick(open: Open) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    for tick in (0..BEAT).cycle() {
        ticks.tick().await;
        let now = clock::now().0;
        for ledger in open.borrow().values().filter_map(Weak::upgrade) {
            let ledger = ledger.borrow();
            // What is wrong with a ledger, its look says.
            let _ = ledger.tick(now);
            if tick == 0 {
                let _ = ledger.beat(now);
            }
        }
    }
}
