// cAdvisor by its own packages, as its cmd is a module that the module proxies do not have: `cadvisor PORT`. Of control groups only, no container runtime.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/google/cadvisor/cache/memory"
	"github.com/google/cadvisor/container"
	v2 "github.com/google/cadvisor/info/v2"
	"github.com/google/cadvisor/manager"
	"github.com/google/cadvisor/metrics"
	"github.com/google/cadvisor/utils/sysfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
)

func main() {
	every, dynamic := time.Second, false
	included := container.MetricSet{container.CpuUsageMetrics: struct{}{}, container.MemoryUsageMetrics: struct{}{}}
	of, err := manager.New(memory.New(time.Minute, nil), sysfs.NewRealSysFs(), manager.HousekeepingConfig{Interval: &every, AllowDynamic: &dynamic},
		included, http.DefaultClient, []string{"/"}, nil, "", 0)
	if err != nil {
		log.Fatal(err)
	}
	if err := of.Start(); err != nil {
		log.Fatal(err)
	}
	found := prometheus.NewRegistry()
	found.MustRegister(metrics.NewPrometheusCollector(of, nil, included, clock.RealClock{}, v2.RequestOptions{IdType: v2.TypeName, Count: 1, Recursive: true}))
	http.Handle("/metrics", promhttp.HandlerFor(found, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
