//! Which CPUs compete as one: threads that may run on different sets of CPUs meet where the sets meet.
//!
//! A scheduler moves threads from CPUs with much load to those with little, as far as their affinities let it. Where that ends, all
//! CPUs that a thread could be moved between have the same load: they are one pool. Loads are brought there as water finds its level,
//! one set of CPUs after the other, over and over.

use crate::task::CpuSet;

/// Rounds until the levels stand still, at most.
const ROUNDS: usize = 32;
/// Beyond so many sets times CPUs all is taken for one pool: rounds cost as much.
const MOST_CELLS: usize = 1 << 14;
/// A set does not reach a CPU on which it has less than this part of its load.
const TRACE: f64 = 1e-3;

/// Pools of CPUs, and which one the threads of each set run in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// How many CPUs each has.
    pub cpus: Vec<f64>,
    /// By set, an index into `cpus`.
    pub of_set: Vec<usize>,
}

impl Pools {
    /// Of sets with so much load each. CPUs that are off line do not count; a set with none that is on line is taken for all.
    pub fn of(online: &CpuSet, sets: &[CpuSet], loads: &[f64]) -> Pools {
        let cpus: Vec<usize> = online.iter().collect();
        let used: Vec<usize> = (0..sets.len()).filter(|&set| loads[set] > 0.0).collect();
        let one = || Pools { cpus: vec![cpus.len().max(1) as f64], of_set: vec![0; sets.len()] };
        let all = |set: &CpuSet| cpus.iter().all(|&cpu| set.contains(cpu));
        if used.iter().all(|&set| all(&sets[set])) || used.len() * cpus.len() > MOST_CELLS {
            return one();
        }
        // The CPUs of each set that is used, as indices into `cpus`.
        let members: Vec<Vec<usize>> = used
            .iter()
            .map(|&set| (0..cpus.len()).filter(|&at| sets[set].contains(cpus[at])).collect())
            .map(|own: Vec<usize>| if own.is_empty() { (0..cpus.len()).collect() } else { own })
            .collect();
        let parts = level(cpus.len(), &members, used.iter().map(|&set| loads[set]));
        // CPUs that a set has load on are of one pool.
        let mut pool: Vec<usize> = (0..cpus.len()).collect();
        for (own, part) in members.iter().zip(&parts) {
            let total: f64 = part.iter().sum();
            let mut reached =
                own.iter().zip(part).filter(|&(_, &part)| part > TRACE * total).map(|(&cpu, _)| cpu);
            let first = reached.next().unwrap_or(own[0]);
            for cpu in reached {
                let (from, to) = (pool[cpu], pool[first]);
                pool.iter_mut().filter(|pool| **pool == from).for_each(|pool| *pool = to);
            }
        }
        let mut names: Vec<usize> = pool.clone();
        names.sort_unstable();
        names.dedup();
        let name = |cpu: usize| names.binary_search(&pool[cpu]).unwrap_or(0);
        let mut pools = Pools { cpus: vec![0.0; names.len()], of_set: vec![0; sets.len()] };
        (0..cpus.len()).for_each(|cpu| pools.cpus[name(cpu)] += 1.0);
        for ((&set, own), part) in used.iter().zip(&members).zip(&parts) {
            let most = (0..own.len()).max_by(|&a, &b| part[a].total_cmp(&part[b])).unwrap_or(0);
            pools.of_set[set] = name(own[most]);
        }
        pools
    }
}

/// How the load of each set lies on its CPUs when no CPU has more than another to which load could be moved.
fn level(cpus: usize, members: &[Vec<usize>], loads: impl Iterator<Item = f64>) -> Vec<Vec<f64>> {
    let loads: Vec<f64> = loads.collect();
    let mut parts: Vec<Vec<f64>> = members.iter().map(|own| vec![0.0; own.len()]).collect();
    let mut on = vec![0.0; cpus];
    // Those that have no choice first.
    for ((own, part), &load) in
        members.iter().zip(&mut parts).zip(&loads).filter(|((own, _), _)| own.len() == 1)
    {
        (part[0], on[own[0]]) = (load, on[own[0]] + load);
    }
    let mut order: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS {
        let mut moved = 0.0f64;
        for ((own, part), &load) in
            members.iter().zip(&mut parts).zip(&loads).filter(|((own, _), _)| own.len() > 1)
        {
            own.iter().zip(&*part).for_each(|(&cpu, part)| on[cpu] -= part);
            order.clear();
            order.extend(own.iter().map(|&cpu| on[cpu]));
            order.sort_unstable_by(f64::total_cmp);
            let height = fill(&order, load);
            for (&cpu, part) in own.iter().zip(part.iter_mut()) {
                let poured = (height - on[cpu]).max(0.0);
                moved = moved.max((poured - *part).abs() / load);
                *part = poured;
                on[cpu] += poured;
            }
        }
        if moved < TRACE / 10.0 {
            break;
        }
    }
    parts
}

/// How high `water` stands over a ground of these heights, the lowest first.
fn fill(ground: &[f64], water: f64) -> f64 {
    let mut below = 0.0;
    for (count, &height) in ground.iter().enumerate() {
        if count > 0 && (below + water) / count as f64 <= height {
            return (below + water) / count as f64;
        }
        below += height;
    }
    (below + water) / ground.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(cpus: &[usize]) -> CpuSet {
        cpus.iter().copied().collect()
    }

    #[test]
    fn what_need_not_meet_does_not() {
        let online = CpuSet::first(4);
        let sets = [CpuSet::first(4), set(&[0]), set(&[1]), set(&[2, 3]), set(&[9])];
        let pools = Pools::of(&online, &sets, &[4.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!((pools.cpus, pools.of_set), (vec![4.0], vec![0; 5]));
        let pools = Pools::of(&online, &sets, &[0.0, 3.0, 1.0, 4.0, 0.0]);
        assert_eq!(pools.cpus, [1.0, 1.0, 2.0]);
        assert_eq!(pools.of_set[1..4], [0, 1, 2]);
        // One that may go anywhere stays away from the CPU that is full.
        let pools = Pools::of(&online, &sets, &[2.0, 30.0, 1.0, 1.0, 0.0]);
        assert_eq!((pools.of_set[1], pools.cpus[pools.of_set[1]]), (0, 1.0));
        assert_eq!(pools.cpus[pools.of_set[0]], 3.0);
        // What may run nowhere is taken for what may run anywhere.
        let pools = Pools::of(&online, &sets, &[0.0, 1.0, 0.0, 0.0, 4.0]);
        assert_eq!(pools.cpus[pools.of_set[4]], 4.0);
    }

    /// The load of the fullest CPUs must be that of the union of sets with most load on fewest CPUs: by trying all unions.
    fn fullest(cpus: usize, members: &[Vec<usize>], loads: &[f64]) -> f64 {
        (1..1u32 << cpus)
            .map(|union| {
                let inside = |own: &Vec<usize>| own.iter().all(|&cpu| union >> cpu & 1 == 1);
                let load: f64 =
                    members.iter().zip(loads).filter(|(own, _)| inside(own)).map(|(_, load)| load).sum();
                load / f64::from(union.count_ones())
            })
            .fold(0.0, f64::max)
    }

    proptest! {
        #[test]
        fn levels_are_as_low_as_can_be(
            sets in prop::collection::vec((1u32..32, 0.1f64..10.0), 1..6)
        ) {
            let members: Vec<Vec<usize>> =
                sets.iter().map(|&(mask, _)| (0..5).filter(|cpu| mask >> cpu & 1 == 1).collect()).collect();
            let loads: Vec<f64> = sets.iter().map(|&(_, load)| load).collect();
            let parts = level(5, &members, loads.iter().copied());
            let mut on = [0.0; 5];
            for ((own, part), load) in members.iter().zip(&parts).zip(&loads) {
                prop_assert!((part.iter().sum::<f64>() - load).abs() < 1e-9);
                own.iter().zip(part).for_each(|(&cpu, part)| on[cpu] += part);
            }
            let most = on.iter().copied().fold(0.0, f64::max);
            let expected = fullest(5, &members, &loads);
            prop_assert!((most / expected - 1.0).abs() < 0.02, "{most} for {expected}");
        }
    }
}
