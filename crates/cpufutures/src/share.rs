//! The proportional share of threads that are not always eligible (section 4.3.2, Eq. 6-8), in a hierarchy of groups on several CPUs.
//!
//! A thread that runs for R and then sleeps for Z wants d = R/(R+Z) of a CPU. At a speed of c it runs for R/c, so that it is eligible for
//! t = d/(d + c(1-d)) of the time, the t_i/S of Eq. 6, and gets c*t. How fast it runs while it is eligible is how its weight compares
//! with what else is eligible then, which is its potential (Eq. 8). So speeds follow from presence and presence from speeds: this
//! repeats the two until nothing changes.
//! What it competes with is in `competing`.

use crate::competing::Competing;

/// Rounds until speeds and presences agree, at most.
const ROUNDS: usize = 24;
/// Presences that change by no more agree.
const ENOUGH: f64 = 5e-4;

/// A thread that shares a pool of CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    /// An index into the groups of the pool.
    pub group: usize,
    pub weight: f64,
    /// The fraction of one CPU that it would use if it never waited, above 0.
    pub demand: f64,
}

/// A group of a pool; parents come before their children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// An index into the groups of the pool, its own for the root.
    pub parent: usize,
    pub weight: f64,
    /// In CPUs; infinite for none.
    pub quota: f64,
}

/// What competes in a group: threads and groups alike.
#[derive(Clone, Copy, Debug)]
struct Entity {
    parent: usize,
    weight: f64,
    /// The part of the time in which it is eligible.
    present: f64,
    /// Its weight where that is no more than it can use, else as much of it as it can use.
    usable: f64,
    /// The CPUs that it can use while it is eligible, on average,
    cap: f64,
    /// and at most.
    limit: f64,
    /// The CPUs that it gets while it is eligible: the speed of a thread.
    gets: f64,
}

/// Works the shares out. Kept between uses for the memory it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// Groups first, then the runners.
    entities: Vec<Entity>,
    /// All but the root by parent, the greatest weight first,
    children: Vec<u32>,
    /// and where those of each group begin.
    begins: Vec<usize>,
    /// By group, the CPUs that it has to give while it is eligible, and what competes for them.
    rooms: Vec<(f64, Competing)>,
}

impl Share {
    /// How fast each runner runs while it is eligible, from 0 to 1, on `cpus` CPUs (above 0). `speeds` holds a first guess of each.
    pub fn speeds(&mut self, cpus: f64, groups: &[Sharing], runners: &[Runner], speeds: &mut [f64]) {
        self.build(groups, runners, speeds);
        for round in 0..ROUNDS {
            self.gather(cpus, groups);
            self.divide(cpus, groups.len());
            let mut changed = 0.0f64;
            for (entity, runner) in self.entities[groups.len()..].iter_mut().zip(runners) {
                let present = present(runner.demand, entity.gets);
                changed = changed.max((present - entity.present).abs());
                // Half-way from some time on, lest it swing.
                entity.present = if round < 4 { present } else { (present + entity.present) / 2.0 };
            }
            if changed < ENOUGH {
                break;
            }
        }
        for (speed, entity) in speeds.iter_mut().zip(&self.entities[groups.len()..]) {
            *speed = entity.gets;
        }
    }

    /// How fast one more thread or group of this weight would run in a group; as [`Share::speeds`] left it.
    pub fn speed_of_another(&self, group: usize, weight: f64) -> f64 {
        let (room, all) = self.rooms[group];
        all.share(room, weight, 1.0)
    }

    fn build(&mut self, groups: &[Sharing], runners: &[Runner], speeds: &[f64]) {
        let entity = |parent, weight| Entity {
            parent,
            weight,
            usable: weight,
            present: 0.0,
            cap: 1.0,
            limit: 1.0,
            gets: 0.0,
        };
        self.entities.clear();
        self.entities.extend(groups.iter().map(|group| entity(group.parent, group.weight)));
        self.entities.extend(runners.iter().zip(speeds).map(|(runner, &speed)| Entity {
            present: present(runner.demand, speed),
            ..entity(runner.group, runner.weight)
        }));
        self.children.clear();
        self.children.extend(1..self.entities.len() as u32);
        let entities = &self.entities;
        self.children.sort_unstable_by(|&a, &b| {
            let (a, b) = (&entities[a as usize], &entities[b as usize]);
            a.parent.cmp(&b.parent).then(b.weight.total_cmp(&a.weight))
        });
        self.begins.clear();
        for (place, &child) in self.children.iter().enumerate() {
            let parent = entities[child as usize].parent;
            while self.begins.len() <= parent {
                self.begins.push(place);
            }
        }
        self.begins.resize(groups.len() + 1, self.children.len());
    }

    /// From the threads up: when a group is eligible, and how many CPUs it can use then.
    fn gather(&mut self, cpus: f64, groups: &[Sharing]) {
        for group in (0..groups.len()).rev() {
            let (mut absent, mut mean, mut most) = (1.0, 0.0, 0.0);
            for &child in &self.children[self.begins[group]..self.begins[group + 1]] {
                let child = &self.entities[child as usize];
                absent *= 1.0 - child.present;
                mean += child.present * child.cap;
                most += child.limit;
            }
            let entity = &mut self.entities[group];
            entity.present = 1.0 - absent;
            let part = entity.present.max(f64::MIN_POSITIVE);
            entity.limit = (groups[group].quota / part).min(cpus).min(most);
            entity.cap = (mean / part).min(entity.limit);
        }
    }

    /// From the root down: what each gets of what its group gets.
    fn divide(&mut self, cpus: f64, groups: usize) {
        self.entities[0].gets = cpus;
        self.rooms.clear();
        for group in 0..groups {
            let room = self.entities[group].gets;
            let children = &self.children[self.begins[group]..self.begins[group + 1]];
            readjust(&mut self.entities, children, room);
            let mut all = Competing::NONE;
            for &child in children {
                let child = &self.entities[child as usize];
                all.add(child.usable, child.present);
            }
            self.rooms.push((room, all));
            for &child in children {
                let child = &mut self.entities[child as usize];
                let weight = child.usable;
                let others = all.without(weight, child.present);
                child.gets = others.share(room, weight, child.limit);
            }
        }
    }
}

/// A weight that is worth more CPUs than can be used counts only as far as it can be, or it would take from the others what nobody
/// gets: the weight readjustment of surplus fair scheduling. `children` are in the order of their weights, the greatest first.
fn readjust(entities: &mut [Entity], children: &[u32], mut room: f64) {
    let mut lighter = 0.0;
    for &child in children {
        let child = &mut entities[child as usize];
        child.usable = child.weight;
        lighter += child.weight;
    }
    let mut capped = 0;
    for &child in children {
        let child = &entities[child as usize];
        let (rest, others) = (lighter - child.weight, room - child.cap);
        if others <= 0.0 || rest <= 0.0 || child.weight * others <= child.cap * rest {
            break;
        }
        (lighter, room, capped) = (rest, others, capped + 1);
    }
    // Beside the lighter ones, which share what is left, each of these counts as what it uses.
    for &child in &children[..capped] {
        let child = &mut entities[child as usize];
        child.usable = child.cap * lighter / room;
    }
}

/// The part of the time in which a thread is eligible that wants this much of a CPU and runs at this speed.
pub(crate) fn present(demand: f64, speed: f64) -> f64 {
    if demand <= 0.0 { 0.0 } else { demand / (demand + speed.max(1e-9) * (1.0 - demand)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOT: Sharing = Sharing { parent: 0, weight: 1024.0, quota: f64::INFINITY };

    fn speeds(cpus: f64, groups: &[Sharing], runners: &[Runner]) -> Vec<f64> {
        let mut speeds = vec![1.0; runners.len()];
        Share::default().speeds(cpus, groups, runners, &mut speeds);
        speeds
    }

    fn runner((weight, demand): (f64, f64)) -> Runner {
        Runner { group: 0, weight, demand }
    }

    fn allocations(cpus: f64, runners: &[Runner]) -> Vec<f64> {
        let speeds = speeds(cpus, &[ROOT], runners);
        runners.iter().zip(speeds).map(|(runner, speed)| speed * present(runner.demand, speed)).collect()
    }

    /// The exact speeds of threads that run and sleep for times without memory (1 s a cycle on average): the stationary state of all
    /// 2^n combinations of those that are eligible, by iteration, each shared by weight with none above one CPU.
    fn exact(cpus: f64, runners: &[Runner]) -> Vec<f64> {
        let n = runners.len();
        let rates: Vec<Vec<f64>> = (0..1usize << n)
            .map(|set| {
                let (mut rates, mut open) = (vec![0.0; n], set);
                let mut left = cpus;
                loop {
                    let inside = |at: &usize| open >> at & 1 == 1;
                    let all: f64 = (0..n).filter(inside).map(|at| runners[at].weight).sum();
                    let full: Vec<usize> =
                        (0..n).filter(inside).filter(|&at| runners[at].weight * left >= all).collect();
                    if full.is_empty() || left <= 0.0 {
                        (0..n).filter(inside).for_each(|at| rates[at] = left * runners[at].weight / all);
                        return rates;
                    }
                    full.iter()
                        .for_each(|&at| (rates[at], open, left) = (1.0, open & !(1 << at), left - 1.0));
                    left = left.max(0.0);
                }
            })
            .collect();
        let mut state = vec![1.0 / rates.len() as f64; rates.len()];
        let step = 0.01;
        for _ in 0..20_000 {
            let mut next = state.clone();
            for (set, rate) in rates.iter().enumerate() {
                for at in 0..n {
                    let Runner { demand, .. } = runners[at];
                    let flow = match set >> at & 1 {
                        1 if demand < 1.0 => rate[at] / demand,
                        1 => 0.0,
                        _ if demand < 1.0 => 1.0 / (1.0 - demand),
                        _ => 100.0,
                    };
                    let moved = (flow * step).min(0.5 / n as f64) * state[set];
                    next[set] -= moved;
                    next[set ^ (1 << at)] += moved;
                }
            }
            state = next;
        }
        (0..n)
            .map(|at| {
                let on = || (0..rates.len()).filter(move |set| set >> at & 1 == 1);
                on().map(|set| state[set] * rates[set][at]).sum::<f64>()
                    / on().map(|set| state[set]).sum::<f64>()
            })
            .collect()
    }

    #[test]
    fn near_to_the_exact_speeds() {
        for cpus in [1.0, 2.0] {
            for runners in [
                vec![(1024.0, 1.0), (1024.0, 0.3)],
                vec![(1024.0, 1.0), (1024.0, 0.3), (1024.0, 0.6)],
                vec![(1024.0, 1.0), (335.0, 1.0), (1024.0, 0.5), (1024.0, 0.5)],
                vec![(1024.0, 0.3); 4],
                vec![(1024.0, 0.6); 5],
                vec![(88_761.0, 0.3), (1024.0, 1.0), (1024.0, 1.0)],
                vec![(88_761.0, 1.0), (1024.0, 1.0), (1024.0, 1.0)],
                vec![(1024.0, 1.0), (1024.0, 1.0), (15.0, 0.5), (3.0, 1.0)],
                vec![(110.0, 0.2), (1024.0, 0.7), (1024.0, 0.7), (3121.0, 0.4)],
            ] {
                let runners: Vec<Runner> = runners.into_iter().map(runner).collect();
                let (found, exact) = (speeds(cpus, &[ROOT], &runners), exact(cpus, &runners));
                for ((runner, found), exact) in runners.iter().zip(&found).zip(&exact) {
                    let got = |speed| speed * present(runner.demand, speed);
                    let off = (got(*found) - got(*exact)).abs() / got(*exact);
                    // On several CPUs a light thread is alone on one more often than is told here.
                    let equal = runners.iter().all(|runner| runner.weight == runners[0].weight);
                    let most = if cpus > 1.0 && !equal { 0.55 } else { 0.1 };
                    assert!(off < most, "{cpus} CPUs, {runners:?}: {found} for {exact}");
                }
            }
        }
    }

    #[test]
    fn a_group_shares_what_it_gets_and_no_more_than_its_quota() {
        let group = |weight, quota| Sharing { parent: 0, weight, quota };
        let hog = |group| Runner { group, weight: 1024.0, demand: 1.0 };
        let groups = [ROOT, group(1024.0, f64::INFINITY), group(2048.0, f64::INFINITY)];
        let found = speeds(1.0, &groups, &[hog(1), hog(1), hog(1), hog(2), hog(0)]);
        for (found, expected) in found.iter().zip([1.0 / 12.0, 1.0 / 12.0, 1.0 / 12.0, 0.5, 0.25]) {
            assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        }
        // One thread cannot use what its group's weight is worth.
        let found = speeds(2.0, &groups, &[hog(1), hog(1), hog(2)]);
        assert!((found[2] - 1.0).abs() < 1e-6 && (found[0] - 0.5).abs() < 1e-6, "{found:?}");
        let found = speeds(2.0, &[ROOT, group(1024.0, 0.5)], &[hog(1), hog(1), hog(0), hog(0)]);
        assert!((found[0] - 0.25).abs() < 1e-3 && (found[2] - 0.75).abs() < 1e-3, "{found:?}");
    }

    fn some() -> impl Strategy<Value = Vec<Runner>> {
        let weight = prop::sample::select(vec![15.0, 110.0, 335.0, 820.0, 1024.0, 3121.0, 88_761.0]);
        prop::collection::vec((weight, 0.02f64..=1.0).prop_map(runner), 1..12)
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_it_wants_and_all_no_more_than_there_is(runners in some(), cpus in 1usize..5) {
            let found = allocations(cpus as f64, &runners);
            for (found, runner) in found.iter().zip(&runners) {
                prop_assert!(*found > 0.0 && *found <= runner.demand + 1e-9);
            }
            prop_assert!(found.iter().sum::<f64>() <= cpus as f64 * 1.05, "{found:?}");
            if runners.len() <= cpus {
                prop_assert!(found.iter().zip(&runners).all(|(found, runner)| *found > 0.999 * runner.demand));
            }
        }

        #[test]
        fn more_weight_gets_more_and_the_others_less(runners in some(), cpus in 1usize..4) {
            let before = allocations(cpus as f64, &runners);
            let mut heavier = runners.clone();
            heavier[0].weight *= 2.0;
            let after = allocations(cpus as f64, &heavier);
            prop_assert!(after[0] >= before[0] - 0.01, "{before:?} {after:?}");
            let others = |found: &[f64]| found[1..].iter().sum::<f64>();
            // On several CPUs a weight that begins to be more than can be used is counted as less all at once; and competitors whose weights
            // are orders of magnitude apart are no two values (0.07 was seen on one CPU).
            let most = 0.1 * cpus as f64;
            prop_assert!(others(&after) <= others(&before) + most, "{before:?} {after:?}");
        }

        #[test]
        fn order_and_unit_do_not_matter(runners in some(), cpus in 1usize..4) {
            let found = allocations(cpus as f64, &runners);
            let mut turned: Vec<Runner> =
                runners.iter().map(|runner| Runner { weight: runner.weight * 8.0, ..*runner }).collect();
            turned.reverse();
            let other = allocations(cpus as f64, &turned);
            for (found, other) in found.iter().zip(other.iter().rev()) {
                prop_assert!((found - other).abs() < 5e-3, "{found} {other}");
            }
        }

        #[test]
        fn equals_get_equal(runners in some(), cpus in 1usize..4, copies in 1usize..5) {
            let mut runners = runners;
            runners.extend(vec![runners[0]; copies]);
            let found = allocations(cpus as f64, &runners);
            prop_assert!(found[found.len() - copies..].iter().all(|other| (found[0] - other).abs() < 5e-3), "{found:?}");
        }

        #[test]
        fn one_alone_in_a_group_of_its_weight_is_as_if_there_were_no_group(runners in some(), cpus in 1usize..4) {
            let plain = speeds(cpus as f64, &[ROOT], &runners);
            let groups = [ROOT, Sharing { weight: runners[0].weight, ..ROOT }];
            let mut grouped = runners.clone();
            grouped[0] = Runner { group: 1, weight: 77.0, ..grouped[0] };
            let found = speeds(cpus as f64, &groups, &grouped);
            for (found, plain) in found.iter().zip(&plain) {
                prop_assert!((found - plain).abs() < 5e-3, "{found} {plain}");
            }
        }
    }
}
