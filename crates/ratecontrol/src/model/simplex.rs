//! The linear programme of one cluster: as much as can be of the most important, then of the next, and what is a tie is shared.
//!
//! The primal simplex method with bounded variables on a condensed tableau. The programmes are small (callers times bottlenecks of one
//! cluster) and there is always a feasible start, nothing but what must be; so this is faster than a general solver by far, allocates
//! nothing once warm, and whenever it is stopped what it has is feasible. Lexicographic: when no column can improve an objective any more,
//! those that would make it worse may not enter for a lesser one, and are dropped.

/// What costs an important API less than this part is a tie: estimates are no more exact, and a tie is shared instead of won by noise.
const TIE: f64 = 0.02;
const EPSILON: f64 = 1e-9;

/// A programme: maximise, objective by objective, over 0 <= x <= upper with a x <= rhs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    columns: usize,
    /// Condensed tableau, row by row: what each basic variable loses when a nonbasic one grows.
    a: Vec<f64>,
    /// What the basic variables are now.
    value: Vec<f64>,
    /// Upper bounds of variables: the columns as given, then the slack of each row.
    upper: Vec<f64>,
    /// Whether a variable is counted from its upper bound downwards.
    flipped: Vec<bool>,
    /// Which variable each row and each column stands for.
    row: Vec<u32>,
    column: Vec<u32>,
    /// What the objective gains when a nonbasic variable grows.
    gain: Vec<f64>,
    pivot: Vec<f64>,
    /// Columns that stay when others are dropped.
    kept: Vec<usize>,
}

impl Program {
    /// Begins one with variables of these upper bounds, zero or more each, and no row.
    pub fn begin(&mut self, upper: impl Iterator<Item = f64>) {
        self.upper.clear();
        self.upper.extend(upper);
        self.columns = self.upper.len();
        self.a.clear();
        self.value.clear();
        self.row.clear();
        self.column.clear();
        self.column.extend(0..self.columns as u32);
        self.flipped.clear();
        self.flipped.resize(self.columns, false);
    }

    /// Adds a row: the sum of these, one a variable, shall not exceed `rhs`, which is zero or more. In units of `rhs`, so that what is left
    /// of any row compares.
    pub fn row(&mut self, coefficients: impl Iterator<Item = f64>, rhs: f64) {
        let unit = rhs.max(1e-6);
        self.a.extend(coefficients.map(|coefficient| coefficient / unit));
        self.value.push(rhs / unit);
        self.row.push(self.upper.len() as u32);
        self.upper.push(f64::INFINITY);
        self.flipped.push(false);
    }

    /// Maximises an objective, weights of zero or more on the variables, without making those before it worse (by more than a tie for each
    /// unit moved among equals).
    pub fn maximise(&mut self, objective: &[f64]) {
        self.price(objective);
        // Far more than is needed: about two pivots a row and column. Cycling is possible in theory, so after half of them the first
        // column that improves is taken, not the best (Bland).
        let most = 4 * (self.columns + self.row.len()) + 16;
        let mut turns = 0;
        while turns < most
            && let Some(least) = self.least_gain(turns > most / 2)
        {
            // Of equals the first comes first, and then the next: what goes from bound to bound changes nothing for the others.
            for column in 0..self.columns {
                if self.may_enter(column) && self.gain[column] >= least * (1.0 - EPSILON) {
                    turns += 1;
                    if self.enter(column) {
                        break;
                    }
                }
            }
        }
        self.drop_columns(|variable, gain| {
            // Only equals can tie: however little a lesser one takes away, it takes it away.
            let equal = objective.get(variable).is_some_and(|&weight| weight > 0.0);
            gain < if equal { -TIE } else { -EPSILON }
        });
    }

    /// Takes out the columns of which the variable and the gain are such; the variables stay as they are.
    fn drop_columns(&mut self, is_done: impl Fn(usize, f64) -> bool) {
        let before = self.columns;
        self.kept.clear();
        self.kept.extend((0..before).filter(|&at| !is_done(self.column[at] as usize, self.gain[at])));
        self.columns = self.kept.len();
        // Each goes to where it is or before that, so nothing is overwritten that is still to go.
        for row in 0..self.row.len() {
            for (to, &from) in self.kept.iter().enumerate() {
                self.a[row * self.columns + to] = self.a[row * before + from];
            }
        }
        for (to, &from) in self.kept.iter().enumerate() {
            self.column[to] = self.column[from];
        }
        self.column.truncate(self.columns);
    }

    /// What a variable is.
    pub fn get(&self, variable: usize) -> f64 {
        let basic = self.row.iter().position(|&id| id as usize == variable);
        let value = basic.map_or(0.0, |row| self.value[row]).clamp(0.0, self.upper[variable]);
        if self.flipped[variable] { self.upper[variable] - value } else { value }
    }

    /// The gains of all columns by an objective over the given variables.
    fn price(&mut self, objective: &[f64]) {
        let weight = |id: u32| {
            let weight = objective.get(id as usize).copied().unwrap_or(0.0);
            if self.flipped[id as usize] { -weight } else { weight }
        };
        let mut gain = std::mem::take(&mut self.gain);
        gain.clear();
        gain.extend(self.column.iter().map(|&id| weight(id)));
        for (row, &id) in self.row.iter().enumerate() {
            let weight = weight(id);
            if weight != 0.0 {
                let a = &self.a[row * self.columns..][..self.columns];
                gain.iter_mut().zip(a).for_each(|(gain, a)| *gain -= weight * a);
            }
        }
        self.gain = gain;
    }

    /// Whether a column improves the objective.
    fn may_enter(&self, column: usize) -> bool {
        self.gain[column] > EPSILON && self.upper[self.column[column] as usize] > 0.0
    }

    /// What a column is to gain that enters next: the most that any does, or in the order of the columns anything at all.
    fn least_gain(&self, in_order: bool) -> Option<f64> {
        let gains = (0..self.columns).filter(|&at| self.may_enter(at)).map(|at| self.gain[at]);
        let most = gains.reduce(f64::max)?;
        Some(if in_order { EPSILON } else { most })
    }

    /// Lets a nonbasic variable grow until something is at its bound: itself, or a basic variable, which then takes its column. Whether that
    /// was so.
    fn enter(&mut self, column: usize) -> bool {
        let (mut step, mut leaving) = (self.upper[self.column[column] as usize], None);
        let mut largest = 0.0;
        for row in 0..self.row.len() {
            let a = self.a[row * self.columns + column];
            let room = if a > EPSILON {
                self.value[row].max(0.0) / a
            } else if a < -EPSILON {
                (self.upper[self.row[row] as usize] - self.value[row]).max(0.0) / -a
            } else {
                continue;
            };
            // Of rows that are full at the same time the one with the largest pivot: the arithmetic stays sound.
            if room < step || (room == step && a.abs() > largest) {
                (step, leaving, largest) = (room, Some((row, a < 0.0)), a.abs());
            }
        }
        let Some((row, at_upper)) = leaving else {
            if step.is_finite() {
                self.flip_column(column, step);
            } else {
                self.upper[self.column[column] as usize] = 0.0; // unbounded: there is no such programme here, but never for ever
            }
            return false;
        };
        if at_upper {
            self.flip_row(row);
        }
        self.exchange(row, column);
        true
    }

    /// A nonbasic variable goes from one bound to the other.
    fn flip_column(&mut self, column: usize, upper: f64) {
        for row in 0..self.row.len() {
            let a = &mut self.a[row * self.columns + column];
            self.value[row] -= *a * upper;
            *a = -*a;
        }
        self.gain[column] = -self.gain[column];
        self.flipped[self.column[column] as usize] ^= true;
    }

    /// A basic variable is counted from its upper bound.
    fn flip_row(&mut self, row: usize) {
        let id = self.row[row] as usize;
        self.value[row] = self.upper[id] - self.value[row];
        self.a[row * self.columns..][..self.columns].iter_mut().for_each(|a| *a = -*a);
        self.flipped[id] ^= true;
    }

    /// The variable of a column becomes basic, that of a row nonbasic at zero.
    fn exchange(&mut self, row: usize, column: usize) {
        let columns = self.columns;
        let divisor = 1.0 / self.a[row * columns + column];
        self.value[row] *= divisor;
        let own = &mut self.a[row * columns..][..columns];
        own.iter_mut().for_each(|a| *a *= divisor);
        own[column] = divisor;
        self.pivot.clear();
        self.pivot.extend_from_slice(own);
        let eliminate = |others: &mut [f64], factor: f64| {
            others.iter_mut().zip(&self.pivot).for_each(|(other, pivot)| *other -= factor * pivot);
            others[column] = -factor * divisor;
        };
        for other in (0..self.row.len()).filter(|&other| other != row) {
            let factor = self.a[other * columns + column];
            if factor != 0.0 {
                self.value[other] -= factor * self.value[row];
                eliminate(&mut self.a[other * columns..][..columns], factor);
            }
        }
        let factor = self.gain[column];
        eliminate(&mut self.gain, factor);
        std::mem::swap(&mut self.row[row], &mut self.column[column]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All corners of the feasible region, by solving every choice of as many tight constraints as there are variables.
    fn corners(a: &[Vec<f64>], rhs: &[f64], upper: &[f64]) -> Vec<Vec<f64>> {
        let n = upper.len();
        let mut constraints: Vec<(Vec<f64>, f64)> = a.iter().cloned().zip(rhs.iter().copied()).collect();
        for (at, &most) in upper.iter().enumerate() {
            let unit: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i == at))).collect();
            constraints.push((unit.iter().map(|x| -x).collect(), 0.0));
            constraints.push((unit, most));
        }
        let mut found = Vec::new();
        for chosen in 0u32..1 << constraints.len() {
            if chosen.count_ones() as usize != n {
                continue;
            }
            let tight =
                (0..constraints.len()).filter(|at| chosen >> at & 1 == 1).map(|at| constraints[at].clone());
            let Some(x) = gauss(tight.collect()) else { continue };
            let dot = |row: &[f64]| row.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>();
            if constraints.iter().all(|(row, rhs)| dot(row) <= rhs + 1e-7) {
                found.push(x);
            }
        }
        found
    }

    fn gauss(mut rows: Vec<(Vec<f64>, f64)>) -> Option<Vec<f64>> {
        let n = rows.len();
        for at in 0..n {
            let pivot = (at..n).max_by(|&i, &j| rows[i].0[at].abs().total_cmp(&rows[j].0[at].abs()))?;
            rows.swap(at, pivot);
            if rows[at].0[at].abs() < 1e-9 {
                return None;
            }
            for other in (0..n).filter(|&other| other != at) {
                let factor = rows[other].0[at] / rows[at].0[at];
                let (row, rhs) = rows[at].clone();
                rows[other].0.iter_mut().zip(&row).for_each(|(a, b)| *a -= factor * b);
                rows[other].1 -= factor * rhs;
            }
        }
        Some((0..n).map(|at| rows[at].1 / rows[at].0[at]).collect())
    }

    fn program(a: &[Vec<f64>], rhs: &[f64], upper: &[f64]) -> Program {
        let mut program = Program::default();
        program.begin(upper.iter().copied());
        a.iter().zip(rhs).for_each(|(row, &rhs)| program.row(row.iter().copied(), rhs));
        program
    }

    fn case() -> impl Strategy<Value = (Vec<Vec<f64>>, Vec<f64>, Vec<f64>)> {
        (1usize..4, 1usize..4).prop_flat_map(|(n, m)| {
            let cell = prop_oneof![Just(0.0), 0.1f64..3.0];
            let rows = prop::collection::vec(prop::collection::vec(cell, n), m);
            (rows, prop::collection::vec(0.0f64..10.0, m), prop::collection::vec(0.0f64..10.0, n))
        })
    }

    proptest! {
        /// The first objective is as good as at the best corner; the second as good as at any corner that is best for the first.
        #[test]
        fn as_good_as_the_best_corner((a, rhs, upper) in case(), levels in prop::collection::vec(0u8..2, 3)) {
            let n = upper.len();
            let level = |of: u8| -> Vec<f64> { levels[..n].iter().map(|&l| f64::from(u8::from(l == of))).collect() };
            let corners = corners(&a, &rhs, &upper);
            let value = |x: &[f64], objective: &[f64]| x.iter().zip(objective).map(|(x, c)| x * c).sum::<f64>();
            let mut program = program(&a, &rhs, &upper);
            let mut best = corners;
            for of in 0..2 {
                let objective = level(of);
                program.maximise(&objective);
                let most = best.iter().map(|x| value(x, &objective)).fold(0.0, f64::max);
                best.retain(|x| value(x, &objective) >= most - 1e-6);
                let x: Vec<f64> = (0..n).map(|at| program.get(at)).collect();
                for (row, rhs) in a.iter().zip(&rhs) {
                    prop_assert!(value(&x, row) <= rhs + 1e-6, "{:?} is too much", x);
                }
                prop_assert!(x.iter().zip(&upper).all(|(x, upper)| (-1e-9..=upper + 1e-9).contains(x)));
                // Near ties of the first level may be given up for the second.
                let got: f64 = value(&x, &objective);
                prop_assert!(got >= most - 1e-6, "{} of {} at level {}", got, most, of);
            }
            // What the second took from the first, it took from ties.
            let x: Vec<f64> = (0..n).map(|at| program.get(at)).collect();
            let first = best.iter().map(|x| value(x, &level(0))).fold(0.0, f64::max);
            prop_assert!(value(&x, &level(0)) >= first - TIE * 30.0 - 1e-6);
        }
    }

    #[test]
    fn equals_share_what_they_share() {
        let mut plan = program(&[vec![1.0; 6]], &[3.0], &[1.0; 6]);
        plan.maximise(&[1.0; 6]);
        assert!(((0..6).map(|at| plan.get(at)).sum::<f64>() - 3.0).abs() < 1e-9);
        // Columns 3..6 are the second slices of 0..3.
        plan.maximise(&[1.0, 1.0, 1.0, 0.5, 0.5, 0.5]);
        let is = |at: usize, value: f64| (plan.get(at) - value).abs() < 1e-9;
        assert!((0..3).all(|at| is(at, 1.0) && is(at + 3, 0.0)));
    }

    #[test]
    fn a_lesser_one_takes_nothing_however_little_it_costs() {
        let mut plan = program(&[vec![1.0, 0.001]], &[1.0], &[2.0, 1_000.0]);
        plan.maximise(&[1.0, 0.0]);
        plan.maximise(&[0.0, 1.0]);
        assert!((plan.get(0) - 1.0).abs() < 1e-9 && plan.get(1).abs() < 1e-9);
    }
}
