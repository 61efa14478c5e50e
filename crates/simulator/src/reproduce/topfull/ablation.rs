//! Fig. 10: what each part of it is worth, in three applications.

use plimsoll_core::config::fleet::Scenario;

use super::scenes::{SURGE_S, online_boutique, trace_demo, train_ticket};
use super::study::{OURS, Runs, Span, Who, compare};
use crate::figures::{Chart, Figure, Line};
use crate::fleet::run::Controller;
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::{Ablation, topfull};

const MIMD: Who = Who::Named(Controller::Mimd);
/// TopFull's naive form: one service of the whole fleet at a time (section 6.2).
const SEQUENTIAL: Who = Who::Unclustered(Controller::Mimd);
const NOBODY: Who = Who::Named(Controller::None);

/// The paper takes parts away from TopFull with its learned controller. Fixed steps stand in for ours as for theirs; what clusters are worth
/// is shown by fixed steps, with and without, as the model solves for the whole fleet in either case. In all three applications as they are
/// here the overloaded services hang together in one cluster, so there is next to nothing to be gained; the paper's trace fell apart into many.
pub fn fig10(settings: Settings) -> Result<Findings, String> {
    let paper = topfull().ablation_loss_pct;
    let mut rows = Vec::new();
    let mut lines: Vec<Line> = Vec::new();
    let applications: [(&str, Scenario, Span, Ablation); 3] = [
        ("trace demo", trace_demo()?, (0, 120), paper.trace_demo),
        ("Train Ticket", train_ticket()?, (SURGE_S, 90), paper.train_ticket),
        ("Online Boutique", online_boutique()?, (SURGE_S, 90), paper.online_boutique),
    ];
    for (at, (name, scenario, span, paper)) in applications.into_iter().enumerate() {
        let all = compare(&scenario, &[OURS, MIMD, SEQUENTIAL, NOBODY], settings)?;
        let [ours, mimd, sequential, nobody] = &all[..] else { return Err("four ran".to_owned()) };
        let loss = |less: &Runs, more: &Runs| 100.0 * (1.0 - less.per_s(span) / more.per_s(span));
        rows.push(Row::no_less(format!("{name}: what fixed steps lose, %"), 0.0, loss(mimd, ours)));
        rows.push(Row::beside(
            format!("{name}: as the paper has it of its learned controller"),
            Some(paper.mimd),
            Some(loss(mimd, ours)),
        ));
        rows.push(Row::beside(
            format!("{name}: what fixed steps lose without clusters, %"),
            Some(paper.no_clusters),
            Some(loss(sequential, mimd)),
        ));
        rows.push(Row::no_less(format!("{name}: what no control loses, %"), 0.0, loss(nobody, ours)));
        for (nth, runs) in all.iter().enumerate() {
            let share = 100.0 * runs.try_mean(|ran| ran.share(span))?;
            rows.push(Row::beside(format!("{name}, {}: % of the optimum", runs.who), None, Some(share)));
            if at == 0 {
                lines.push(Line { name: runs.who.to_string(), points: Vec::new() });
            }
            lines[nth].points.push((at as f64 + 1.0, share));
        }
    }
    let x = "1 trace demo, 2 Train Ticket, 3 Online Boutique";
    let chart = Chart::new("Goodput while too much comes", x, "% of the optimum", lines);
    Ok(Findings { rows, figures: vec![Figure { name: "fig10".to_owned(), charts: vec![chart] }] })
}
