//! `ladder = [...]`: the mean response time that is owed at which arrival rate.

use super::report::Report;
use super::table::table;
use super::units::Rate;
use super::value::{Node, Shape, Value};
use crate::{Ladder, Nanos};

const EXAMPLE: &str = "[{ below = \"1000/s\", mean = \"1s\" }, { mean = \"3s\" }]";

table! {
    /// A band of arrival rates, and what is owed there.
    pub struct Rung {
        /// Where the band ends and the next begins. The last band has no end.
        below: Option<Rate>,
        /// The mean response time that is owed in it.
        mean: Nanos,
    }
}

impl Value for Ladder {
    const SHAPE: Shape =
        Shape { kind: || "a list of bands".to_owned(), example: || EXAMPLE.to_owned(), ..Vec::<Rung>::SHAPE };
    fn read(node: Node<'_>, report: &mut Report) -> Option<Ladder> {
        let rungs = Vec::<Rung>::read(node, report)?;
        let at = |i: usize| node.value.get_ref().get(i).map_or_else(|| node.span(), |rung| rung.span());
        let Some((last, rest)) = rungs.split_last() else {
            return node.fail(report, format!("no band; write for example {EXAMPLE}"));
        };
        if let Some(end) = last.below {
            let message = format!(
                "nothing is owed from {end} on: a gap; add a last band without `below`, as {{ mean = \"3s\" }}"
            );
            report.error(at(rest.len()), message);
            return None;
        }
        let mut bands = Vec::with_capacity(rest.len());
        for (i, Rung { below, mean }) in rest.iter().enumerate() {
            let Some(below) = below else {
                let message = "a band without `below` overlaps all after it; write where it ends, as below = \"1000/s\"";
                report.error(at(i), message);
                return None;
            };
            bands.push((below.per_s, *mean));
        }
        match Ladder::new(bands, last.mean) {
            Ok(ladder) => Some(ladder),
            Err((i, why)) => {
                report.error(at(i), why);
                None
            }
        }
    }
}
