use super::*;

const BOUNDS: Bounds = Bounds { least: 2, most: 12, slots: 4 };
const PACE: Pace = Pace { step: 4, gap: Nanos::from_secs(300), period: Nanos::from_secs(300), refused: 0.05 };
/// A day in gaps.
const DAY: usize = 288;

fn load(per_s: f64) -> Load {
    Load { per_s, arrivals_scv: 1.0, service_s: 0.05, service_scv: 1.0 }
}

fn needed(per_s: f64) -> u32 {
    load(per_s).slots_for(Nanos::from_millis(100)).unwrap().div_ceil(4).clamp(BOUNDS.least, BOUNDS.most)
}

fn seen(s: u64, per_s: f64, refused: f64) -> Observation {
    Observation { at: Nanos::from_secs(s), load: load(per_s), refused, target: Nanos::from_millis(100) }
}

/// How long a server takes to start.
const START_S: u64 = 30;

/// Plans once every ten seconds for what `rate` says arrives. Returns the servers planned at each of them.
fn run(planner: &mut Planner, from_s: u64, to_s: u64, rate: impl Fn(u64) -> f64) -> Vec<u32> {
    let mut history: Vec<u32> = Vec::new();
    let starting = (START_S / 10) as usize;
    for s in (from_s..to_s).step_by(10) {
        let per_s = rate(s);
        // There are as many as were wanted ever since they would have had to be started, and what does not fit is refused.
        let since = history.len().saturating_sub(starting);
        let servers = history[since..].iter().copied().min().unwrap_or(planner.servers);
        let fits = load(per_s).capacity(servers * 4, Nanos::from_millis(100));
        history.push(planner.plan(&seen(s, per_s, (1.0 - fits / per_s).max(0.0))).servers);
    }
    history
}

fn reversals(history: &[u32]) -> usize {
    let changes: Vec<bool> = history.windows(2).filter(|w| w[0] != w[1]).map(|w| w[1] > w[0]).collect();
    changes.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Repeatable noise of at most 10 %, another every ten seconds.
fn noise(s: u64) -> f64 {
    let mixed =
        (s / 10).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    1.0 + 0.1 * ((mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
}

#[test]
fn a_jump_is_answered_by_a_step_at_once_and_by_the_next_a_gap_later() {
    assert_eq!((needed(50.0), needed(660.0)), (2, 9));
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 2);
    let history = run(&mut planner, 0, 2_000, |s| if s < 500 { 50.0 } else { 660.0 });
    let changes: Vec<(usize, u32)> =
        (1..history.len()).filter(|&i| history[i] != history[i - 1]).map(|i| (i * 10, history[i])).collect();
    assert_eq!(changes[0], (500, 6));
    assert_eq!(changes[1].0, 800, "a gap later, {changes:?}");
    assert!((9..=10).contains(&changes[1].1), "{changes:?}");
}

#[test]
fn a_steady_load_is_not_answered_with_swings() {
    for per_s in [60.0, 123.0, 300.0, 411.0] {
        let mut planner = Planner::new(BOUNDS, PACE, DAY, 6);
        let hours = 60;
        let history = run(&mut planner, 0, hours * 3_600, |s| per_s * noise(s));
        assert!(reversals(&history) <= hours as usize, "{per_s}/s: {} reversals", reversals(&history));
        let (servers, least) = (*history.last().unwrap(), needed(per_s));
        assert!(servers == least || servers == least + 1, "{per_s}/s: {servers} for {least}");
    }
}

#[test]
fn a_day_with_a_crowd_and_a_lull_takes_about_as_few_servers_as_it_needs() {
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 4);
    let rate = |s: u64| {
        let (day, s_of_day) = (s / 86_400, s % 86_400);
        let cycle = 250.0 - 180.0 * (s_of_day as f64 / 86_400.0 * std::f64::consts::TAU).cos();
        let crowd = if day == 1 && (30_000..33_600).contains(&s_of_day) { 1.6 } else { 1.0 };
        let lull = if day == 1 && (60_000..63_600).contains(&s_of_day) { 0.3 } else { 1.0 };
        cycle * crowd * lull * noise(s)
    };
    run(&mut planner, 0, 86_400, rate);
    let second = run(&mut planner, 86_400, 2 * 86_400, rate);
    // The smallest that meets the target in every ten seconds of each five minutes.
    let least: Vec<u32> = (86_400..2 * 86_400)
        .step_by(10)
        .map(|s| {
            let around = (s / 300 * 300..s / 300 * 300 + 300).step_by(10);
            around.map(|s| needed(rate(s))).max().unwrap()
        })
        .collect();
    let close = second.iter().zip(&least).filter(|(got, least)| got.abs_diff(**least) <= 1).count();
    let share = close as f64 / least.len() as f64;
    assert!(share > 0.9, "within one server in {:.1} % of the day", share * 100.0);
    let mean = |of: &[u32]| of.iter().sum::<u32>() as f64 / of.len() as f64;
    assert!((mean(&second) - mean(&least)).abs() <= 1.0, "{} {}", mean(&second), mean(&least));
}

#[test]
fn servers_are_given_back_by_steps_down_to_what_was_promised() {
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 12);
    let history = run(&mut planner, 0, 3_600, |_| 1.0);
    assert_eq!(*history.last().unwrap(), BOUNDS.least);
    assert!(history.windows(2).all(|pair| pair[1] + PACE.step >= pair[0]));
}

#[test]
fn while_too_much_is_refused_nothing_is_given_back_whatever_the_model_thinks() {
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 6);
    let mut last = 6;
    for s in (0..3_600).step_by(10) {
        let plan = planner.plan(&seen(s, 10.0, 0.3));
        assert!(plan.servers >= last, "{plan:?} after {last}");
        last = plan.servers;
    }
    assert_eq!(last, BOUNDS.most);
}

#[test]
fn a_plan_stands_while_its_servers_are_starting() {
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 2);
    let plans = [0, 10, 20].map(|s| planner.plan(&seen(s, 600.0, 0.8)).servers);
    assert_eq!(plans, [6, 6, 6]);
}

#[test]
fn what_cannot_be_had_or_cannot_be_is_said_and_changes_nothing() {
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 5);
    let plan = planner.plan(&Observation { target: Nanos::from_millis(50), ..seen(0, 100.0, 0.9) });
    assert_eq!(plan.servers, 5);
    assert!(matches!(plan.reason, Reason::Unattainable(_)));
    for nonsense in [seen(1, f64::NAN, 0.0), seen(1, -1.0, 0.0), seen(1, 1.0, f64::NAN), seen(1, 1.0, 7.0)] {
        assert_eq!(planner.plan(&nonsense), Plan { servers: 5, reason: Reason::Nonsense });
    }
}

#[test]
fn bounds_that_contradict_each_other_keep_the_promise() {
    let planner = Planner::new(Bounds { least: 5, most: 3, slots: 4 }, PACE, DAY, 1);
    assert_eq!(planner.servers, 5);
}

#[test]
fn an_application_that_falls_silent_keeps_no_more_than_it_must() {
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 8);
    let silent = Load { per_s: 0.0, arrivals_scv: 1.0, service_s: 0.0, service_scv: 0.0 };
    for s in (0..4 * 3_600).step_by(10) {
        let load = if s < 3_600 { load(300.0) } else { silent };
        planner.plan(&Observation { load, ..seen(s, 0.0, 0.0) });
    }
    assert_eq!(planner.servers(), BOUNDS.least);
}

#[test]
fn before_anything_was_served_refusals_lead_the_way() {
    let unknown = |per_s| Load { per_s, arrivals_scv: 1.0, service_s: 0.0, service_scv: 0.0 };
    let mut planner = Planner::new(BOUNDS, PACE, DAY, 3);
    assert_eq!(planner.plan(&Observation { load: unknown(50.0), ..seen(0, 0.0, 0.0) }).servers, 3);
    let plan = planner.plan(&Observation { load: unknown(50.0), ..seen(400, 0.0, 1.0) });
    assert_eq!(plan, Plan { servers: 7, reason: Reason::Refusals });
}

#[test]
fn a_jump_of_which_the_first_look_saw_a_part_is_one_step_all_the_same() {
    let pace = Pace { step: u32::MAX, ..PACE };
    let mut planner = Planner::new(BOUNDS, pace, DAY, 2);
    let due = needed(500.0);
    assert!(due > needed(200.0));
    planner.plan(&seen(0, 200.0, 0.2));
    assert!(planner.servers() < due);
    assert_eq!(planner.plan(&seen(10, 500.0, 0.7)).servers, due);
    // Then it is closed, whatever is refused while they start.
    assert_eq!(planner.plan(&seen(60, 700.0, 0.7)).servers, due);
}
