// Package grpcplimsoll makes a task of each call that a gRPC server handles.
//
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(grpcplimsoll.UnaryServerInterceptor()),
//		grpc.StreamInterceptor(grpcplimsoll.StreamServerInterceptor()),
//	)
//
// The task is in the call's context, which ends when the agent cancels the task. A call that fails then answers with
// the status UNAVAILABLE, `cancelled: REASON`, and the trailer `plimsoll-cancelled: RESOURCE`: it may be tried again, elsewhere or later; with
// `plimsoll-rerun: 1` in its metadata it is not cancelled. One that succeeds all the same has completed.
package grpcplimsoll

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	plimsoll "plimsoll.dev/go"
	"plimsoll.dev/go/internal/header"
)

// Option is a choice for the interceptors.
type Option func(*settings)

type settings struct {
	app  *plimsoll.App
	with func(ctx context.Context, method string) []plimsoll.TaskOption
}

// App makes the calls tasks of this application, and not of the default one.
func App(app *plimsoll.App) Option { return func(s *settings) { s.app = app } }

// With sets what else is to be said of the task that a call is: its key, its deadline, that it is a background task because its stream stays open.
// method is the full one, `/package.Service/Method`. nil is nothing.
func With(options func(ctx context.Context, method string) []plimsoll.TaskOption) Option {
	return func(s *settings) { s.with = options }
}

func chosen(options []Option) *settings {
	s := &settings{app: plimsoll.Default()}
	for _, option := range options {
		option(s)
	}
	return s
}

// UnaryServerInterceptor makes tasks of unary calls.
func UnaryServerInterceptor(options ...Option) grpc.UnaryServerInterceptor {
	s := chosen(options)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (response any, err error) {
		err = s.run(ctx, info.FullMethod, func(ctx context.Context) error {
			response, err = handle(ctx, request)
			return err
		})
		return response, err
	}
}

// StreamServerInterceptor makes tasks of streams, from their first message to their last.
func StreamServerInterceptor(options ...Option) grpc.StreamServerInterceptor {
	s := chosen(options)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return s.run(stream.Context(), info.FullMethod, func(ctx context.Context) error {
			return handle(server, &taskStream{stream, ctx})
		})
	}
}

// run runs a call as a task.
func (s *settings) run(ctx context.Context, method string, call func(context.Context) error) error {
	var options []plimsoll.TaskOption
	if s.with != nil {
		options = s.with(ctx, method)
	}
	if again := metadata.ValueFromIncomingContext(ctx, header.Rerun); len(again) > 0 && again[0] == "1" {
		options = append(options, plimsoll.Again())
	}
	ctx, task := s.app.Start(ctx, method, options...)
	defer task.End()
	err := call(ctx)
	if err == nil {
		task.Completed()
		return nil
	}
	if why := task.Cancelled(); why != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(header.Cancelled, header.Value(why.Resource))) // fails where there is no call
		return status.Error(codes.Unavailable, why.Error())
	}
	return err
}

// taskStream is a stream whose context carries the task.
type taskStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *taskStream) Context() context.Context { return s.ctx }

// RecvMsg takes the next message, unless the task has been cancelled. One that waits for its client already goes on waiting: a handler that
// should end then must listen to its context.
func (s *taskStream) RecvMsg(message any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.RecvMsg(message)
}

// SendMsg sends a message, unless the task has been cancelled.
func (s *taskStream) SendMsg(message any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return s.ServerStream.SendMsg(message)
}
