#!/usr/bin/env python3
"""Spans of a shop by the OpenTelemetry SDK for Python: `sender.py grpc|http ENDPOINT none|gzip REQUESTS OPERATION`.

The frontend serves a request and calls the cart twice; the cart asks a database that sends no spans of its own.
"""

import sys

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

protocol, endpoint, compression, requests, operation = sys.argv[1:]
if protocol == "grpc":
    from grpc import Compression
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    chosen = Compression.Gzip if compression == "gzip" else Compression.NoCompression
    exporter = lambda: OTLPSpanExporter(endpoint=endpoint, insecure=True, compression=chosen)
else:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    chosen = Compression.Gzip if compression == "gzip" else Compression.NoCompression
    exporter = lambda: OTLPSpanExporter(endpoint=endpoint + "/v1/traces", compression=chosen)


def provider(service):
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(exporter()))
    return provider


providers = [provider("frontend"), provider("cart")]
frontend, cart = (provider.get_tracer("shop") for provider in providers)
method, route = operation.split(" ")
for _ in range(int(requests)):
    entry = {"http.request.method": method, "http.route": route, "url.path": route}
    with frontend.start_as_current_span(operation, kind=trace.SpanKind.SERVER, attributes=entry):
        for _ in range(2):
            with frontend.start_as_current_span("Get", kind=trace.SpanKind.CLIENT):
                call = {"rpc.system": "grpc", "rpc.service": "shop.Cart", "rpc.method": "Get"}
                with cart.start_as_current_span("shop.Cart/Get", kind=trace.SpanKind.SERVER, attributes=call):
                    with cart.start_as_current_span("SELECT", kind=trace.SpanKind.CLIENT, attributes={"peer.service": "database"}):
                        pass
for each in providers:
    each.shutdown()
