//! Fig. 17: what a controller gains that was trained further on the application it controls.

use crate::reproduce::Settings;
use crate::reproduce::findings::{Findings, Row};

/// Rows and a figure for a base model and one that was specialised belong here, held against `transfer_gain_pct`, once that was
/// done.
pub fn fig17(_: Settings) -> Result<Findings, String> {
    let rows = vec![Row::beside(
        "not measured: the learned controller was not trained on one application and tried on another yet",
        None,
        None,
    )];
    Ok(Findings { rows, figures: Vec::new() })
}
