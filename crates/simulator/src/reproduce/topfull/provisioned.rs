//! Fig. 16: what must be kept ready for a spike of two minutes, with rates at the entry and without.

use plimsoll_core::config::fleet::Scenario;

use super::scenes::{Altered, SURGE_S, online_boutique, train_ticket};
use super::study::{OURS, Span, Who, compare_all};
use crate::figures::{Chart, Figure, Line};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::topfull;

const NOBODY: Who = Who::Named(Controller::None);
/// Two minutes.
const SPAN: Span = (SURGE_S, SURGE_S + 120);
/// Instances of every service, as multiples of what the scenario has.
const PROVISIONED: [f64; 7] = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5];

/// Both applications.
pub fn fig16(settings: Settings) -> Result<Findings, String> {
    let paper = topfull().fewer_vcpus_pct;
    let (mut rows, mut charts) = (Vec::new(), Vec::new());
    for (name, application, paper) in [
        ("Train Ticket", train_ticket()?, paper.train_ticket),
        ("Online Boutique", online_boutique()?, paper.online_boutique),
    ] {
        let scenarios: Vec<Scenario> = PROVISIONED
            .iter()
            .map(|factor| application.clone().lasting(SPAN.1).with_instances(*factor))
            .collect();
        let instances = |scenario: &Scenario| scenario.services.iter().map(|s| f64::from(s.instances)).sum();
        let provided: Vec<f64> = scenarios.iter().map(instances).collect();
        let all = compare_all(&scenarios, &[OURS, NOBODY], settings)?;
        let of = |nth: usize| -> Vec<(f64, f64)> {
            provided.iter().zip(&all).map(|(&instances, both)| (instances, both[nth].per_s(SPAN))).collect()
        };
        let (ours, without) = (of(0), of(1));
        let worst = all.iter().map(|both| both[0].per_s(SPAN) / both[1].per_s(SPAN)).fold(f64::NAN, f64::min);
        rows.push(Row::at_least(
            format!("{name}: instances fewer for the same goodput, %"),
            paper,
            fewer_pct(&ours, &without),
        ));
        rows.push(Row::no_less(format!("{name}: goodput over no control's, the least"), 0.98, worst));
        for (&(instances, with), &(_, without)) in ours.iter().zip(&without) {
            let gain = Some(with / without);
            rows.push(Row::beside(
                format!("{name}, {instances} instances: goodput over no control's"),
                None,
                gain,
            ));
        }
        let lines = vec![
            Line { name: OURS.to_string(), points: ours },
            Line { name: NOBODY.to_string(), points: without },
        ];
        charts.push(Chart::new(name, "instances", "requests/s in time", lines));
    }
    Ok(Findings { rows, figures: vec![Figure { name: "fig16".to_owned(), charts }] })
}

/// The most that could be left out, in per cent: of each number of instances without, against the fewest with that serve at least as much.
/// Both are instances and goodput, by rising instances.
fn fewer_pct(with: &[(f64, f64)], without: &[(f64, f64)]) -> f64 {
    let left_out = without.iter().filter_map(|&(instances, goodput)| {
        let enough = with.iter().find(|&&(_, has)| has >= goodput)?;
        Some(100.0 * (1.0 - enough.0 / instances))
    });
    left_out.fold(f64::NAN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_may_be_left_out_is_against_the_fewest_that_do() {
        let with = [(10.0, 100.0), (20.0, 200.0), (40.0, 300.0)];
        let without = [(10.0, 5.0), (20.0, 90.0), (40.0, 250.0), (50.0, 400.0)];
        // 20 without are as good as 10 with; 40 need 40, and nobody has as much as 50.
        assert_eq!(fewer_pct(&with, &without), 50.0);
        assert!(fewer_pct(&with, &[]).is_nan());
    }
}
