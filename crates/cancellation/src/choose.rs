//! Who is to blame, and whom cancelling would help most (section 3.5, Alg. 1).
//!
//! **Who is to blame.** A task whose future use of a contended resource is far above what is usual and longer than an objective
//! leaves time for, if all such tasks together take a large part of the resource, more than they usually do, and this one no less
//! than most of them. Contended is what a tenth of the time is lost to, and no much smaller part than to another resource: what a
//! little is lost to is not why objectives are missed; nor is what has been lost all the time, where another resource has become contended
//! since ([`Rise`]). The paper has no such rules: the largest gain is cancelled, even where all are alike.
//!
//! **Whom.** The paper builds the set of tasks that no other dominates, in a quadratic number of comparisons, and takes the largest sum
//! of contention times gain from it. With weights above zero the largest sum of all is never dominated, so one pass over the uses gives
//! the same; where rounding makes two sums equal, the one with the larger gain on the first resource in which they differ is taken, which a
//! dominated one never has. Gains are parts of the resource's future use by all tasks: nanoseconds of a lock and pages of a pool cannot
//! be added otherwise.

use plimsoll_core::Nanos;

use crate::contention::SPAN;
use crate::decision::Candidate;
use crate::fading::{self, Pair};
use crate::gain::Gain;
use crate::progress;
use crate::rise::Rise;
use crate::scene::{Kind, Scene, Task, Use};
use crate::usual::{Usual, taken_by_all};

/// A resource is contended where requests lose this part of their time to it.
pub const CONTENDED: f64 = 0.1;
/// And to which they lose no less than this part of what they lose to the most contended one.
const COMPARABLE: f64 = 0.5;
/// Where contention with something has risen by so much since objectives were kept, others must have risen comparably: half of
/// [`CONTENDED`], as a new culprit is not yet seen in full when the first requests are late.
const RISEN: f64 = 0.05;
/// What less is lost to does not weigh in the choice.
const NEGLIGIBLE: f64 = 0.001;
/// To blame is only who will take this many times what is usual.
pub const FAR_ABOVE: f64 = 8.0;
/// Of the requests' time, what waiting for processors may excuse at most: a hold may then last ten times as long as an objective allows.
const MOST_SHORT: f64 = 0.9;
/// All who are to blame take this part of a resource together, beyond what they usually take.
pub const LARGE_PART: f64 = 0.3;
/// One of them takes no less than this part of what they take on average.
pub const NO_LESS: f64 = 0.5;
/// Who takes so many times what counts as far above what is usual is nobody's victim.
const BEYOND_DOUBT: f64 = 2.0;
/// Candidates that are told.
pub const CANDIDATES: usize = 8;

/// How a candidate's gains are made into one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// The sum over all resources, weighted by contention.
    #[default]
    All,
    /// The gain on the most contended resource alone (the first ablation of section 5.4).
    MostContended,
}

/// Who may be to blame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Blame {
    /// Who takes far more than is usual, by the rules above.
    #[default]
    FarAboveUsual,
    /// Everybody who uses something contended, as the paper has it.
    Anyone,
}

/// What is the same at every look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Who may be to blame.
    pub blame: Blame,
    /// What a gain is measured by.
    pub gain: Gain,
    /// How gains are made into one number.
    pub objective: Objective,
}

/// What is known beside what there is to see.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The contention of each resource.
    pub levels: &'a [f64],
    /// For how long requests ran lately, in ns.
    pub ran_ns: f64,
    /// What was lost before objectives were missed.
    pub rise: &'a Rise,
    /// What tasks usually take.
    pub usual: &'a Usual,
    /// What an objective leaves time for.
    pub limit: Nanos,
}

/// A task's gain on a resource.
#[derive(Clone, Copy, Debug)]
struct Row {
    amount: f64,
    resource: u32,
    /// What it took since the last look, if it will take far more than is usual; otherwise nothing.
    heavy: f32,
}

/// A task that may be to blame, and where its rows begin.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    task: u32,
    rows: u32,
}

/// What another one takes at least who is like one that was cancelled, of a resource. Its victims may take as much in a time, as they do not
/// get on; but they have not been at it for as long. Who takes far more than is usual may be one of those it came with, but not where it came
/// later: to work off what has waited takes long, too.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    resource: u32,
    per_ns: f64,
    /// Until when such as it came, and what those take in all; and those who came later.
    until: Nanos,
    amount: f64,
    later: f64,
}

impl Alike {
    fn is(&self, task: &Task, row: &Row, elapsed: Nanos) -> bool {
        // A hair less, as below.
        let took = f64::from(row.heavy) >= 0.999 * self.per_ns * elapsed.0 as f64;
        let least = if task.started_ns > self.until.0 { self.later } else { self.amount };
        row.resource == self.resource && took && row.amount >= least
    }
}

/// What is known of a resource while choosing.
#[derive(Clone, Copy, Debug)]
struct Column {
    kind: Kind,
    weight: f64,
    contended: bool,
    /// What counts as far above what is usual, in the resource's measure.
    far_above: f64,
    /// [`LARGE_PART`] and [`NO_LESS`], or nothing where anyone may be to blame.
    large_part: f64,
    no_less: f64,
    /// The future use of all tasks, and the recent use of those far above what is usual.
    future: f64,
    heavy: f64,
    heavies: u32,
    /// What one of those took at least to be to blame; more than anything if nobody is.
    blamed_from: f64,
    /// What a unit of gain is worth: the weight over the future use of all.
    worth: f64,
}

/// Chooses; keeps its memory from look to look.
#[derive(Debug, Default)]
pub struct Chooser {
    suspects: Vec<Suspect>,
    rows: Vec<Row>,
    columns: Vec<Column>,
    /// Of each resource, what all took lately, and of that those far above what is usual.
    lately: Vec<Pair>,
    candidates: Vec<Candidate>,
}

impl Chooser {
    /// Adds up who uses what.
    pub fn look(&mut self, scene: &Scene, known: Known<'_>, terms: Terms) {
        let Known { levels, ran_ns, rise, usual, limit } = known;
        let risen_by = |index, level| rise.of(index, level, ran_ns);
        let anyone = terms.blame == Blame::Anyone;
        self.columns.clear();
        let columns = scene.resources.iter().zip(levels).enumerate();
        let comparable = COMPARABLE * levels.iter().copied().fold(0.0, f64::max);
        // Where processors are short, who holds something holds it for longer, because it waits for one as its victims do.
        let processors =
            scene.resources.iter().zip(levels).filter(|(resource, _)| resource.kind == Kind::Cpu);
        let short = processors.map(|(_, &level)| level).fold(0.0, f64::max).min(MOST_SHORT);
        let patience = limit.0 as f64 / (1.0 - short);
        let steepest = (levels.iter().enumerate()).map(|(r, &level)| risen_by(r, level)).fold(0.0, f64::max);
        // Where nothing has risen much, what has been there all the time may have become too much.
        let risen = if steepest >= RISEN { COMPARABLE * steepest } else { f64::NEG_INFINITY };
        self.columns.extend(columns.map(|(index, (resource, &level))| {
            let is_new = level >= comparable && risen_by(index, level) >= risen;
            // Whoever holds it for less than an objective allows makes nobody late alone.
            let patience = if resource.kind.is_held() { patience } else { 0.0 };
            let far_above = patience.max(FAR_ABOVE * usual.taken(index));
            Column {
                kind: resource.kind,
                weight: if level > NEGLIGIBLE { level } else { 0.0 },
                contended: level >= CONTENDED && (is_new || anyone),
                far_above: match terms.blame {
                    Blame::Anyone => 0.0,
                    // While nothing is known of what is usual, nothing is far above it.
                    Blame::FarAboveUsual if far_above > 0.0 => far_above,
                    Blame::FarAboveUsual => f64::INFINITY,
                },
                large_part: if anyone { 0.0 } else { LARGE_PART },
                no_less: if anyone { 0.0 } else { NO_LESS },
                future: 0.0,
                heavy: 0.0,
                heavies: 0,
                blamed_from: f64::INFINITY,
                worth: 0.0,
            }
        }));
        if terms.objective == Objective::MostContended {
            let highest = self.columns.iter().map(|c| c.weight).fold(0.0, f64::max);
            let mut found = false;
            for column in &mut self.columns {
                column.weight = if column.weight == highest && !found { 1.0 } else { 0.0 };
                column.contended &= column.weight > 0.0;
                found |= column.weight > 0.0;
            }
        }
        self.suspects.clear();
        self.rows.clear();
        // Uses come in the order of tasks.
        for uses in scene.uses.chunk_by(|a, b| a.task == b.task) {
            let Some(task) = scene.tasks.get(uses[0].task as usize) else { continue };
            let rows = self.rows.len();
            if self.count(uses, progress::to_come(task), terms.gain) {
                self.suspects.push(Suspect { task: uses[0].task, rows: rows as u32 });
            } else {
                self.rows.truncate(rows);
            }
        }
    }

    /// Adds up a task's uses; whether it may be to blame for something contended.
    #[inline]
    fn count(&mut self, uses: &[Use], to_come: f64, gain: Gain) -> bool {
        let mut suspect = false;
        for used in uses {
            let Some(column) = self.columns.get_mut(used.resource as usize) else { continue };
            let amount = gain.amount(column.kind, to_come, used);
            if amount <= 0.0 {
                continue;
            }
            // Far above what is usual is a matter of the future in either ablation: it says who is no innocent.
            let future =
                if gain == Gain::Future { amount } else { Gain::Future.amount(column.kind, to_come, used) };
            let far_above = future > column.far_above;
            column.future += amount;
            let heavy = if far_above { used.recent as f64 } else { 0.0 };
            column.heavy += heavy;
            column.heavies += u32::from(heavy > 0.0);
            suspect |= far_above & column.contended;
            if column.weight > 0.0 {
                self.rows.push(Row { amount, resource: used.resource, heavy: heavy as f32 });
            }
        }
        suspect
    }

    /// What those far above what is usual took of each resource since the last look.
    pub fn heavy(&self) -> impl Iterator<Item = f64> {
        self.columns.iter().map(|column| column.heavy)
    }

    /// All who are to blame, the best first, at most [`CANDIDATES`], and first those that can be cancelled. `spared` tells whose turn has
    /// been: a task is cancelled at most once. While the effect of a cancellation is not seen yet, only those are to blame who are
    /// `alike` to what was cancelled: what else there is to see may be its doing.
    pub fn candidates(
        &mut self,
        elapsed: Nanos,
        scene: &Scene,
        usual: &Usual,
        mut spared: impl FnMut(u64) -> bool,
        alike: Option<&[Alike]>,
    ) -> &[Candidate] {
        let factor = fading::factor(elapsed, SPAN);
        self.lately.resize(self.lately.len().max(self.columns.len()), Pair::default());
        for (index, (column, resource)) in self.columns.iter_mut().zip(&scene.resources).enumerate() {
            let beyond = column.heavy - usual.heavy_in(index, elapsed);
            let all = taken_by_all(resource, elapsed);
            let lately = &mut self.lately[index];
            lately.add(factor, all, beyond.max(0.0));
            // Both now and lately: what comes in lumps is not always large, and who is gone took nothing now.
            let part = column.large_part;
            let is_large = all > 0.0 && beyond >= part * all && lately.ratio() >= part;
            if column.contended && is_large {
                // A hair less: the parts are kept in fewer digits than their sum.
                column.blamed_from = 0.999 * column.no_less * column.heavy / f64::from(column.heavies);
            }
            column.worth = if column.future > 0.0 { column.weight / column.future } else { 0.0 };
        }
        self.candidates.clear();
        if self.columns.iter().any(|column| column.blamed_from.is_finite()) {
            let mut end = self.rows.len();
            for suspect in self.suspects.iter().rev() {
                let rows = &self.rows[suspect.rows as usize..end];
                end = suspect.rows as usize;
                let task = &scene.tasks[suspect.task as usize];
                let blamed = |row: &Row| {
                    let took = f64::from(row.heavy);
                    let is_alike = alike.is_none_or(|some| some.iter().any(|one| one.is(task, row, elapsed)));
                    took > 0.0 && took >= self.columns[row.resource as usize].blamed_from && is_alike
                };
                if rows.iter().any(blamed) && !spared(task.id) {
                    insert(&mut self.candidates, &self.columns, rows, task);
                }
            }
        }
        &self.candidates
    }

    /// What it takes to be like this task, by what that took in the last `elapsed`: something of each resource of which it was to take far
    /// more than is usual. Some of those may not be contended yet; and of what is not held for a time, more than is usual is enough, as
    /// who has just begun has not taken much of it. `until` is when the first was cancelled of those of which this may be one.
    pub fn alike<'a>(
        &'a self,
        elapsed: Nanos,
        until: Nanos,
        task: &Task,
        uses: impl Iterator<Item = &'a Use> + 'a,
    ) -> impl Iterator<Item = Alike> {
        let to_come = progress::to_come(task);
        uses.filter_map(move |used| {
            let Column { kind, far_above, .. } = self.columns[used.resource as usize];
            let above = if kind.is_held() { far_above } else { far_above / FAR_ABOVE };
            let amount = Gain::Future.amount(kind, to_come, used);
            let per_ns = NO_LESS * used.recent as f64 / elapsed.0 as f64;
            let later = NO_LESS * amount;
            let least = later.min(BEYOND_DOUBT * far_above);
            (amount > above).then_some(Alike { resource: used.resource, per_ns, until, amount: least, later })
        })
    }

    /// The resource that a candidate holds up most: the largest part of its score.
    pub fn held_up(&self, candidate: &Candidate) -> u32 {
        let part = |&(r, gain): &(u32, f64)| self.columns[r as usize].weight * gain;
        candidate.gains.iter().max_by(|a, b| part(a).total_cmp(&part(b))).map_or(0, |&(r, _)| r)
    }
}

/// Keeps the best in order. Those that can not be cancelled come last: they are told, never chosen.
fn insert(best: &mut Vec<Candidate>, columns: &[Column], rows: &[Row], task: &Task) {
    let score = rows.iter().map(|row| columns[row.resource as usize].worth * row.amount).sum();
    let rank = (task.cancellable, score);
    // Most of many are worse than all of the few that are kept, and are dropped before anything is written down.
    if best.len() == CANDIDATES && best.last().is_some_and(|worst| rank < (worst.cancellable, worst.score)) {
        return;
    }
    let gains = rows.iter().map(|row| (row.resource, row.amount / columns[row.resource as usize].future));
    let candidate = Candidate { task: task.id, score, gains: gains.collect(), cancellable: task.cancellable };
    let at = best.partition_point(|other| is_before(other, &candidate));
    best.insert(at, candidate);
    best.truncate(CANDIDATES);
}

fn is_before(a: &Candidate, b: &Candidate) -> bool {
    (b.cancellable.cmp(&a.cancellable))
        .then_with(|| b.score.total_cmp(&a.score))
        .then_with(|| first_difference(&b.gains, &a.gains))
        .is_le()
}

/// Compares gains resource by resource; what is not there is zero. Both are in the order of resources.
fn first_difference(a: &[(u32, f64)], b: &[(u32, f64)]) -> std::cmp::Ordering {
    for (&(ra, ga), &(rb, gb)) in a.iter().zip(b) {
        let order = rb.cmp(&ra).then(ga.total_cmp(&gb));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

#[cfg(test)]
mod tests;
