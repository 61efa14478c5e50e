package httpplimsoll

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	plimsoll "plimsoll.dev/go"
	"plimsoll.dev/go/internal/agenttest"
)

// serve serves a handler, as an application that is connected with an agent.
func serve(t *testing.T, next http.Handler, options ...Option) (*httptest.Server, *agenttest.Agent) {
	t.Helper()
	agent := agenttest.New(t)
	app := plimsoll.New("test", plimsoll.Dir(agent.Directory))
	t.Cleanup(app.Close)
	app.NewResource(plimsoll.Lock, "täble", 1) // what the agent names as held up
	agent.Welcome()
	server := httptest.NewServer(Handler(next, append(options, App(app))...))
	t.Cleanup(server.Close)
	return server, agent
}

// client uses each connection once: on one that was used before, it would send a request again that found no answer.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// get sends a request, and its answer later.
func get(t *testing.T, request func() (*http.Response, error)) <-chan string {
	t.Helper()
	answers := make(chan string, 1)
	go func() {
		response, err := request()
		if err != nil {
			answers <- err.Error()
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			answers <- err.Error()
			return
		}
		answers <- fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
	}()
	return answers
}

func TestCancelledRequest(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "7") // of an answer that it never gives
		<-r.Context().Done()
		var why *plimsoll.Cancelled
		if !errors.As(context.Cause(r.Context()), &why) {
			t.Errorf("cause %v", context.Cause(r.Context()))
		}
	})
	server, agent := serve(t, mux)
	answer := get(t, func() (*http.Response, error) {
		response, err := client.Get(server.URL + "/report/7")
		if err == nil && response.Header.Get("Plimsoll-Cancelled") != "t?ble" {
			t.Errorf("headers %v", response.Header)
		}
		return response, err
	})
	id := agent.Cancel("GET /report/{id}\x00", 0, "it holds table")
	agent.Hear(fmt.Sprintf("acknowledge %d", id))
	agent.Hear(fmt.Sprintf("outcome %d cancelled", id))
	if got := <-answer; got != "503 cancelled: it holds table" {
		t.Errorf("answered %q", got)
	}
}

// What a gateway sends a second time is not cancelled; the agent finds the other request.
func TestRequestSentAgain(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	server, agent := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("plimsoll-rerun") == "" {
			<-r.Context().Done()
			return
		}
		close(begun)
		<-release
		io.WriteString(w, "the second time")
	}))
	again := get(t, func() (*http.Response, error) {
		request, _ := http.NewRequest(http.MethodGet, server.URL+"/a", nil)
		request.Header.Set("Plimsoll-Rerun", "1")
		return client.Do(request)
	})
	<-begun
	first := get(t, func() (*http.Response, error) { return client.Get(server.URL + "/a") })
	agent.Cancel("GET /a\x00", 0, "x")
	if got := <-first; got != "503 cancelled: x" {
		t.Errorf("answered %q", got)
	}
	close(release)
	if got := <-again; got != "200 the second time" {
		t.Errorf("answered %q", got)
	}
}

func TestCancelledWhileItAnswers(t *testing.T) {
	server, agent := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half of ")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		io.WriteString(w, "it")
	}))
	answer := get(t, func() (*http.Response, error) { return client.Get(server.URL + "/a") })
	agent.Cancel("GET /a\x00", 0, "x")
	if got := <-answer; got != "200 half of it" {
		t.Errorf("answered %q", got)
	}
}

func TestUndisturbed(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/any", func(w http.ResponseWriter, r *http.Request) {
		if plimsoll.FromContext(r.Context()) == nil {
			t.Error("no task")
		}
		w.WriteHeader(http.StatusEarlyHints)
		if from, ok := w.(io.ReaderFrom); !ok {
			t.Error("files are copied")
		} else if _, err := from.ReadFrom(strings.NewReader("all of it")); err != nil {
			t.Error(err)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhijacked")
		conn.Close()
	})
	server, _ := serve(t, mux)
	for path, want := range map[string]string{"/any": "200 all of it", "/hijack": "200 hijacked", "/none": "404 404 page not found"} {
		if got := <-get(t, func() (*http.Response, error) { return client.Get(server.URL + path) }); got != want {
			t.Errorf("%s answered %q, want %q", path, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /one/{id}", http.NotFound)
	mux.HandleFunc("/any/", http.NotFound)
	for request, want := range map[string]string{"GET /one/1": "GET /one/{id}", "POST /any/2": "POST /any/", "GET /none": "GET /none"} {
		method, path, _ := strings.Cut(request, " ")
		if got := pattern(mux, httptest.NewRequest(method, path, nil)); got != want {
			t.Errorf("%s is called %q, want %q", request, got, want)
		}
	}
}

func TestSafe(t *testing.T) {
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "OPTIONS": true, "POST": false, "PUT": false, "DELETE": false} {
		if Safe(httptest.NewRequest(method, "/", nil)) != want || Safe(httptest.NewRequest(method, "/", strings.NewReader("body"))) {
			t.Error(method)
		}
	}
}

func TestReplay(t *testing.T) {
	turns := map[string]*atomic.Int32{}
	for _, path := range []string{"/again", "/drop", "/panic", "/left", "/leave"} {
		turns[path] = new(atomic.Int32)
	}
	options := []Option{
		Replay(Safe),
		Label(func(r *http.Request) string { return r.URL.Path }),
		With(func(*http.Request) []plimsoll.TaskOption { return []plimsoll.TaskOption{plimsoll.Key(7)} }),
	}
	server, agent := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if turns[r.URL.Path].Add(1) == 1 {
			<-r.Context().Done()
			return
		}
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/leave":
			<-r.Context().Done()
		}
		io.WriteString(w, "the second time")
	}), options...)

	cancelled := func(path string, request func() (*http.Response, error)) (<-chan string, int) {
		answer := get(t, request)
		id := agent.Cancel(path+"\x00", 0, "x")
		agent.Hear(fmt.Sprintf("acknowledge %d", id))
		agent.Hear(fmt.Sprintf("outcome %d cancelled", id))
		return answer, id
	}
	plain := func(path string) (<-chan string, int) {
		return cancelled(path, func() (*http.Response, error) { return client.Get(server.URL + path) })
	}

	answer, id := plain("/again")
	agent.Say(fmt.Sprintf("rerun %d", id))
	agent.Hear(fmt.Sprintf("reran %d", id))
	if got := <-answer; got != "200 the second time" {
		t.Errorf("answered %q", got)
	}

	answer, id = plain("/drop")
	agent.Say(fmt.Sprintf("drop %d", id))
	agent.Hear(fmt.Sprintf("dropped %d", id))
	if got := <-answer; got != "503 cancelled: x" {
		t.Errorf("answered %q", got)
	}

	answer, id = plain("/panic")
	agent.Say(fmt.Sprintf("rerun %d", id))
	agent.Hear(fmt.Sprintf("reran %d", id))
	if got := <-answer; !strings.Contains(got, "EOF") {
		t.Errorf("answered %q", got)
	}

	// The client goes while its request waits for another turn, and then in the middle of that.
	for _, path := range []string{"/left", "/leave"} {
		ctx, leave := context.WithCancel(context.Background())
		answer, id = cancelled(path, func() (*http.Response, error) {
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
			return client.Do(request)
		})
		if path == "/leave" {
			agent.Say(fmt.Sprintf("rerun %d", id))
			for until := time.Now().Add(20 * time.Second); turns[path].Load() < 2 && time.Now().Before(until); { // until it runs
				time.Sleep(time.Millisecond)
			}
		}
		leave()
		if got := <-answer; !strings.Contains(got, "canceled") {
			t.Errorf("answered %q", got)
		}
		if path == "/left" { // of which the server knows by now, or soon will
			agent.Say(fmt.Sprintf("rerun %d", id))
		}
		agent.Hear(fmt.Sprintf("reran %d", id))
	}
}
