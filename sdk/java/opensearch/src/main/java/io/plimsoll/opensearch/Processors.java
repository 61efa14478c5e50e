package io.plimsoll.opensearch;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.util.List;

/** Whether this process uses all processors, and for how long it stood still to collect garbage. */
final class Processors {
    /** They count as all busy from this part on. */
    private static final double BUSY = 0.8;
    /** What the system says of a process comes in steps of 10 ms. */
    private static final long WINDOW_NS = 100_000_000;

    private final OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    /** Those whose figures are pauses: the others' cycles go on beside everybody. */
    private final List<GarbageCollectorMXBean> collectors =
            ManagementFactory.getGarbageCollectorMXBeans().stream().filter(collector -> !collector.getName().contains("Cycles")).toList();
    private final int count = Runtime.getRuntime().availableProcessors();
    private long sinceNs;
    private long usedNs;
    private long pausedMs;
    private boolean busy;

    void begin(long nowNs) {
        sinceNs = nowNs;
        usedNs = process.getProcessCpuTime();
        pausedMs = pausedMs();
        busy = false;
    }

    /** As of the last tenth of a second. */
    boolean areBusy(long nowNs) {
        if (nowNs - sinceNs >= WINDOW_NS) {
            long usedNs = process.getProcessCpuTime();
            busy = usedNs - this.usedNs >= BUSY * count * (nowNs - sinceNs);
            sinceNs = nowNs;
            this.usedNs = usedNs;
        }
        return busy;
    }

    /** Since this was last asked. The agent sees that from outside, and charges it to those who fill the heap: nobody waited for a processor meanwhile. */
    long pausedNs() {
        long before = pausedMs;
        pausedMs = pausedMs();
        return Math.max(0, pausedMs - before) * 1_000_000;
    }

    private long pausedMs() {
        long all = 0;
        for (GarbageCollectorMXBean collector : collectors) {
            all += Math.max(0, collector.getCollectionTime());
        }
        return all;
    }
}
