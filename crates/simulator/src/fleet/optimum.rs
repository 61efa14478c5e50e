//! What could be had at best: the most goodput that a fleet's services can carry, as a linear programme (TopFull, section 3, Eq. 1).
//!
//! How much of each API to let in: not more than is offered, not less than is promised where that can be kept, and at each service not more
//! work than its instances can do. The most of the most important APIs first, then the most of these and the next ones, and so on. This
//! knows what services can do and APIs cost; no controller is told that, and none of theirs is used here.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};

/// A linear programme's worth of a fleet, as it stands at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// By service, work a second that its instances can do.
    pub capacity_per_s: Vec<f64>,
    /// By API.
    pub apis: Vec<Asked>,
}

/// What is asked for of one API.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Requests a second that users send.
    pub offered_per_s: f64,
    /// Requests a second that are promised.
    pub min_per_s: f64,
    /// From 1, the most important.
    pub priority: u32,
    /// By service, the work of one request.
    pub load: Vec<f64>,
}

/// How much below the best of a level its successors may fall: what the solver's arithmetic is good for.
const SLACK: f64 = 1e-7;

impl Best {
    /// Requests a second of each API.
    ///
    /// # Errors
    /// Where the solver fails, which no fleet should bring about: what it says.
    pub fn solve(&self) -> Result<Vec<f64>, String> {
        let kept = self.promises_kept()?;
        let mut priorities: Vec<u32> = self.apis.iter().map(|api| api.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let mut best: Vec<(u32, f64)> = Vec::new();
        let mut rates = vec![0.0; self.apis.len()];
        for &priority in &priorities {
            let counts = |api: &Asked| if api.priority <= priority { 1.0 } else { 0.0 };
            let (mut problem, variables) = self.problem(counts, kept);
            for &(level, goodput) in &best {
                let terms: Vec<_> = self.up_to(level, &variables).map(|variable| (variable, 1.0)).collect();
                problem.add_constraint(&terms, ComparisonOp::Ge, goodput * (1.0 - SLACK));
            }
            let solution = solve(&problem)?;
            rates = variables.iter().map(|&variable| solution.var_value(variable).max(0.0)).collect();
            let reached = self.up_to(priority, &rates).sum();
            best.push((priority, reached));
        }
        Ok(rates)
    }

    /// What of a list, one entry an API, is of APIs of this priority or a better one.
    fn up_to<'a, T: Copy>(&'a self, priority: u32, of: &'a [T]) -> impl Iterator<Item = T> + 'a {
        let apis = self.apis.iter().zip(of);
        apis.filter(move |(api, _)| api.priority <= priority).map(|(_, &entry)| entry)
    }

    /// The part of all promises that can be kept at once: all of them, unless more is promised than services can do.
    fn promises_kept(&self) -> Result<f64, String> {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let kept = problem.add_var(1.0, (0.0, 1.0));
        for (service, &capacity) in self.capacity_per_s.iter().enumerate() {
            let promised: f64 = self.apis.iter().map(|api| api.load[service] * api.promised()).sum();
            if promised > 0.0 {
                problem.add_constraint([(kept, promised)], ComparisonOp::Le, capacity);
            }
        }
        Ok(solve(&problem)?.var_value(kept).clamp(0.0, 1.0) * (1.0 - SLACK))
    }

    fn problem(&self, counts: impl Fn(&Asked) -> f64, kept: f64) -> (Problem, Vec<Variable>) {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let mut variable =
            |api: &Asked| problem.add_var(counts(api), (api.promised() * kept, api.offered_per_s.max(0.0)));
        let variables: Vec<Variable> = self.apis.iter().map(&mut variable).collect();
        for (service, &capacity) in self.capacity_per_s.iter().enumerate() {
            let loads =
                self.apis.iter().zip(&variables).map(|(api, &variable)| (variable, api.load[service]));
            let terms: Vec<_> = loads.filter(|&(_, load)| load > 0.0).collect();
            if !terms.is_empty() {
                problem.add_constraint(&terms, ComparisonOp::Le, capacity);
            }
        }
        (problem, variables)
    }

    /// Requests a second that an API could have if nobody else were there.
    pub fn alone(&self, api: usize) -> f64 {
        let asked = &self.apis[api];
        let carried = self.capacity_per_s.iter().zip(&asked.load).filter(|&(_, &load)| load > 0.0);
        carried.map(|(capacity, load)| capacity / load).fold(asked.offered_per_s, f64::min)
    }
}

impl Asked {
    /// A promise is no more than what is asked for.
    fn promised(&self) -> f64 {
        self.min_per_s.min(self.offered_per_s).max(0.0)
    }
}

fn solve(problem: &Problem) -> Result<microlp::Solution, String> {
    let outcome = problem.solve().map_err(|error| format!("the optimum was not found: {error}"))?;
    outcome.into_solution().map_err(|_| "the optimum was not found: the solver stopped early".to_owned())
}
