//! Weights as the kernel counts them: of threads by their nice value, of groups by what their control files say.
//!
//! A step of nice is a factor of about 1.25 beside others of nice 0, and 1024 is the weight of nice 0 (sched(7),
//! Documentation/admin-guide/cgroup-v2.rst, "cpu.weight").

use crate::task::{Group, Policy};

/// Of a thread of nice 0, of `cpu.weight` 100 and of `cpu.shares` 1024.
pub const NORMAL: u32 = 1024;
/// Of `SCHED_IDLE` and of `cpu.idle`: the smallest there is.
pub const IDLE: u32 = 3;

/// By nice value from -20 on: the kernel's own rounding of 1024 / 1.25^nice.
const BY_NICE: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, //
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277, //
    1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, //
    110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

/// The weight of a nice value; those beyond -20 and 19 count as these. Autogroups have nice values too (`/proc/<pid>/autogroup`).
pub fn of_nice(nice: i8) -> u32 {
    BY_NICE[usize::from((nice.clamp(-20, 19) + 20) as u8)]
}

/// The weight of a thread beside the others in its group. Real time has none; it goes before all weights.
pub fn of_thread(policy: Policy, nice: i8) -> u32 {
    if policy == Policy::Idle { IDLE } else { of_nice(nice) }
}

/// The weight of a group beside its siblings.
pub fn of_group(group: &Group) -> u32 {
    if group.idle { IDLE } else { group.weight.max(2) }
}

/// What `cpu.weight` of cgroup v2 (1 to 10,000, usually 100) comes to.
pub fn of_cpu_weight(weight: u32) -> u32 {
    (weight.clamp(1, 10_000) * NORMAL + 50) / 100
}

/// What `cpu.shares` of cgroup v1 (2 to 262,144, usually 1024) comes to.
pub fn of_cpu_shares(shares: u64) -> u32 {
    shares.clamp(2, 262_144) as u32
}

/// The `cpu.weight` that comes nearest to a weight.
pub fn to_cpu_weight(weight: u32) -> u32 {
    let hundredths = (u64::from(weight) * 100 + u64::from(NORMAL) / 2) / u64::from(NORMAL);
    hundredths.clamp(1, 10_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_nice_is_a_factor_of_about_one_and_a_quarter() {
        assert_eq!((of_nice(-20), of_nice(0), of_nice(19)), (88_761, 1_024, 15));
        assert_eq!((of_nice(-128), of_nice(127)), (88_761, 15));
        for nice in -20..19 {
            let step = f64::from(of_nice(nice)) / f64::from(of_nice(nice + 1));
            assert!((1.18..1.32).contains(&step), "from nice {nice} on: {step}");
        }
        for (nice, &weight) in (-20..20).zip(&BY_NICE) {
            let formula = 1024.0 / 1.25f64.powi(nice);
            assert!((f64::from(weight) / formula - 1.0).abs() < 0.1, "nice {nice}: {weight} and {formula}");
        }
    }

    #[test]
    fn idle_is_least_whatever_else_is_said() {
        assert_eq!(of_thread(Policy::Idle, -20), IDLE);
        assert_eq!(of_thread(Policy::Batch, 5), of_nice(5));
        assert_eq!(of_group(&Group { weight: 4096, idle: true, ..Group::ROOT }), IDLE);
        assert_eq!(of_group(&Group { weight: 0, ..Group::ROOT }), 2);
    }

    #[test]
    fn control_files_are_in_other_units() {
        assert_eq!([1, 100, 200, 10_000].map(of_cpu_weight), [10, 1_024, 2_048, 102_400]);
        assert_eq!((of_cpu_weight(0), of_cpu_weight(u32::MAX)), (10, 102_400));
        assert_eq!([0, 1_024, u64::MAX].map(of_cpu_shares), [2, 1_024, 262_144]);
        for weight in 1..=10_000 {
            assert_eq!(to_cpu_weight(of_cpu_weight(weight)), weight);
        }
        assert_eq!(to_cpu_weight(0), 1);
    }
}
