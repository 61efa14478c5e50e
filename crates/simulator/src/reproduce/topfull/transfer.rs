//! Fig. 17: what the learned controller gains where it was trained further on an application (section 4.3): on that one, and on another.
//!
//! How the weights were trained says the card beside them. They are measured by themselves, as the paper does, and as they run in production,
//! where the model looks on. Judged is the latter: whatever was learned, no network may do clearly worse there than the one that ships.

use plimsoll_core::config::fleet::Scenario;
use plimsoll_ratecontrol::Network;

use super::scenes::{SURGE_S, online_boutique, train_ticket};
use super::study::{Runs, Span, Weights, Who, compare};
use crate::figures::{Chart, Figure};
use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::topfull;

const BASE: Weights = Weights { name: "base", file: Network::BASE, alone: true };
const ON_TRAIN_TICKET: Weights = Weights {
    name: "trained on Train Ticket",
    file: include_bytes!("../../../../ratecontrol/models/train-ticket.safetensors"),
    alone: true,
};
const ON_ONLINE_BOUTIQUE: Weights = Weights {
    name: "trained on Online Boutique",
    file: include_bytes!("../../../../ratecontrol/models/online-boutique.safetensors"),
    alone: true,
};
/// What a network that was trained further may lose with the model looking on, in per cent.
const MAY_LOSE_PCT: f64 = 2.0;
/// Until both scenarios end.
const SPAN: Span = (SURGE_S, 90);

/// Both applications under all three.
pub fn fig17(settings: Settings) -> Result<Findings, String> {
    let (mut rows, mut charts) = (Vec::new(), Vec::new());
    for (name, application, own) in
        [("Train Ticket", train_ticket()?, 1), ("Online Boutique", online_boutique()?, 2)]
    {
        let (found, chart) = on(name, &application, own, settings)?;
        rows.extend(found);
        charts.push(chart);
    }
    Ok(Findings { rows, figures: vec![Figure { name: "fig17".to_owned(), charts }] })
}

/// One application; `own` is which of the networks was trained on it.
fn on(
    name: &str,
    application: &Scenario,
    own: usize,
    settings: Settings,
) -> Result<(Vec<Row>, Chart), String> {
    let networks = [BASE, ON_TRAIN_TICKET, ON_ONLINE_BOUTIQUE];
    let watched = networks.map(|network| Who::Learned(Weights { alone: false, ..network }));
    let all = compare(application, &[networks.map(Who::Learned), watched].concat(), settings)?;
    let mut rows = Vec::new();
    for (form, is_watched) in all.chunks(networks.len()).zip([false, true]) {
        for (nth, runs) in form.iter().enumerate() {
            let what = |what: &str| format!("{name}, {}: {what}", runs.who);
            rows.push(Row::beside(what("requests/s in time"), None, Some(runs.per_s(SPAN))));
            let share = 100.0 * runs.try_mean(|ran| ran.share(SPAN))?;
            rows.push(Row::beside(what("% of the optimum"), None, Some(share)));
            if nth > 0 {
                let (what, gain) = (what("% gained on base"), gain_pct(runs, &form[0]));
                let paper = (nth == own).then_some(topfull().transfer_gain_pct.low);
                rows.push(if is_watched {
                    Row::no_less(what, -MAY_LOSE_PCT, gain)
                } else {
                    Row::beside(what, paper, Some(gain))
                });
            }
        }
    }
    let lines = all.iter().map(|runs| runs.line(runs.who.to_string(), None, (0, SPAN.1))).collect();
    let best = all[0].first().optimum(SPAN)?.iter().sum();
    let chart = Chart::new(name, "seconds", "requests/s in time", lines).with_level("optimum", best);
    Ok((rows, chart))
}

fn gain_pct(runs: &Runs, base: &Runs) -> f64 {
    100.0 * (runs.per_s(SPAN) / base.per_s(SPAN) - 1.0)
}
