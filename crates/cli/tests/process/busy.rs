//! How busy a sentry says it is.

use std::fs;
use std::path::PathBuf;

use crate::harness::{Load, Sentry, Upstream, get, wait_for};
use crate::pool;

/// A control group that allows a fifth of a core, until this is dropped.
struct Cap(PathBuf);

impl Cap {
    /// For these processes; says why where that cannot be had here.
    fn around(pids: &[u32]) -> Result<Cap, String> {
        let name = format!("plimsoll-test-{}", std::process::id());
        let mut why = String::new();
        for (root, limits) in [
            ("/sys/fs/cgroup/cpu", &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "20000")][..]),
            ("/sys/fs/cgroup", &[("cpu.max", "20000 100000")][..]),
        ] {
            let cap = Cap(PathBuf::from(root).join(&name));
            let set = || {
                fs::create_dir(&cap.0)?;
                limits.iter().try_for_each(|(file, limit)| fs::write(cap.0.join(file), limit))?;
                pids.iter().try_for_each(|pid| fs::write(cap.0.join("cgroup.procs"), pid.to_string()))
            };
            match set() {
                Ok(()) => return Ok(cap),
                Err(error) => why += &format!("{root}: {error}; "),
            }
        }
        Err(why)
    }
}

impl Drop for Cap {
    fn drop(&mut self) {
        // Only an empty one can be removed, so whoever is still in it goes back to the one above.
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let above = self.0.with_file_name("cgroup.procs");
        inside.lines().for_each(|pid| _ = fs::write(&above, pid));
        let _ = fs::remove_dir(&self.0);
    }
}

fn busy(sentry: &Sentry) -> f64 {
    let pools: serde_json::Value = serde_json::from_str(&get(sentry.admin, "/pools").unwrap().body).unwrap();
    pools["sentry"]["busy"].as_f64().unwrap()
}

#[test]
fn a_sentry_is_as_busy_as_its_control_group_says() {
    let upstream = Upstream::start();
    let sentry = Sentry::start(&pool(&upstream, 50));
    wait_for("it to be idle", || busy(&sentry) < 0.3);
    let cap = Cap::around(&[sentry.parent(), sentry.worker(1)]);
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
            eprintln!("no control group to be had here ({why}): looking at what two threads may have");
            wait_for("it to be busy", || busy(&sentry) > 0.02);
            assert!(busy(&sentry) < 1.1, "{}", busy(&sentry));
        }
    }
    load.stop();
    wait_for("it to be idle again", || busy(&sentry) < 0.3);
}
