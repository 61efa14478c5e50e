//! What comes of settings that take turns, where a machine that others share is half as fast for some seconds, then as fast as it is again:
//! neighbours are compared, and of the differences between two the middle half counts, so that who came or went in between is not among it.

/// The mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of the middle half of all.
pub fn middle_half(mut all: Vec<f64>) -> f64 {
    mean(within_quarters(&mut all))
}

/// By how much the middle half of all differs, at most.
pub fn spread(mut all: Vec<f64>) -> f64 {
    match within_quarters(&mut all) {
        [least, .., most] => *most - *least,
        _ => 0.0,
    }
}

fn within_quarters(all: &mut [f64]) -> &[f64] {
    all.sort_by(f64::total_cmp);
    let quarter = all.len() / 4;
    &all[quarter..all.len() - quarter]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_or_goes_between_two_turns_does_not_count() {
        let mut more = vec![0.01; 36];
        more[..9].fill(1.0);
        more[9..18].fill(-0.5);
        assert!((middle_half(more.clone()) - 0.01).abs() < 1e-9);
        assert_eq!(spread(more), 0.0);
        let all = vec![6.0, 2.0, 3.0, 1.0];
        assert_eq!((middle_half(all.clone()), spread(all)), (2.5, 1.0));
        assert_eq!(spread(vec![1.0]), 0.0);
    }
}
