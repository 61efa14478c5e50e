//! How busy a sentry says it is.

use plimsoll_testbed::cpu_cap::CpuCap;

use crate::harness::{Load, Sentry, Upstream, get, wait_for};
use crate::pool;

fn busy(sentry: &Sentry) -> f64 {
    let pools: serde_json::Value = serde_json::from_str(&get(sentry.admin, "/pools").unwrap().body).unwrap();
    pools["sentry"]["busy"].as_f64().unwrap()
}

#[test]
fn a_sentry_is_as_busy_as_its_control_group_says() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 50));
    wait_for("it to be idle", || busy(&sentry) < 0.3);
    let cap = CpuCap::new(0.2).and_then(|cap| {
        cap.hold(sentry.parent()).map_err(|error| error.to_string())?;
        Ok(cap)
    });
    let load = Load::renewing(sentry.address, 16, "/0", |_| 20);
    match cap {
        // A fifth of a core, all used, is a tenth of what its two threads could have without the group.
        Ok(cap) => {
            wait_for("a fifth of a core to be all", || busy(&sentry) > 0.6);
            assert!(busy(&sentry) < 1.6, "{}", busy(&sentry));
            let metrics = get(sentry.admin, "/metrics").unwrap().body;
            assert!(metrics.contains("plimsoll_sentry_busy "), "{metrics}");
            drop(cap);
        }
        Err(why) => {
            eprintln!("{why}: looking at what two threads may have");
            wait_for("it to be busy", || busy(&sentry) > 0.02);
            assert!(busy(&sentry) < 1.1, "{}", busy(&sentry));
        }
    }
    load.stop();
    wait_for("it to be idle again", || busy(&sentry) < 0.3);
}
