//! The optimum against exhaustive search: every corner of what is possible, by elimination.

use plimsoll_simulator::fleet::optimum::{Asked, Best};
use proptest::prelude::*;

const NEAR: f64 = 1e-6;

/// Solves `rows * x = right` for as many rows as unknowns; nothing where they do not determine one.
fn intersection(mut rows: Vec<(Vec<f64>, f64)>) -> Option<Vec<f64>> {
    let n = rows.len();
    for column in 0..n {
        let pivot =
            (column..n).max_by(|&a, &b| rows[a].0[column].abs().total_cmp(&rows[b].0[column].abs()))?;
        rows.swap(column, pivot);
        let (head, right) = rows[column].clone();
        if head[column].abs() < 1e-9 {
            return None;
        }
        for (_, of) in rows.iter_mut().enumerate().filter(|&(row, _)| row != column) {
            let factor = of.0[column] / head[column];
            of.0.iter_mut().zip(&head).for_each(|(value, head)| *value -= factor * head);
            of.1 -= factor * right;
        }
    }
    Some(rows.iter().enumerate().map(|(i, (row, right))| right / row[i]).collect())
}

/// `a * x <= b` for all that limits the rates.
fn limits(best: &Best) -> Vec<(Vec<f64>, f64)> {
    let n = best.apis.len();
    let unit =
        |api: usize, sign: f64| (0..n).map(|i| if i == api { sign } else { 0.0 }).collect::<Vec<f64>>();
    let services = best.capacity_per_s.iter().enumerate();
    let mut limits: Vec<_> = services
        .map(|(s, &capacity)| (best.apis.iter().map(|api| api.load[s]).collect(), capacity))
        .collect();
    for (api, asked) in best.apis.iter().enumerate() {
        limits.push((unit(api, 1.0), asked.offered_per_s));
        limits.push((unit(api, -1.0), -asked.min_per_s.min(asked.offered_per_s)));
    }
    limits
}

fn fits(limits: &[(Vec<f64>, f64)], rates: &[f64]) -> bool {
    limits.iter().all(|(row, right)| {
        row.iter().zip(rates).map(|(a, x)| a * x).sum::<f64>() <= right + NEAR * (1.0 + right.abs())
    })
}

/// Goodput of each priority level and all better ones.
fn levels(best: &Best, rates: &[f64]) -> Vec<f64> {
    (1..=3u32)
        .map(|level| {
            best.apis.iter().zip(rates).filter(|(api, _)| api.priority <= level).map(|(_, rate)| rate).sum()
        })
        .collect()
}

/// Whether the first level that differs by more than this part is the greater one.
fn better(a: &[f64], b: &[f64], near: f64) -> bool {
    let differs = a.iter().zip(b).find(|(a, b)| (*a - *b).abs() > near * (1.0 + b.abs()));
    differs.is_some_and(|(a, b)| a > b)
}

/// The best corner; the best of a linear programme is at one.
fn exhaustive(best: &Best) -> Option<Vec<f64>> {
    let (limits, n) = (limits(best), best.apis.len());
    let mut found: Option<Vec<f64>> = None;
    let mut chosen: Vec<usize> = (0..n).collect();
    loop {
        if let Some(rates) = intersection(chosen.iter().map(|&i| limits[i].clone()).collect())
            && fits(&limits, &rates)
            && found.as_ref().is_none_or(|before| better(&levels(best, &rates), &levels(best, before), 1e-7))
        {
            found = Some(rates);
        }
        // The next combination.
        let Some(i) = (0..n).rev().find(|&i| chosen[i] < limits.len() - n + i) else { return found };
        chosen[i] += 1;
        (i + 1..n).for_each(|j| chosen[j] = chosen[j - 1] + 1);
    }
}

/// Round numbers: two corners are the same or far apart, so that a hair of one level never buys a lot of the next.
fn fleets() -> impl Strategy<Value = Best> {
    let tens = |low: u32, high: u32| (low..=high).prop_map(|tens| 10.0 * f64::from(tens));
    (1usize..=4, 1usize..=4).prop_flat_map(move |(apis, services)| {
        let load = prop::collection::vec(prop::sample::select(vec![0.0, 0.0, 0.5, 1.0, 2.0, 3.0]), services);
        let asked = (tens(0, 100), tens(0, 2), 1u32..=3, load);
        let asked = asked.prop_map(|(offered_per_s, min_per_s, priority, load)| Asked {
            offered_per_s,
            min_per_s,
            priority,
            load,
        });
        let capacities = prop::collection::vec(tens(10, 150), services);
        let apis = prop::collection::vec(asked, apis);
        (capacities, apis).prop_map(|(capacity_per_s, apis)| Best { capacity_per_s, apis })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn no_corner_is_better(best in fleets()) {
        // Promises of 20 a second at most 3 times the work by 4 APIs: 240 may be more than a service can do.
        let expected = exhaustive(&best);
        let rates = best.solve().unwrap();
        match expected {
            Some(expected) => {
                prop_assert!(fits(&limits(&best), &rates), "{rates:?} is not possible");
                let (found, wanted) = (levels(&best, &rates), levels(&best, &expected));
                prop_assert!(!better(&wanted, &found, 1e-4) && !better(&found, &wanted, 1e-4), "{found:?} instead of {wanted:?}");
            }
            None => {
                // More is promised than can be done: what is possible is still kept to.
                let unpromised = Best { apis: best.apis.iter().map(|a| Asked { min_per_s: 0.0, ..a.clone() }).collect(), ..best.clone() };
                prop_assert!(fits(&limits(&unpromised), &rates));
            }
        }
    }
}

/// Fig. 1 of the paper.
#[test]
fn the_example_of_the_paper() {
    let api =
        |load: [f64; 2]| Asked { offered_per_s: 10_000.0, min_per_s: 0.0, priority: 1, load: load.to_vec() };
    let best = Best { capacity_per_s: vec![10_000.0, 3_000.0], apis: vec![api([1.0, 1.0]), api([1.0, 0.0])] };
    let rates = best.solve().unwrap();
    assert!((rates.iter().sum::<f64>() - 10_000.0).abs() < 1e-3 && rates[0] <= 3_000.0 + 1e-3, "{rates:?}");
    assert_eq!((best.alone(0), best.alone(1)), (3_000.0, 10_000.0));
    let mut first = best.clone();
    first.apis[1].priority = 2;
    assert!(
        (first.solve().unwrap()[0] - 3_000.0).abs() < 1e-2,
        "the more important one has all that its path carries"
    );
}
