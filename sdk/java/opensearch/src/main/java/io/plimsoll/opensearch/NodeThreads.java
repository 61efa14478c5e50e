package io.plimsoll.opensearch;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;

/** As the JVM knows it: what OpenSearch reads when a thread begins to work for a task, and when it ends. */
final class NodeThreads implements Threads {
    private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();

    @Override
    public long bytes(long thread) {
        return threads.getThreadAllocatedBytes(thread);
    }

    @Override
    public long cpuNs(long thread) {
        return threads.getThreadCpuTime(thread);
    }
}
