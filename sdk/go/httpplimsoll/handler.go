// Package httpplimsoll makes a task of each request that a net/http server handles.
//
//	http.ListenAndServe(address, httpplimsoll.Handler(mux))
//
// The handler finds the task in the request's context ([plimsoll.FromContext]), which ends when the agent cancels the task. A handler that
// then returns without having answered is answered for: 503, `cancelled: REASON`, with the header `plimsoll-cancelled: RESOURCE`. A gateway
// may send the request a second time, with `plimsoll-rerun: 1`: it is not cancelled then.
package httpplimsoll

import (
	"context"
	"net/http"
	"strings"

	plimsoll "plimsoll.dev/go"
	"plimsoll.dev/go/internal/header"
)

// Option is a choice for [Handler].
type Option func(*handler)

// App makes the requests tasks of this application, and not of the default one.
func App(app *plimsoll.App) Option { return func(h *handler) { h.app = app } }

// Label sets how requests are called. By default it is the pattern of an [http.ServeMux] if that is what is wrapped, or else method and
// path: `GET /report`.
func Label(label func(*http.Request) string) Option { return func(h *handler) { h.label = label } }

// With sets what else is to be said of the task that a request is: its key, its deadline. nil is nothing.
func With(options func(*http.Request) []plimsoll.TaskOption) Option {
	return func(h *handler) { h.with = options }
}

// Replay runs requests again that were cancelled before anything was answered, for the client that still waits, when the agent says that there
// is room. Only those are, for which safe is true, and which can be handled twice: [Safe] tells of most.
func Replay(safe func(*http.Request) bool) Option { return func(h *handler) { h.replay = safe } }

// Safe tells whether a request changes nothing and has no body: GET, HEAD or OPTIONS.
func Safe(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return r.ContentLength == 0
	}
	return false
}

type handler struct {
	next   http.Handler
	app    *plimsoll.App
	label  func(*http.Request) string
	with   func(*http.Request) []plimsoll.TaskOption
	replay func(*http.Request) bool
}

// Handler wraps a handler.
func Handler(next http.Handler, options ...Option) http.Handler {
	h := &handler{next: next, app: plimsoll.Default(), label: methodAndPath}
	if mux, ok := next.(*http.ServeMux); ok {
		h.label = func(r *http.Request) string { return pattern(mux, r) }
	}
	for _, option := range options {
		option(h)
	}
	return h
}

func methodAndPath(r *http.Request) string { return r.Method + " " + r.URL.Path }

// pattern is the pattern under which a mux will handle a request, with a method: paths may have numbers in them, which tell people little.
func pattern(mux *http.ServeMux, r *http.Request) string {
	_, pattern := mux.Handler(r)
	switch {
	case pattern == "":
		return methodAndPath(r)
	case strings.Contains(pattern, " "):
		return pattern
	}
	return r.Method + " " + pattern
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.replay != nil && h.replay(r) {
		h.serveTwice(w, r)
		return
	}
	answer := &answer{ResponseWriter: w}
	if cancelled := h.serve(answer, r); cancelled != nil && !answer.begun {
		refuse(w, cancelled)
	}
}

// serve handles a request as a task, and tells why it was cancelled if it was.
func (h *handler) serve(w *answer, r *http.Request, more ...plimsoll.TaskOption) *plimsoll.Cancelled {
	if r.Header.Get(header.Rerun) == "1" {
		more = append(more, plimsoll.Again())
	}
	if h.with != nil {
		more = append(more, h.with(r)...)
	}
	ctx, task := h.app.Start(r.Context(), h.label(r), more...)
	defer task.End()
	h.next.ServeHTTP(w, r.WithContext(ctx))
	task.End() // from now on it is settled whether it was cancelled
	return task.Cancelled()
}

// serveTwice handles a request, and if it was cancelled unanswered, waits for its second turn.
func (h *handler) serveTwice(w http.ResponseWriter, r *http.Request) {
	first := &answer{ResponseWriter: w}
	turn, over := make(chan func(), 1), make(chan struct{})
	cancelled := h.serve(first, r, plimsoll.Rerun(
		func(ctx context.Context) {
			ran := make(chan struct{})
			select {
			case turn <- func() {
				defer close(ran)
				// What the client does still ends it, but nothing that the agent says.
				ctx, stop := context.WithCancel(ctx)
				defer context.AfterFunc(r.Context(), stop)()
				h.next.ServeHTTP(w, r.WithContext(ctx))
			}:
			case <-over:
				return
			}
			select {
			case <-ran:
			case <-over:
			}
		},
		func() { close(turn) },
	))
	defer close(over)
	if cancelled == nil || first.begun {
		return
	}
	select {
	case again := <-turn:
		if again != nil {
			again()
			return
		}
	case <-r.Context().Done():
	}
	refuse(w, cancelled)
}

func refuse(w http.ResponseWriter, why *plimsoll.Cancelled) {
	clear(w.Header()) // what the handler meant for an answer that it never gave
	w.Header().Set(header.Cancelled, header.Value(why.Resource))
	http.Error(w, why.Error(), http.StatusServiceUnavailable)
}
