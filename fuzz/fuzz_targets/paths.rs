//! The path learner: whatever spans come in whatever order, each is accounted for once, limits hold, and shares are shares.
//!
//! The input is steps of 8 bytes: trace, span, parent, kind and flags, service, operation, peer, time that passes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::Nanos;
use plimsoll_ratecontrol::paths::{Kind, Learner, Limits, Span};

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, steps)) = bytes.split_first() else { return };
    let limits = Limits {
        open_spans: 64,
        spans_per_trace: 16,
        names: 24,
        operations: 8,
        branches: 3,
        visits: 40,
        wait: Nanos::from_secs(2),
        half_life: Nanos::from_secs(5),
        forget: Nanos::from_secs(60),
    };
    let entries = if first & 1 == 0 { Vec::new() } else { vec!["s1".to_owned()] };
    let mut learner = Learner::new(limits.clone(), &entries, u64::from(first));
    let (mut now, mut sent) = (Nanos::ZERO, 0);
    for &[trace, id, parent, kind, service, operation, peer, passes] in steps.as_chunks::<8>().0 {
        let operation_byte = operation;
        let [service, operation, peer] = [(b's', service), (b'o', operation), (b's', peer)].map(|(letter, n)| format!("{}{n}", char::from(letter)));
        let kinds = [Kind::Serves, Kind::Calls, Kind::Internal, Kind::Serves];
        let span = Span {
            trace: trace.into(),
            id: id.into(),
            parent: parent.into(),
            kind: kinds[usize::from(kind & 3)],
            operation: (kind & 4 == 0).then_some(&*operation),
            peer: (kind & 8 != 0).then_some(&*peer),
            failed: kind & 16 != 0,
            began_ns: u64::from(passes) << 12,
            ended_ns: u64::from(passes ^ operation_byte) << 12,
        };
        let service = learner.service(&service);
        learner.hear(now, service, &span);
        sent += 1;
        now += Nanos::from_millis(u64::from(passes) * 10);
        if kind & 32 != 0 {
            learner.tick(now);
            check(&learner, &limits, sent);
        }
    }
    learner.tick(now + Nanos::from_secs(5));
    assert_eq!(learner.figures().open_spans, 0);
    check(&learner, &limits, sent);
});

fn check(learner: &Learner, limits: &Limits, sent: u64) {
    let paths = learner.paths();
    let figures = paths.figures;
    assert_eq!(figures.spans + figures.late + figures.left_out + figures.no_room, sent);
    assert!(figures.open_spans <= limits.open_spans && figures.names <= limits.names && figures.operations < limits.operations, "{figures:?}");
    let mut visits = 0;
    for api in &paths.apis {
        assert!(api.branches.len() <= limits.branches + 1 && !api.branches.is_empty(), "{api:?}");
        let shares: f64 = api.branches.iter().map(|branch| branch.share).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{api:?}");
        for visit in api.branches.iter().flat_map(|branch| &branch.visits) {
            visits += 1;
            assert!(visit.calls > 0.0 && visit.calls.is_finite(), "{api:?}");
        }
        visits += api.own_times.len();
        assert!(api.own_times.iter().all(|(_, own)| own.calls > 0.0 && own.mean_s.is_finite() && own.mean_s >= 0.0), "{api:?}");
    }
    assert!(visits <= limits.visits);
}
