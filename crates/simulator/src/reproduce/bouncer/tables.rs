//! Tables 3, 4 and 5: rejections in per cent.

use super::study::{ALLOWANCE, BASIC, Cell, OVERLOAD, Study, UNDERSERVED};
use crate::reproduce::findings::{Findings, Row};
use crate::reproduce::values::{self, TableTolerance};

const ALL: &str = "all";

/// By class, for Bouncer alone and with each of its strategies, over the load.
pub fn table3(study: &Study) -> Findings {
    let paper = &values::bouncer().table3;
    let loads = &paper.loads;
    let policies = [
        (BASIC, "basic", &paper.basic),
        (ALLOWANCE, "allowance", &paper.allowance),
        (UNDERSERVED, "underserved", &paper.underserved),
    ];
    let mut rows = Vec::new();
    for (policy, name, paper) in policies {
        let columns = [
            ("fast", &paper.fast),
            ("medium_fast", &paper.medium_fast),
            ("medium_slow", &paper.medium_slow),
            ("slow", &paper.slow),
            (ALL, &paper.all),
        ];
        for (load, cell) in &study.over_loads(policy) {
            let i = loads.iter().position(|l| l == load).expect("a load of the table");
            for (class, values) in columns {
                let what = format!("{name} at {load:.2}, {class}, % rejected");
                rows.push(row(what, values[i], cell, class, paper.tolerance));
            }
        }
    }
    Findings { rows, figures: Vec::new() }
}

/// By the allowance, at 1.5 times the full load.
pub fn table4(study: &Study) -> Findings {
    let paper = &values::bouncer().table4;
    let columns = [("medium_slow", &paper.medium_slow), ("slow", &paper.slow), (ALL, &paper.all)];
    by_parameter(study, "allowance", &paper.allowance, &columns, paper.tolerance)
}

/// By the strength of the help, at 1.5 times the full load.
pub fn table5(study: &Study) -> Findings {
    let paper = &values::bouncer().table5;
    let columns = [("medium_slow", &paper.medium_slow), ("slow", &paper.slow), (ALL, &paper.all)];
    by_parameter(study, "underserved", &paper.alpha, &columns, paper.tolerance)
}

fn by_parameter(
    study: &Study,
    parameter: &str,
    arguments: &[f64],
    columns: &[(&str, &Vec<f64>)],
    tolerance: TableTolerance,
) -> Findings {
    let policies = with_parameter(parameter, arguments);
    let cells: Vec<_> = policies.iter().map(|policy| (policy.as_str(), OVERLOAD)).collect();
    let mut rows = Vec::new();
    for (i, cell) in study.cells(&cells).iter().enumerate() {
        for (class, values) in columns {
            let what = format!("{parameter}={}, {class}, % rejected", arguments[i]);
            rows.push(row(what, values[i], cell, class, tolerance));
        }
    }
    Findings { rows, figures: Vec::new() }
}

/// Bouncer with these values of a parameter.
pub fn with_parameter(parameter: &str, arguments: &[f64]) -> Vec<String> {
    arguments.iter().map(|argument| format!("bouncer,{parameter}={argument:?}")).collect()
}

fn row(what: String, paper: f64, cell: &Cell, class: &str, tolerance: TableTolerance) -> Row {
    if class == ALL {
        Row::near(what, paper, tolerance.all, cell.rejected_pct())
    } else {
        Row::near(what, paper, tolerance.class, cell.class_rejected_pct(class))
    }
}
