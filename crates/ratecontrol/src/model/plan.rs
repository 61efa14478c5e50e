//! From what is known of a cluster to its best rates.

use crate::topology::ApiId;

use super::simplex::Program;

/// An API in a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demand {
    pub api: ApiId,
    /// Requests a second that it is to get in any case,
    pub least: f64,
    /// and that it could use.
    pub most: f64,
    /// What it gets now.
    pub current: f64,
    pub priority: u32,
}

/// What is shared is shared in parts of this many of each API's demand.
const SLICES: usize = 8;
/// In clusters of more APIs than this, of half as many.
const MANY: usize = 16;

/// Solves for the rates of a cluster. Keeps its memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Who takes part; sorted by importance.
    pub demands: Vec<Demand>,
    /// What binds: the load that a request a second of each is, API by API, and how much there is.
    pub rows: Vec<f64>,
    pub rhs: Vec<f64>,
    /// What each gets, in requests a second.
    pub rates: Vec<f64>,
    program: Program,
    objective: Vec<f64>,
}

impl Plan {
    /// Begins a plan for nobody.
    pub fn begin(&mut self) {
        self.demands.clear();
        self.rows.clear();
        self.rhs.clear();
    }

    /// Solves it.
    pub fn solve(&mut self) {
        let apis = self.demands.len();
        self.rates.clear();
        self.rates.extend(self.demands.iter().map(|demand| demand.most));
        if self.rhs.is_empty() || apis == 0 {
            return;
        }
        let slices = if apis > MANY { SLICES / 2 } else { SLICES };
        // Slice by slice, not API by API: who is alike is filled alike.
        let span = |demand: &Demand| (demand.most - demand.least).max(0.0);
        self.program.begin((0..slices * apis).map(|at| span(&self.demands[at % apis]) / slices as f64));
        for (row, &rhs) in self.rows.chunks_exact(apis).zip(&self.rhs) {
            let promised: f64 = row.iter().zip(&self.demands).map(|(load, demand)| load * demand.least).sum();
            // A promise is kept, even where it is more than there is.
            self.program.row((0..slices * apis).map(|at| row[at % apis]), (rhs - promised).max(0.0));
        }
        for level in self.demands.chunk_by(|a, b| a.priority == b.priority) {
            let of = level[0].priority;
            self.objective.clear();
            let weigh = |at: usize| if self.demands[at % apis].priority == of { 1.0 } else { 0.0 };
            self.objective.extend((0..slices * apis).map(weigh));
            self.program.maximise(&self.objective);
        }
        // A tie goes to who has the smaller part of what it could use; who has it already keeps it, but for more than half a slice.
        self.objective.clear();
        self.objective.extend((0..slices * apis).map(|at| {
            let (slice, demand) = ((at / apis) as f64, &self.demands[at % apis]);
            let has = demand.current - demand.least > (slice + 0.5) * span(demand) / slices as f64;
            1.0 - (slice - if has { 0.5 } else { 0.0 }) / slices as f64
        }));
        self.program.maximise(&self.objective);
        for at in 0..apis {
            let got: f64 = (0..slices).map(|slice| self.program.get(slice * apis + at)).sum();
            self.rates[at] = self.demands[at].least + got;
        }
    }
}
