// Spans of a shop by the OpenTelemetry SDK for Go: `sender grpc|http HOST:PORT none|gzip REQUESTS OPERATION`.
//
// The frontend serves a request and calls the cart twice; the cart asks a database that sends no spans of its own.
package main

import (
	"context"
	"log"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func exporter(ctx context.Context, protocol, endpoint, compression string) (*otlptrace.Exporter, error) {
	if protocol == "grpc" {
		options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure()}
		if compression == "gzip" {
			options = append(options, otlptracegrpc.WithCompressor("gzip"))
		}
		return otlptracegrpc.New(ctx, options...)
	}
	options := []otlptracehttp.Option{otlptracehttp.WithEndpoint(endpoint), otlptracehttp.WithInsecure()}
	if compression == "gzip" {
		options = append(options, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	}
	return otlptracehttp.New(ctx, options...)
}

func main() {
	ctx := context.Background()
	protocol, endpoint, compression, operation := os.Args[1], os.Args[2], os.Args[3], os.Args[5]
	requests, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	var providers []*sdk.TracerProvider
	tracer := func(service string) trace.Tracer {
		exporter, err := exporter(ctx, protocol, endpoint, compression)
		if err != nil {
			log.Fatal(err)
		}
		of := resource.NewSchemaless(attribute.String("service.name", service))
		provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(of))
		providers = append(providers, provider)
		return provider.Tracer("shop")
	}
	frontend, cart := tracer("frontend"), tracer("cart")
	method, route, _ := strings.Cut(operation, " ")
	server, client := trace.WithSpanKind(trace.SpanKindServer), trace.WithSpanKind(trace.SpanKindClient)
	for range requests {
		entered, entry := frontend.Start(ctx, operation, server, trace.WithAttributes(
			attribute.String("http.request.method", method), attribute.String("http.route", route)))
		for range 2 {
			calling, call := frontend.Start(entered, "Get", client)
			served, serve := cart.Start(calling, "Get", server, trace.WithAttributes(attribute.String("rpc.method", "shop.Cart/Get")))
			_, query := cart.Start(served, "SELECT", client, trace.WithAttributes(attribute.String("peer.service", "database")))
			query.End()
			serve.End()
			call.End()
		}
		entry.End()
	}
	for _, provider := range providers {
		if err := provider.Shutdown(ctx); err != nil {
			log.Fatal(err)
		}
	}
}
