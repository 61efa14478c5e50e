//! The agent's side: a ledger that is read, time and again, and not believed.
//!
//! It is read with `pread`, so a file that gets shorter is an error and no signal. What is read is held against the limits of the
//! format, and against what can have happened since the look before. A ledger full of nonsense makes nonsense of its own
//! application's numbers, within those bounds, and of nothing else.

mod accounts;
mod file;

pub use accounts::TOLD_LATE_NS;
pub use file::Ledger;

use crate::layout::{BINS, HEADER_BYTES, Kind, LANE_BYTES, RESOURCE_BYTES, TASK_BYTES};
use crate::look::{Activity, Lanes, Look, Resource, Task};
use crate::records::{Header, ResourceRecord, TaskRecord, u64_at};
use crate::refusal::Refusal;
use accounts::Accounts;

/// What is remembered from look to look.
#[derive(Default)]
struct Memory {
    /// When the last one was; `None` before the first.
    looked_ns: Option<u64>,
    /// What the lanes added up to.
    lanes: Lanes,
    /// Requests since the ledger was opened.
    total: Lanes,
    /// By record: what was done with a resource since the ledger was opened.
    resources: Vec<Activity>,
    accounts: Accounts,
}

impl Ledger {
    /// Looks: fills `look` with what is there, and with what happened since the last call. `now_ns` is the time now. The first look knows of nothing
    /// before it, so all its windows are empty.
    ///
    /// An error means that the file is no ledger any more; what `look` holds then is of no use.
    pub fn look(&mut self, now_ns: u64, look: &mut Look) -> Result<(), Refusal> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut memory = std::mem::take(&mut self.memory);
        let done = self.look_with(now_ns, look, &mut bytes, &mut memory);
        self.bytes = bytes;
        self.memory = memory;
        done
    }

    fn look_with(
        &self,
        now_ns: u64,
        look: &mut Look,
        bytes: &mut Vec<u8>,
        memory: &mut Memory,
    ) -> Result<(), Refusal> {
        let shape = self.shape();
        let header = Header::read(self.read(bytes, 0, HEADER_BYTES)?)?;
        if header.shape != shape {
            return Err(Refusal::Length {
                bytes: shape.bytes() as u64,
                expected: header.shape.bytes() as u64,
            });
        }
        let c = header.changing;
        look.now_ns = now_ns;
        look.since_ns = memory.looked_ns.map_or(0, |then| now_ns.saturating_sub(then));
        look.app_beat_ns = c.app_beat_ns.min(now_ns);
        look.tasks_refused = c.tasks_refused;
        look.accounts_refused = c.accounts_refused;
        look.resources_refused = c.resources_refused;

        let resources = self.read(bytes, HEADER_BYTES, RESOURCE_BYTES * shape.resources as usize)?;
        read_resources(resources, &mut look.resources);
        let lanes = self.read(bytes, shape.lanes_at(), LANE_BYTES * shape.lanes as usize)?;
        read_lanes(lanes, memory, look);
        look.tasks.clear();
        let used = TASK_BYTES * c.tasks_used as usize;
        for from in (0..used).step_by(file::CHUNK_BYTES) {
            let chunk = self.read(bytes, shape.tasks_at() + from, file::CHUNK_BYTES.min(used - from))?;
            read_tasks(chunk, (from / TASK_BYTES) as u32, now_ns, &mut look.tasks);
        }
        memory.accounts.look(self, c.accounts_used as usize, look, bytes)?;

        memory.resources.resize(shape.resources as usize, Activity::default());
        for resource in &mut look.resources {
            let total = &mut memory.resources[usize::from(resource.index)];
            total.add(&resource.window);
            resource.total = *total;
        }
        memory.looked_ns = Some(now_ns.max(memory.looked_ns.unwrap_or(0)));
        Ok(())
    }
}

fn read_resources(bytes: &[u8], resources: &mut Vec<Resource>) {
    resources.clear();
    for (index, record) in (0..).zip(bytes.chunks_exact(RESOURCE_BYTES)) {
        let ResourceRecord { kind, capacity, name } = ResourceRecord::read(record);
        if let Some(kind) = Kind::of(kind).filter(|_| !name.is_empty()) {
            let nothing = Activity::default();
            let (held, waiting) = (0, 0);
            resources.push(Resource {
                index,
                kind,
                capacity,
                name,
                held,
                waiting,
                window: nothing,
                total: nothing,
            });
        }
    }
}

fn read_lanes(bytes: &[u8], memory: &mut Memory, look: &mut Look) {
    let mut now = Lanes::default();
    for lane in bytes.chunks_exact(LANE_BYTES) {
        now.completed = now.completed.wrapping_add(u64_at(lane, 0));
        now.cancelled = now.cancelled.wrapping_add(u64_at(lane, 8));
        now.sum_ns = now.sum_ns.wrapping_add(u64_at(lane, 16));
        for (bin, word) in now.bins.iter_mut().zip(lane[64..].as_chunks::<8>().0) {
            *bin = bin.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let first = memory.looked_ns.is_none();
    let since = |now: u64, then: u64| if first { 0 } else { now.saturating_sub(then) };
    let (window, total, then) = (&mut look.window, &mut memory.total, &memory.lanes);
    window.completed = since(now.completed, then.completed);
    window.cancelled = since(now.cancelled, then.cancelled);
    window.sum_ns = since(now.sum_ns, then.sum_ns);
    total.completed = total.completed.saturating_add(window.completed);
    total.cancelled = total.cancelled.saturating_add(window.cancelled);
    total.sum_ns = total.sum_ns.saturating_add(window.sum_ns);
    for i in 0..BINS {
        window.bins[i] = since(now.bins[i], then.bins[i]);
        total.bins[i] = total.bins[i].saturating_add(window.bins[i]);
    }
    look.total.clone_from(total);
    memory.lanes = now;
}

fn read_tasks(bytes: &[u8], first: u32, now_ns: u64, tasks: &mut Vec<Task>) {
    for (index, record) in (first..).zip(bytes.chunks_exact(TASK_BYTES)) {
        // Most records are free, most of the time.
        if u64_at(record, 0).is_multiple_of(2) {
            continue;
        }
        let TaskRecord { turn, key, started_ns, done, total, deadline_ns, flags, tid, label } =
            TaskRecord::read(record);
        let done = if total == 0 { done } else { done.min(total) };
        let started_ns = started_ns.min(now_ns);
        tasks.push(Task {
            index,
            turn,
            key,
            started_ns,
            done,
            total,
            deadline_ns,
            flags,
            tid,
            label,
            uses: 0..0,
        });
    }
}
