// A Go web server and a Go gRPC server for the sentry to stand in front of. Neither knows of it.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

func web() http.Handler {
	mux := http.NewServeMux()
	// Sends back what it got, with a trailer that counts it.
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Bytes")
		w.Header().Set("X-Seen-Forwarded-For", r.Header.Get("X-Forwarded-For"))
		w.Header().Set("X-Seen-Proto", r.Proto)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.WriteHeader(http.StatusOK)
		w.Write(body)
		w.Header().Set("X-Bytes", fmt.Sprint(len(body)))
	})
	// Server-sent events, one every 100 ms.
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; i < 5; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	})
	return mux
}

func main() {
	webAddr := flag.String("web", "127.0.0.1:0", "address of the web server")
	grpcAddr := flag.String("grpc", "127.0.0.1:0", "address of the gRPC server")
	flag.Parse()
	listen := func(addr string) net.Listener {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	w, g := listen(*webAddr), listen(*grpcAddr)
	fmt.Printf("{\"web\":%q,\"grpc\":%q}\n", w.Addr(), g.Addr())

	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	go func() { log.Fatal(server.Serve(g)) }()
	log.Fatal(http.Serve(w, web()))
}
