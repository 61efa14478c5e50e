//! Numbers as they are shown.

/// `1.0x`, `12.3x`, `123x`; `inf` where nothing was got at all. A `~` before it says how little is known of it.
pub fn slowdown(slowdown: f64, low_confidence: bool) -> String {
    let sign = if low_confidence { "~" } else { "" };
    match slowdown {
        s if s >= 1e5 => format!("{sign}inf"),
        s if s >= 99.95 => format!("{sign}{s:.0}x"),
        s => format!("{sign}{s:.1}x"),
    }
}

/// Milliseconds a second: one digit after the point where there is room for it.
pub fn ms_per_s(ms: f64) -> String {
    match ms {
        ms if ms >= 99.95 => format!("{ms:.0}"),
        ms if ms >= 0.05 => format!("{ms:.1}"),
        _ => "-".to_owned(),
    }
}

/// As much of it as fits. The end of a path says more than its beginning, of a name the beginning.
pub fn cut(text: &str, width: usize) -> String {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    if text.chars().count() <= width {
        return text.chars().map(clean).collect();
    }
    text.chars().map(clean).take(width.saturating_sub(1)).chain((width > 0).then_some('…')).collect()
}

/// A line of eighths, one character a value in 0..=1. The lowest eighth stands for zero, so that there is a floor to see.
pub fn sparkline(heights: impl Iterator<Item = f64>) -> String {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    heights.map(|height| EIGHTHS[((height * 7.0).round() as usize).min(7)]).collect()
}

/// The greatest of each so many values that so many characters are enough; the latest are the last.
pub fn squeeze(values: impl ExactSizeIterator<Item = f64>, most: usize, width: usize) -> Vec<f64> {
    let each = most.div_ceil(width.max(1)).max(1);
    let values: Vec<f64> = values.collect();
    let mut squeezed: Vec<f64> = values
        .rchunks(each)
        .take(width)
        .map(|chunk| chunk.iter().copied().fold(f64::MIN, f64::max))
        .collect();
    squeezed.reverse();
    squeezed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        assert_eq!(
            [1.0, 9.96, 99.94, 99.96, 1234.0].map(|s| slowdown(s, false)),
            ["1.0x", "10.0x", "99.9x", "100x", "1234x"]
        );
        assert_eq!(slowdown(f64::INFINITY, true), "~inf");
        assert_eq!([0.0, 0.04, 0.05, 99.9, 999.6].map(ms_per_s), ["-", "-", "0.1", "99.9", "1000"]);
    }

    #[test]
    fn what_does_not_fit_is_cut_and_what_would_move_the_cursor_is_not_shown() {
        assert_eq!(cut("nginx", 5), "nginx");
        assert_eq!(cut("postgres", 5), "post…");
        assert_eq!(cut("a\x1b[2Jb", 10), "a?[2Jb");
        assert_eq!(cut("ab", 0), "");
    }

    #[test]
    fn lines_are_squeezed_by_their_greatest_from_the_end() {
        assert_eq!(sparkline([0.0, 0.5, 1.0, 7.0].into_iter()), "▁▅██");
        assert_eq!(squeeze([1.0, 9.0, 2.0, 3.0, 4.0].into_iter(), 6, 3), [1.0, 9.0, 4.0]);
        assert_eq!(squeeze([1.0, 9.0].into_iter(), 60, 60), [1.0, 9.0]);
        assert_eq!(squeeze([].into_iter(), 60, 0), [] as [f64; 0]);
    }
}
