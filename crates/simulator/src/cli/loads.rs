//! `--load 0.9` and `--load 0.9:1.5:0.05`.

use std::str::FromStr;

/// Most steps of one range.
const MAX_STEPS: usize = 1_000;
/// Highest load.
const MAX_LOAD: f64 = 1_000.0;

/// One load or a range of them; each above zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads(pub Vec<f64>);

impl FromStr for Loads {
    type Err = String;
    fn from_str(text: &str) -> Result<Loads, String> {
        let wrong =
            || format!("`{text}` is not a load; write a number, or first:last:step as in 0.9:1.5:0.05");
        let parts: Vec<f64> =
            text.split(':').map(|part| part.trim().parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        if !parts.iter().all(|&part| part > 0.0 && part <= MAX_LOAD) {
            return Err(format!(
                "`{text}` is out of range; a load and a step are above 0 and at most {MAX_LOAD}"
            ));
        }
        match parts[..] {
            [load] => Ok(Loads(vec![load])),
            [first, last, step] if first <= last => {
                let steps = ((last - first) / step + 1e-9) as usize;
                if steps >= MAX_STEPS {
                    return Err(format!("`{text}` has more than {MAX_STEPS} steps; write a longer step"));
                }
                // As one would write it: 1.15, not 1.1500000000000001.
                let load = |i: usize| ((first + i as f64 * step) * 1e9).round() / 1e9;
                Ok(Loads((0..=steps).map(load).collect()))
            }
            [_, _, _] => Err(format!("`{text}` ends before it begins; write first:last:step")),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_read() {
        let loads = |text: &str| text.parse::<Loads>().map(|loads| loads.0);
        assert_eq!(loads("1.2"), Ok(vec![1.2]));
        assert_eq!(loads("1:1.3:0.1"), Ok(vec![1.0, 1.1, 1.2, 1.3]));
        let paper = loads("0.9:1.5:0.05").unwrap();
        assert_eq!((paper.len(), paper[5], paper[12]), (13, 1.15, 1.5));
        for bad in ["", "x", "0", "-1", "nan", "inf", "1:2", "2:1:0.1", "1:2:0", "1:2:1e-9", "1:2:3:4"] {
            assert!(loads(bad).is_err(), "{bad}");
        }
    }
}
