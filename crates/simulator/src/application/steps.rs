//! The steps that a case writes, compiled into operations.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::program::{Amount, DEPTH, Op, Program, Reads, nanos};
use super::text::{Duration, Size, What};

/// One step as it is written: a verb, and what belongs to it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    enter: Option<String>,
    leave: Option<String>,
    /// To itself.
    lock: Option<String>,
    /// Together with others.
    share: Option<String>,
    unlock: Option<String>,
    /// Group commit: the lock.
    commit: Option<String>,
    /// A pool of pages.
    touch: Option<String>,
    /// A heap, for as long as the task lives.
    keep: Option<String>,
    /// A heap, for no time.
    churn: Option<String>,
    /// Work.
    cpu: Option<Duration>,
    /// Bytes to or from a device.
    io: Option<Size>,
    sleep: Option<Duration>,
    /// Units of progress.
    done: Option<u64>,
    /// Rounds of `steps`.
    repeat: Option<f64>,

    /// Of an amount.
    sigma: f64,
    /// Which device, or which processors if there are several.
    on: Option<String>,
    bytes: Option<Size>,
    pages: Option<f64>,
    /// The first page and how many there are from there.
    within: Option<[u32; 2]>,
    in_order: bool,
    /// Of a page that is not there, as a multiple of what the pool says.
    cost: Option<f64>,
    units: Option<f64>,
    /// For work: on so many processors at once; for bytes and pages: so many requests under way at once.
    at_once: Option<f64>,
    steps: Vec<Step>,
}

/// The resources of a case by their names.
pub struct Names<'a> {
    /// Where each is, and what.
    pub places: BTreeMap<&'a str, (u32, What)>,
}

impl Names<'_> {
    fn find(&self, name: &str, what: What) -> Result<u32, String> {
        match self.places.get(name) {
            Some(&(place, is)) if is == what => Ok(place),
            Some(&(_, is)) => Err(format!("`{name}` is {is:?} and no {what:?}")),
            None => {
                let known: Vec<&str> = self.places.keys().copied().collect();
                Err(format!("there is no resource `{name}`; there are {}", known.join(", ")))
            }
        }
    }

    /// The processors of this name.
    pub fn cpu(&self, name: &str) -> Result<u32, String> {
        self.find(name, What::Cpu)
    }

    /// The device of this name.
    pub fn device(&self, name: &str) -> Result<u32, String> {
        self.find(name, What::Device)
    }

    /// The one that is meant: by its name, or because there is only one.
    fn only(&self, name: Option<&String>, what: What) -> Result<u32, String> {
        if let Some(name) = name {
            return self.find(name, what);
        }
        let mut all = self.places.values().filter(|&&(_, is)| is == what);
        match (all.next(), all.next()) {
            (Some(&(place, _)), None) => Ok(place),
            _ => Err(format!("write on = \"...\" to say which {what:?} is meant")),
        }
    }

    /// Compiles what a task does, and what it does when it is cancelled.
    pub fn program(&self, steps: &[Step], undo: &[Step]) -> Result<Program, String> {
        let mut program = Program::default();
        program.total = self.compile(steps, 0, 1.0, &mut program.ops)?;
        program.undo = program.ops.len() as u32;
        if !undo.is_empty() {
            // The program itself ends before what undoes it: an endless loop cannot be left, a jump of none can.
            let skip = program.ops.len();
            program.ops.push(Op::Begin { times: Amount::of(0.0), end: 0 });
            program.undo = program.ops.len() as u32;
            self.compile(undo, 0, 1.0, &mut program.ops)?;
            program.ops[skip] = Op::Begin { times: Amount::of(0.0), end: program.ops.len() as u32 };
        }
        if program.ops.is_empty() {
            return Err("does nothing; write steps".to_owned());
        }
        Ok(program)
    }

    /// Appends the operations of `steps`; how much progress they report in `rounds`.
    fn compile(&self, steps: &[Step], depth: usize, rounds: f64, ops: &mut Vec<Op>) -> Result<u64, String> {
        let mut total = 0;
        for (i, step) in steps.iter().enumerate() {
            let at = |error: String| format!("step {}: {error}", i + 1);
            if let Some(times) = step.repeat {
                if depth == DEPTH {
                    return Err(at(format!("loops are nested more than {DEPTH} deep")));
                }
                if step.steps.is_empty() || times.is_nan() || times < 0.0 {
                    return Err(at("repeat needs a number of rounds and steps = [...]".to_owned()));
                }
                let begin = ops.len();
                let times = Amount { mean: times, sigma: step.sigma };
                ops.push(Op::Begin { times, end: 0 });
                total += self.compile(&step.steps, depth + 1, rounds * times.mean, ops).map_err(at)?;
                ops.push(Op::Again { body: begin as u32 + 1 });
                ops[begin] = Op::Begin { times, end: ops.len() as u32 };
            } else {
                let op = self.op(step).map_err(at)?;
                if let Op::Done(units) = op {
                    total += (units as f64 * rounds).round() as u64;
                }
                ops.push(op);
            }
        }
        Ok(total)
    }

    fn op(&self, step: &Step) -> Result<Op, String> {
        let Step { sigma, on, .. } = step;
        let need = |what: &str| format!("write {what} as well");
        let bytes = || step.bytes.map(|bytes| Amount { mean: bytes.0, sigma: *sigma });
        let units =
            || step.units.map(|units| Amount { mean: units, sigma: *sigma }).ok_or_else(|| need("units"));
        let at_once = step.at_once.unwrap_or(1.0);
        let cost = step.cost.unwrap_or(1.0);
        if !(at_once > 0.0 && cost > 0.0 && at_once <= 1e6 && (0.0..=10.0).contains(sigma)) {
            return Err("at_once and cost are above 0, and sigma between 0 and 10".to_owned());
        }
        let mut ops = Vec::new();
        let verbs = [
            step.enter.as_ref().map(|name| self.find(name, What::Pool).map(Op::Enter)),
            step.leave.as_ref().map(|name| self.find(name, What::Pool).map(Op::Leave)),
            step.lock
                .as_ref()
                .map(|name| Ok(Op::Lock { lock: self.find(name, What::Lock)?, exclusive: true })),
            step.share
                .as_ref()
                .map(|name| Ok(Op::Lock { lock: self.find(name, What::Lock)?, exclusive: false })),
            step.unlock.as_ref().map(|name| self.find(name, What::Lock).map(Op::Unlock)),
            step.commit.as_ref().map(|name| {
                let (lock, device) = (self.find(name, What::Lock)?, self.only(on.as_ref(), What::Device)?);
                Ok(Op::Commit { lock, device, bytes: bytes().ok_or_else(|| need("bytes"))? })
            }),
            step.touch.as_ref().map(|name| {
                let [first, among] = step.within.ok_or_else(|| need("within = [first, how many]"))?;
                if among == 0 || first.checked_add(among).is_none_or(|end| end > 1 << 24) {
                    return Err(
                        "within is out of range; there are at least one page and at most 2^24".to_owned()
                    );
                }
                let pages = Amount { mean: step.pages.ok_or_else(|| need("pages"))?, sigma: *sigma };
                let reads = Reads { first, among, in_order: step.in_order, cost, depth: at_once };
                Ok(Op::Touch { pool: self.find(name, What::Pages)?, pages, reads })
            }),
            step.keep.as_ref().map(|name| {
                Ok(Op::Allocate { heap: self.find(name, What::Heap)?, units: units()?, keep: true })
            }),
            step.churn.as_ref().map(|name| {
                Ok(Op::Allocate { heap: self.find(name, What::Heap)?, units: units()?, keep: false })
            }),
            step.cpu.map(|work| {
                let cpu = self.only(on.as_ref(), What::Cpu)?;
                Ok(Op::Cpu { cpu, work: nanos(work.0, *sigma), threads: at_once })
            }),
            step.io.map(|size| {
                let device = self.only(on.as_ref(), What::Device)?;
                Ok(Op::Io { device, bytes: Amount { mean: size.0, sigma: *sigma }, depth: at_once })
            }),
            step.sleep.map(|time| Ok(Op::Sleep(nanos(time.0, *sigma)))),
            step.done.map(|units| Ok(Op::Done(units))),
        ];
        ops.extend(verbs.into_iter().flatten());
        if ops.len() != 1 {
            let known =
                "enter, leave, lock, share, unlock, commit, touch, keep, churn, cpu, io, sleep, done, repeat";
            return Err(format!("does {} things; write exactly one of {known}", ops.len()));
        }
        ops.remove(0)
    }
}
