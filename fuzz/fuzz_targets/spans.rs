//! The receiver of spans: whatever a message holds, it is taken or refused; and where the generated types of OTLP take it, it is taken and
//! as many spans are found. The first byte says how it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use plimsoll_controller::telemetry::receiver::{Format, Receiver, Taken};
use plimsoll_core::Nanos;
use plimsoll_ratecontrol::paths::{Learner, Limits};
use prost::Message;

/// A small gzip may hide a large message; no more of it is unpacked.
const LONGEST: usize = 1 << 16;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, message)) = bytes.split_first() else { return };
    let format = if first & 1 == 0 { Format::Protobuf } else { Format::Json };
    let is_packed = first & 2 != 0;
    let limits = Limits { open_spans: 256, names: 64, operations: 16, visits: 256, ..Limits::default() };
    let mut receiver = Receiver::new(Learner::new(limits, &[], 1), LONGEST);
    let taken = receiver.take(Nanos(1), format, is_packed, message);
    if let Ok(Taken { spans, rejected }) = taken {
        assert!(rejected <= spans);
        let figures = receiver.learner.figures();
        assert_eq!(figures.spans + figures.no_room + figures.left_out + figures.late, spans - rejected);
    }
    if format == Format::Protobuf && !is_packed
        && let Ok(request) = ExportTraceServiceRequest::decode(message)
    {
        let scopes = request.resource_spans.iter().flat_map(|of_resource| &of_resource.scope_spans);
        let spans = scopes.map(|scope| scope.spans.len() as u64).sum::<u64>();
        assert_eq!(taken.map(|taken| taken.spans), Ok(spans));
    }
    receiver.learner.tick(Nanos::from_secs(30));
    assert_eq!(receiver.learner.figures().open_spans, 0);
    for api in receiver.learner.paths().apis {
        let shares: f64 = api.branches.iter().map(|branch| branch.share).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{api:?}");
    }
});
