//! A ledger as text: what is in the file, record by record, as `sdk/vectors/README.md` lays down.
//!
//! Numbers are shown as they are, right or wrong; what they are held against is the [reader](crate::Ledger)'s business. Only who
//! is nobody is shown as nobody, and texts as one line.

use std::fmt::Write;

use crate::layout::{self, ACCOUNT_BYTES, BINS, EXACT, Kind, LANE_BYTES, RESOURCE_BYTES, Shape, TASK_BYTES};
use crate::records::{AccountRecord, Header, ResourceRecord, TaskRecord, u64_at};
use crate::refusal::Refusal;

/// The text of a ledger, or why it is none.
pub fn dump(bytes: &[u8]) -> Result<String, Refusal> {
    let header = Header::read(bytes)?;
    let shape = header.shape;
    if bytes.len() != shape.bytes() {
        return Err(Refusal::Length { bytes: bytes.len() as u64, expected: shape.bytes() as u64 });
    }
    let mut out = String::new();
    // Writing to a text cannot fail.
    let _ = write_all(&mut out, bytes, &header);
    Ok(out)
}

fn write_all(out: &mut String, bytes: &[u8], header: &Header) -> std::fmt::Result {
    let Header { shape, pid, pid_started, created_ns, app, changing } = header;
    let Shape { resources, lanes, tasks, accounts } = shape;
    writeln!(
        out,
        "ledger {app} version={} resources={resources} lanes={lanes} tasks={tasks} accounts={accounts} \
         pid={pid} pid_started={pid_started} created_ns={created_ns}",
        layout::VERSION,
    )?;
    let c = changing;
    writeln!(
        out,
        "application beat_ns={} tasks_refused={} accounts_refused={} resources_refused={} tasks_used={} accounts_used={}",
        c.app_beat_ns,
        c.tasks_refused,
        c.accounts_refused,
        c.resources_refused,
        c.tasks_used,
        c.accounts_used,
    )?;
    writeln!(out, "agent beat_ns={} exact={} pid={}", c.agent_beat_ns, c.flags & EXACT, c.agent_pid)?;
    writeln!(out, "clock ns={}", c.clock_ns)?;
    let part = |at: usize, each: usize, count: u32| {
        bytes.get(at..).unwrap_or_default().chunks_exact(each).take(count as usize).enumerate()
    };
    for (i, record) in part(layout::HEADER_BYTES, RESOURCE_BYTES, *resources) {
        let resource = ResourceRecord::read(record);
        if let Some(kind) = Kind::of(resource.kind) {
            writeln!(
                out,
                "resource {i} {kind} capacity={}{}",
                resource.capacity,
                last(&resource.name.show())
            )?;
        }
    }
    for (i, lane) in part(shape.lanes_at(), LANE_BYTES, *lanes) {
        let (completed, cancelled, sum_ns) = (u64_at(lane, 0), u64_at(lane, 8), u64_at(lane, 16));
        if completed > 0 {
            let bins: Vec<String> = (0..BINS)
                .map(|bin| (bin, u64_at(lane, 64 + 8 * bin)))
                .filter(|&(_, count)| count > 0)
                .map(|(bin, count)| format!("{bin}:{count}"))
                .collect();
            let bins = bins.join(",");
            writeln!(
                out,
                "lane {i} completed={completed} cancelled={cancelled} sum_ns={sum_ns} bins={bins}"
            )?;
        }
    }
    let mut turns = Vec::new();
    for (i, record) in part(shape.tasks_at(), TASK_BYTES, *tasks).take(changing.tasks_used as usize) {
        let task = TaskRecord::read(record);
        turns.push(task.turn);
        let TaskRecord { turn, key, started_ns, done, total, deadline_ns, flags, tid, label } = task;
        writeln!(
            out,
            "task {i} turn={turn} key={key} started_ns={started_ns} done={done} total={total} \
             deadline_ns={deadline_ns} flags={flags} tid={tid}{}",
            last(&label.show()),
        )?;
    }
    for (i, record) in
        part(shape.accounts_at(), ACCOUNT_BYTES, *accounts).take(changing.accounts_used as usize)
    {
        let account = AccountRecord::read(record);
        let owner = account.owner();
        let lives = |&task: &u32| {
            turns.get(task as usize).is_some_and(|turn| turn % 2 == 1 && *turn as u16 == owner.turn)
        };
        let (task, turn) = match owner.task.filter(lives).filter(|_| u32::from(owner.resource) < *resources) {
            Some(task) => (task.to_string(), owner.turn),
            None => ("-".to_owned(), 0),
        };
        let AccountRecord {
            gets, frees, slows, wait_ns, hold_ns, waiting_since_ns, holding_since_ns, ..
        } = account;
        writeln!(
            out,
            "account {i} task={task} turn={turn} resource={} gets={gets} frees={frees} slows={slows} wait_ns={wait_ns} \
             hold_ns={hold_ns} waiting_since_ns={waiting_since_ns} holding_since_ns={holding_since_ns}",
            owner.resource,
        )?;
    }
    Ok(())
}

/// A text at the end of a line; nothing, not even a space, if it is empty.
fn last(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" {text}") }
}
