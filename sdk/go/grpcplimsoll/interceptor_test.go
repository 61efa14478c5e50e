package grpcplimsoll

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	plimsoll "plimsoll.dev/go"
	"plimsoll.dev/go/internal/agenttest"
)

// service is a health service whose calls do what a test says.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	check func(context.Context) error
	watch func(grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error
}

func (s *service) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	return &grpc_health_v1.HealthCheckResponse{}, s.check(ctx)
}

func (s *service) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	return s.watch(stream)
}

func serve(t *testing.T, s *service) (grpc_health_v1.HealthClient, *agenttest.Agent) {
	t.Helper()
	agent := agenttest.New(t)
	app := plimsoll.New("test", plimsoll.Dir(agent.Directory))
	t.Cleanup(app.Close)
	app.NewResource(plimsoll.Lock, "täble", 1) // what the agent names as held up
	agent.Welcome()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	key := With(func(context.Context, string) []plimsoll.TaskOption { return []plimsoll.TaskOption{plimsoll.Key(7)} })
	server := grpc.NewServer(
		grpc.UnaryInterceptor(UnaryServerInterceptor(App(app), key)),
		grpc.StreamInterceptor(StreamServerInterceptor(App(app), key)),
	)
	grpc_health_v1.RegisterHealthServer(server, s)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), agent
}

func cancel(agent *agenttest.Agent, method, outcome string) {
	id := agent.Cancel(method+"\x00", 0, "it holds table")
	agent.Hear(fmt.Sprintf("acknowledge %d", id))
	agent.Hear(fmt.Sprintf("outcome %d %s", id, outcome))
}

func expect(t *testing.T, err error, code codes.Code, message string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != message {
		t.Errorf("%v %q, want %v %q", s.Code(), s.Message(), code, message)
	}
}

func TestUnary(t *testing.T) {
	s := &service{}
	client, agent := serve(t, s)
	var trailer metadata.MD
	call := func(pairs ...string) <-chan error {
		result := make(chan error, 1)
		go func() {
			ctx := metadata.AppendToOutgoingContext(context.Background(), pairs...)
			_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
			result <- err
		}()
		return result
	}
	const method = "/grpc.health.v1.Health/Check"

	s.check = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	result := call()
	cancel(agent, method, "cancelled")
	expect(t, <-result, codes.Unavailable, "cancelled: it holds table")
	if got := trailer.Get("plimsoll-cancelled"); len(got) != 1 || got[0] != "t?ble" {
		t.Errorf("trailer %v", trailer)
	}

	// What is sent a second time is not cancelled; the agent finds the other call.
	begun, release := make(chan struct{}), make(chan struct{})
	s.check = func(ctx context.Context) error {
		if len(metadata.ValueFromIncomingContext(ctx, "plimsoll-rerun")) == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		close(begun)
		<-release
		return ctx.Err()
	}
	again := call("plimsoll-rerun", "1")
	<-begun
	other := make(chan error, 1)
	go func() {
		_, err := client.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		other <- err
	}()
	cancel(agent, method, "cancelled")
	expect(t, <-other, codes.Unavailable, "cancelled: it holds table")
	close(release)
	expect(t, <-again, codes.OK, "")

	s.check = func(ctx context.Context) error { <-ctx.Done(); return nil }
	result = call()
	cancel(agent, method, "finished")
	expect(t, <-result, codes.OK, "")

	s.check = func(context.Context) error { return status.Error(codes.NotFound, "its own") }
	expect(t, <-call(), codes.NotFound, "its own")
}

func TestStream(t *testing.T) {
	s := &service{}
	client, agent := serve(t, s)
	open := func() grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse] {
		stream, err := client.Watch(context.Background(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	// Sends until it cannot, and never looks at its context.
	s.watch = func(stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
		for {
			if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil {
				return err
			}
		}
	}
	stream := open()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	cancel(agent, "/grpc.health.v1.Health/Watch", "cancelled")
	expect(t, <-ended, codes.Unavailable, "cancelled: it holds table")
}
