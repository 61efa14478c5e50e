//! The text format of Prometheus and OpenMetrics, sample by sample, without a copy of what nobody wants: a page of cAdvisor has
//! thousands of lines, of which a few dozen matter.

use std::borrow::Cow;

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name of the metric.
    pub name: &'a str,
    /// The labels, as they are written.
    labels: &'a str,
    /// The value, NaN and the infinities among them.
    pub value: f64,
    /// When it was taken, in seconds since 1970, where that is said.
    pub at_s: Option<f64>,
}

/// The samples of a page; a line that is none is left out.
pub fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim_start();
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => {
            let end = closing(rest)?;
            (&rest[..end], &rest[end + 1..])
        }
        None => ("", rest),
    };
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    // An exemplar of OpenMetrics follows a `#`.
    let at = words.next().filter(|word| !word.starts_with('#'));
    let at_s = at.and_then(|at| at.parse::<f64>().ok()).filter(|at| at.is_finite()).map(seconds);
    (!name.is_empty()).then_some(Sample { name, labels, value, at_s })
}

/// Prometheus writes milliseconds, OpenMetrics seconds; they are a thousand times apart, and no sample is older than 1973.
fn seconds(at: f64) -> f64 {
    if at > 1e11 { at / 1e3 } else { at }
}

/// Where the labels end: at the first brace that is in no quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

impl<'a> Sample<'a> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        self.labels().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// All labels.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> + use<'a> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (name, after) = rest.trim_start_matches([',', ' ']).split_once('=')?;
            let after = after.trim_start().strip_prefix('"')?;
            let end = end_of_quote(after)?;
            rest = &after[end + 1..];
            Some((name.trim(), plain(&after[..end])))
        })
    }
}

fn end_of_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// Without its escapes.
fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_and_all_else_left_out() {
        let page = "# HELP a Words\n# TYPE a counter\na 1\nb{x=\"1\",y=\"two\"} 2.5e-1 1700000000000\n c{z=\"a}\\\"\\\\b\\n,q=\"} NaN\n\
                    d{} +Inf # {trace=\"1\"} 3\ne{x=\"} 1\nf one\n{x=\"1\"} 1\n\ng 1 1700000000.5\n";
        let found: Vec<Sample<'_>> = samples(page).collect();
        let names: Vec<&str> = found.iter().map(|sample| sample.name).collect();
        assert_eq!(names, ["a", "b", "c", "d", "g"]);
        let [a, b, c, d, g] = found[..] else { unreachable!() };
        assert_eq!((a.value, a.at_s, a.label("x")), (1.0, None, None));
        assert_eq!((b.value, b.at_s, b.label("y").as_deref()), (0.25, Some(1_700_000_000.0), Some("two")));
        assert_eq!(c.label("z").as_deref(), Some("a}\"\\b\n,q="));
        assert!(c.value.is_nan() && d.value.is_infinite() && d.at_s.is_none());
        assert_eq!(g.at_s, Some(1_700_000_000.5));
    }
}
