//! Spans a second on one core: read by the generated types, read and learnt from by ours, plain and packed.
//!
//! `cargo bench -p plimsoll-controller --bench spans`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use plimsoll_controller::telemetry::receiver::{Format, Receiver};
use plimsoll_core::Nanos;
use plimsoll_ratecontrol::paths::{Learner, Limits};
use prost::Message;

#[path = "../examples/flood/message.rs"]
mod message;

fn spans(criterion: &mut Criterion) {
    let mut message = message::Numbered::new(8_192, false);
    let spans = message.spans() as u64;
    let mut group = criterion.benchmark_group("spans");
    group.throughput(Throughput::Elements(spans));
    group.bench_function("generated types, read", |bench| {
        bench.iter(|| {
            ExportTraceServiceRequest::decode(black_box(message.bytes()))
                .map(|request| request.resource_spans.len())
        });
    });
    let mut learnt = |name: &str, is_packed: bool| {
        let mut receiver = Receiver::new(Learner::new(Limits::default(), &[], 1), 64 << 20);
        let mut now = Nanos::ZERO;
        group.bench_function(name, |bench| {
            bench.iter_batched_ref(
                || {
                    message.renumber();
                    if !is_packed {
                        return message.bytes().to_vec();
                    }
                    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                    std::io::Write::write_all(&mut encoder, message.bytes()).expect("memory is enough");
                    encoder.finish().expect("memory is enough")
                },
                |bytes| {
                    // As if 200,000 came a second.
                    now += Nanos::from_micros(spans * 5);
                    receiver.take(now, Format::Protobuf, is_packed, bytes).expect("it is sound");
                    receiver.learner.tick(now);
                },
                criterion::BatchSize::LargeInput,
            );
        });
        eprintln!("{name}: {:?}", receiver.learner.figures());
    };
    learnt("ours, read and learnt", false);
    learnt("ours, unpacked, read and learnt", true);
    group.finish();
}

criterion_group!(benches, spans);
criterion_main!(benches);
