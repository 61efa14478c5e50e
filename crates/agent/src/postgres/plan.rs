//! A plan as `EXPLAIN (FORMAT JSON)` tells it, as far as it says how long a statement takes: pure.

use std::error::Error;

use serde::Deserialize;
use tokio_postgres::types::{FromSql, Type};

use crate::server::mask::{self, Dialect};

/// A plan.
#[derive(Debug, Deserialize)]
pub struct Plan {
    #[serde(rename = "Plan")]
    root: Node,
    #[serde(rename = "Execution Time")]
    took_ms: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Node {
    #[serde(rename = "Node Type")]
    kind: String,
    #[serde(rename = "Total Cost")]
    cost: f64,
    #[serde(rename = "Plans", default)]
    plans: Vec<Node>,
}

impl Plan {
    /// What it costs in all, in the planner's units; nothing where it writes, which the planner leaves out.
    pub fn cost(&self) -> Option<f64> {
        Some(self.root.cost).filter(|cost| cost.is_finite() && *cost > 0.0 && !self.root.writes())
    }

    /// How long it took in all, if it was carried out.
    pub fn took_ns(&self) -> Option<u64> {
        self.took_ms.map(|ms| (ms * 1e6) as u64)
    }
}

impl Node {
    fn writes(&self) -> bool {
        self.kind == "ModifyTable" || self.plans.iter().any(Node::writes)
    }
}

impl FromSql<'_> for Plan {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Plan, Box<dyn Error + Sync + Send>> {
        // A list with one for each statement, of which there is one.
        let [plan] = serde_json::from_slice::<[Plan; 1]>(raw)?;
        Ok(plan)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSON
    }
}

/// Whether a statement reads, as far as its first word tells. Others write, whose cost the planner does not know, or have no plan.
pub fn reads(statement: &str) -> bool {
    let shown = mask::mask(statement, Dialect::Postgres);
    let start = shown.trim_start_matches(['(', ' ']);
    let word = start.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    ["select", "with", "values", "table"].iter().any(|reads| word.eq_ignore_ascii_case(reads))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, Box<dyn Error + Sync + Send>> {
        Plan::from_sql(&Type::JSON, text.as_bytes())
    }

    /// `select count(*) from big`, of a PostgreSQL 15.
    const COUNT: &str = r#"[{"Plan": {"Node Type": "Aggregate", "Strategy": "Plain", "Partial Mode": "Simple",
        "Parallel Aware": false, "Async Capable": false, "Startup Cost": 56948.00, "Total Cost": 56948.01, "Plan Rows": 1,
        "Plan Width": 8, "Plans": [{"Node Type": "Seq Scan", "Parent Relationship": "Outer", "Parallel Aware": false,
        "Async Capable": false, "Relation Name": "big", "Alias": "big", "Startup Cost": 0.00, "Total Cost": 51948.00,
        "Plan Rows": 2000000, "Plan Width": 0}]}}]"#;

    /// `with gone as (delete from big returning id) select count(*) from gone`, of the same.
    const DELETE: &str = r#"[{"Plan": {"Node Type": "Aggregate", "Strategy": "Plain", "Startup Cost": 96948.00,
        "Total Cost": 96948.01, "Plan Rows": 1, "Plan Width": 8, "Plans": [{"Node Type": "ModifyTable",
        "Operation": "Delete", "Parent Relationship": "InitPlan", "Subplan Name": "CTE gone", "Startup Cost": 0.00,
        "Total Cost": 51948.00, "Plan Rows": 2000000, "Plan Width": 4, "Plans": [{"Node Type": "Seq Scan",
        "Startup Cost": 0.00, "Total Cost": 51948.00, "Plan Rows": 2000000, "Plan Width": 6}]}, {"Node Type": "CTE Scan",
        "Startup Cost": 0.00, "Total Cost": 40000.00, "Plan Rows": 2000000, "Plan Width": 0}]}}]"#;

    #[test]
    fn the_cost_of_a_plan_is_that_of_its_root() {
        let plan = plan(COUNT).unwrap();
        assert_eq!((plan.cost(), plan.took_ns()), (Some(56_948.01), None));
    }

    #[test]
    fn how_long_it_took_is_known_of_one_that_was_carried_out() {
        let carried_out = COUNT.replace("}]}}]", "}]}, \"Planning Time\": 0.1, \"Execution Time\": 256.5}]");
        assert_eq!(plan(&carried_out).unwrap().took_ns(), Some(256_500_000));
    }

    #[test]
    fn what_a_plan_writes_has_no_cost() {
        assert_eq!(plan(DELETE).unwrap().cost(), None);
    }

    #[test]
    fn what_is_no_plan_is_an_error() {
        for text in
            ["", "[]", "{}", "[{\"Plan\": {}}]", &format!("[{COUNT}, {COUNT}]"), &"[".repeat(1_000_000)]
        {
            assert!(plan(text).is_err(), "{text}");
        }
        assert_eq!(plan(&COUNT.replace("56948.01", "-1")).unwrap().cost(), None);
    }

    #[test]
    fn only_what_reads_is_planned() {
        for statement in [
            "select 1",
            " \n(SELECT 1) union (select 2)",
            "/* app:select */ -- more\n WITH x as (select 1) table x",
            "values(1)",
            "TABLE t",
        ] {
            assert!(reads(statement), "{statement}");
        }
        for statement in [
            "",
            "'select'",
            "selected",
            "update t set a = 1",
            "-- select\ndelete from t",
            "explain analyze select 1",
            "execute x",
            "fetch 10 from c",
            "create table x as select 1",
            "do $$ select $$",
        ] {
            assert!(!reads(statement), "{statement}");
        }
    }
}
