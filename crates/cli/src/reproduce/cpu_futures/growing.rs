//! Fig. 1 and 4 on this machine: a process on one CPU, and ever more beside it. The same on virtual time are `fig1` and `fig4`.

use plimsoll_core::Nanos;
use plimsoll_simulator::figures::{Chart, Figure, Line};
use plimsoll_simulator::reproduce::Settings;
use plimsoll_simulator::reproduce::cpu_futures::accuracy::Errors;
use plimsoll_simulator::reproduce::cpu_futures::load::four_metrics;
use plimsoll_simulator::reproduce::findings::{Findings, Row};

use super::accuracy::{HOG, Look, Program, Task, herald, look, predicted_pct};
use super::turns::mean;

/// Fig. 1: so many come, one a second, of this nice value; the one they come to computes all the time, at nice 0.
const COMPETITORS: usize = 20;
const LOW: i32 = 10;
/// What they do: a quarter of the time they compute.
const LIGHT: Program = Program { compute: Nanos::from_millis(5), sleep: Nanos::from_millis(15) };
/// What the one loses at least until the last has come, in points: "a wide range of allocations".
const WIDE: f64 = 20.0;

/// Fig. 4: what every process does, how many come, and when the next. (The paper's come every 30 s.)
const ALIKE: Program = Program { compute: Nanos::from_millis(4), sleep: Nanos::from_millis(6) };
const OTHERS: usize = 9;
const EVERY: Nanos = Nanos::from_secs(6);
/// What was before a step counts for a second after it.
const SETTLES: Nanos = Nanos::from_millis(1_200);
/// What a process could have on an idle machine, in desires of its own, at least.
const MORE: f64 = 2.0;

/// A process that computes among ever more of little priority.
pub fn fig1_live(_: Settings) -> Result<Findings, String> {
    let steps = watch("fig1-live", HOG, (LIGHT, LOW), Nanos::from_secs(1), COMPETITORS)?;
    let share = |(second, looks): (usize, &Vec<Look>)| (second as f64, 100.0 * used_ms_per_s(looks) / 1e3);
    let points: Vec<(f64, f64)> = steps.iter().enumerate().map(share).collect();
    let (alone, last) = (points[0].1, points[points.len() - 1].1);
    let rows = vec![
        Row::beside("alone, % of a CPU", None, Some(alone)),
        Row::beside(format!("among {COMPETITORS}"), None, Some(last)),
        Row::no_less("lost by the last second, points", WIDE, alone - last),
    ];
    let lines = vec![Line { name: "today's scheduler".to_owned(), points }];
    let x = "s; a process of nice 10 more each";
    let chart = Chart::new("a CPU-bound process, nice 0", x, "% of a CPU", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig1-live".to_owned(), charts: vec![chart] }] })
}

/// The four metrics of a process as others like it come.
pub fn fig4_live(_: Settings) -> Result<Findings, String> {
    let steps = watch("fig4-live", ALIKE, (ALIKE, 0), EVERY, OTHERS)?;
    let began = |looks: &[Look]| looks.first().map_or(Nanos::ZERO, |look| look[0].0);
    let settles = |looks: &Vec<Look>| looks.partition_point(|look| look[0].0 < began(looks) + SETTLES);
    let settled: Vec<&[Look]> = steps.iter().map(|looks| &looks[settles(looks)..]).collect();
    let truth = used_ms_per_s(settled[0]);
    let mut errors = Errors::default();
    for looks in &settled {
        let desired: Vec<f64> = looks.iter().map(|look| look[0].2.desired_ms_per_s).collect();
        errors.desired_pct.push(100.0 * (mean(&desired) / truth - 1.0).abs());
        errors.predicted_pct.extend(predicted_pct(looks));
    }
    let alone: Vec<f64> = settled[0].iter().map(|look| look[0].2.potential_ms_per_s / truth).collect();
    let mut rows = vec![Row::beside("alone, ms/s", None, Some(truth))];
    rows.extend(errors.rows("ever more"));
    rows.push(Row::no_less("alone: potential over desired", MORE, mean(&alone)));
    let metrics = steps.iter().flatten().map(|look| (look[0].0.since(began(&steps[0])), look[0].2));
    Ok(Findings { rows, figures: vec![four_metrics("fig4-live", metrics)] })
}

/// What the one was seen to use, of looks at it.
fn used_ms_per_s(looks: &[Look]) -> f64 {
    let [first, .., last] = looks else { return f64::NAN };
    let ((from, before, _), (to, after, _)) = (first[0], last[0]);
    (after - before) / to.since(from).as_secs_f64()
}

/// Looks at one process of nice 0, alone and then with one more each time beside it; by how many those are.
fn watch(
    id: &str,
    one: Program,
    (other, nice): (Program, i32),
    every: Nanos,
    most: usize,
) -> Result<Vec<Vec<Look>>, String> {
    let (mut herald, one) = (herald()?, [Task::start(one, 1, 0)?]);
    let (mut others, mut steps) = (Vec::new(), Vec::new());
    for beside in 0..=most {
        eprintln!("{id}: beside {beside}");
        if beside > 0 {
            others.push(Task::start(other, 1, nice)?);
        }
        steps.push(look(&mut herald, &one, every)?);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use plimsoll_cpufutures::Allocations;

    use super::*;

    #[test]
    fn what_was_used_is_of_the_time_between_the_first_look_and_the_last() {
        let look = |ms, used_ms| vec![(Nanos::from_millis(ms), used_ms, Allocations::default())];
        assert_eq!(used_ms_per_s(&[look(500, 10.0), look(700, 500.0), look(2_500, 810.0)]), 400.0);
        assert!(used_ms_per_s(&[]).is_nan() && used_ms_per_s(&[look(500, 10.0)]).is_nan());
    }
}
