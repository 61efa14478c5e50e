//! `--once`: a second of the host, without a terminal.

use std::fmt::Write as _;

use plimsoll_core::Nanos;

use crate::cli::{Options, json_of};
use crate::draw::text::{cut, ms_per_s, slowdown};
use crate::order::sort;
use crate::row::{By, Key, Row, is_chosen, rows, wants_enough};
use crate::watch::Watcher;

/// What allocations are said of.
const SECOND: Nanos = Nanos::from_secs(1);

/// Measures, and says what is to be printed.
///
/// # Errors
/// In words, where the host cannot be read.
pub fn measure(options: &Options, json: bool) -> Result<String, String> {
    let mut watcher = Watcher::new(options.reader, &options.pids)?;
    watcher.watch_for(SECOND);
    let chosen = |pid: u32| is_chosen(&options.pids, pid);
    if json {
        return Ok(json_of(&watcher.report(chosen)));
    }
    let mut scene = watcher.scene();
    scene.tasks.retain(|task| chosen(task.id.pid));
    let by = if options.threads { By::Thread } else { By::Process };
    Ok(table_of(&sort(rows(scene.tasks.iter(), by), options.sort), by))
}

/// Who wanted the CPU, a line each, and how many did not.
fn table_of(rows: &[Row], by: By) -> String {
    let mut text = String::new();
    // Into memory, which cannot fail.
    let tid = if by == By::Thread { format!("{:>8} ", "TID") } else { String::new() };
    let _ = writeln!(
        text,
        "{:>8} {tid}{:<16} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "PID", "NAME", "SLOWER", "NEXT", "ACTUAL", "DESIRED", "WAITED", "PREDICTED", "POTENTIAL"
    );
    let wanted = |row: &&Row| row.of.desired_ms_per_s > 0.0 || row.of.waited_ms_per_s > 0.0;
    for row in rows.iter().filter(wanted) {
        let of = &row.of;
        let slowed =
            |by: f64| if wants_enough(of) { slowdown(by, of.low_confidence) } else { "-".to_owned() };
        let (pid, tid) = match &row.key {
            Key::Thread(id) => (id.pid, format!("{:>8} ", id.tid)),
            Key::Process(pid) => (*pid, String::new()),
            Key::Group(_) => continue,
        };
        let _ = writeln!(
            text,
            "{pid:>8} {tid}{:<16} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}",
            cut(&row.name, 16),
            slowed(of.slowdown()),
            slowed(of.predicted_slowdown()),
            ms_per_s(of.actual_ms_per_s),
            ms_per_s(of.desired_ms_per_s),
            ms_per_s(of.waited_ms_per_s),
            ms_per_s(of.predicted_ms_per_s),
            ms_per_s(of.potential_ms_per_s),
        );
    }
    let calm = rows.len() - rows.iter().filter(wanted).count();
    if calm > 0 {
        let _ = writeln!(text, "and {calm} more that wanted nothing");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Sort;
    use crate::row::tests::task;

    #[test]
    fn the_table_tells_who_wanted_the_cpu_and_counts_the_others() {
        let mut tasks = [
            task(100, 100, "hog", "/", 1000.0, 500.0),
            task(101, 101, "tick", "/", 0.5, 0.2),
            task(102, 102, "stuck", "/", 900.0, 0.0),
            task(103, 103, "calm", "/", 0.0, 0.0),
        ];
        tasks[2].of.low_confidence = true;
        for by in [By::Process, By::Thread] {
            let rows = sort(rows(tasks.iter(), by), Sort::Slowdown);
            insta::assert_snapshot!(format!("once_{by:?}"), table_of(&rows, by));
        }
    }
}
