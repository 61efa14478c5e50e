//! Whatever a network does: where it falls behind, or sees what it was not trained on, the model takes over, and says so; later the network
//! is tried again.

#[allow(dead_code)] // what is told is varied in another test
mod fluid;

use std::collections::HashMap;

use fluid::{Fluid, Told};
use plimsoll_core::Nanos;
use plimsoll_ratecontrol::learned::guard::{Handover, Reason};
use plimsoll_ratecontrol::learned::{Settings as Learned, network::Network};
use plimsoll_ratecontrol::{Api, ApiId, Controller, RateControl, Settings};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};

const SLO: Nanos = Nanos::from_secs(1);
const STEP: f64 = 0.25;

/// A network that always does the same, and was trained up to these inputs.
fn always(action: f32, high: [f32; 2]) -> Network {
    let zeros = |shape: &[usize]| (shape.to_vec(), vec![0.0; shape.iter().product()]);
    let tensors = HashMap::from([
        ("inputs.low", zeros(&[2])),
        ("inputs.high", (vec![2], high.to_vec())),
        ("actor.0.kernel", zeros(&[2, 32])),
        ("actor.0.bias", zeros(&[32])),
        ("actor.1.kernel", zeros(&[32, 32])),
        ("actor.1.bias", zeros(&[32])),
        ("actor.2.kernel", zeros(&[32, 1])),
        ("actor.2.bias", (vec![1], vec![action])),
    ]);
    let bytes: Vec<(&str, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, (shape, numbers))| {
            (name, shape, numbers.iter().flat_map(|n| f32::to_le_bytes(*n)).collect())
        })
        .collect();
    let views = bytes
        .iter()
        .map(|(name, shape, bytes)| (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    Network::read(&serialize(views, None).unwrap()).unwrap()
}

fn control(network: Network) -> RateControl {
    let controller = Controller::Learned(Learned::new(network));
    RateControl::new(Settings { controller, ..Settings::default() })
}

/// The paper's first example (Fig. 1): both APIs pass A, the first B as well. Best are 3,000 and 7,000.
fn figure_1() -> Fluid {
    let apis = vec![Api::along([0, 1], SLO, 1), Api::along([0], SLO, 1)];
    Fluid::new(apis, &[10_000.0, 3_000.0], &[10_000.0, 10_000.0])
}

/// What came into other hands in so many seconds, and when; and the goodput of the last second.
fn run(fleet: &mut Fluid, control: &mut RateControl, seconds: usize) -> (Vec<(f64, Handover)>, f64) {
    let (mut handovers, mut goodput) = (Vec::new(), 0.0);
    for _ in 0..seconds * 4 {
        goodput = fleet.steps(control, 1, STEP, Told::All).iter().sum();
        let at = fleet.now.as_secs_f64();
        handovers.extend(control.controller().handovers().iter().map(|handover| (at, handover.clone())));
    }
    (handovers, goodput)
}

#[test]
fn one_that_falls_behind_is_relieved_and_tried_again_ever_later() {
    let (mut fleet, mut control) = (figure_1(), control(always(0.0, [3.0, 9.0])));
    let (handovers, goodput) = run(&mut fleet, &mut control, 20);
    let (at, first) = &handovers[0];
    assert!((5.0..8.0).contains(at), "{handovers:?}");
    assert_eq!(first.apis, [ApiId(0), ApiId(1)]);
    assert!(
        matches!(first.reason, Reason::Behind { goodput_per_s, predicted_per_s }
        if goodput_per_s < 0.9 * predicted_per_s && predicted_per_s > 8_500.0),
        "{first:?}"
    );
    assert!(handovers.len() == 1 && goodput > 9_000.0, "the model has it: {goodput} {handovers:?}");
    // The network leaves the rates as the model had them. That is well as long as nothing changes.
    let (handovers, goodput) = run(&mut fleet, &mut control, 25);
    assert!(
        matches!(handovers[..], [(again, Handover { reason: Reason::Again, .. })] if again - at == 30.0),
        "{handovers:?}"
    );
    assert!(goodput > 9_000.0, "{goodput}");
    fleet.capacity = vec![5_000.0, 1_500.0];
    let (handovers, goodput) = run(&mut fleet, &mut control, 90);
    assert_eq!(handovers.len(), 2, "{handovers:?}");
    let ((behind, _), (again, _)) = (&handovers[0], &handovers[1]);
    assert_eq!(again - behind, 60.0, "twice as long");
    assert!(goodput > 4_500.0, "{goodput}");
}

#[test]
fn one_that_never_raises_is_relieved() {
    let (mut fleet, mut control) = (figure_1(), control(always(-0.5, [3.0, 9.0])));
    let (handovers, goodput) = run(&mut fleet, &mut control, 30);
    assert!(matches!(handovers[..], [(_, Handover { reason: Reason::Behind { .. }, .. })]), "{handovers:?}");
    assert!(goodput > 9_000.0, "{goodput}");
}

#[test]
fn what_it_was_not_trained_on_is_the_models_at_once() {
    let (mut fleet, mut control) = (figure_1(), control(always(-0.5, [3.0, 0.01])));
    let (handovers, goodput) = run(&mut fleet, &mut control, 10);
    let (at, first) = &handovers[0];
    assert!(
        *at < 1.0 && matches!(first.reason, Reason::Beyond { latency, .. } if latency > 0.01),
        "{first:?}"
    );
    assert!(goodput > 9_000.0, "{goodput}");
    // It comes back when it was the model's for half a minute, and goes at once again.
    let (handovers, goodput) = run(&mut fleet, &mut control, 40);
    assert!(
        matches!(
            handovers[..],
            [
                (_, Handover { reason: Reason::Again, .. }),
                (_, Handover { reason: Reason::Beyond { .. }, .. })
            ]
        ),
        "{handovers:?}"
    );
    assert!(goodput > 9_000.0, "{goodput}");
}

#[test]
fn where_all_goes_well_nothing_changes_hands() {
    let (mut fleet, mut control) = (figure_1(), control(Network::base()));
    let reached = fleet.reaches(&mut control, 8_000.0, STEP, Told::All, 20.0);
    assert!(reached.is_some(), "{reached:?}");
    fleet.offered = vec![1_000.0, 1_000.0];
    run(&mut fleet, &mut control, 60);
    assert_eq!(run(&mut fleet, &mut control, 60).0, []);
}
