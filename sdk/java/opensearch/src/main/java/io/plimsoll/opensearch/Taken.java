package io.plimsoll.opensearch;

import java.util.List;
import java.util.Map;
import org.opensearch.core.tasks.resourcetracker.ResourceStats;
import org.opensearch.core.tasks.resourcetracker.ResourceUsageInfo.ResourceStatsInfo;
import org.opensearch.core.tasks.resourcetracker.ThreadResourceInfo;
import org.opensearch.tasks.Task;

/** What tasks have allocated and computed since they began, and how many threads they have now. */
record Taken(long bytes, long cpuNs, int threads) {
    static final Taken NOTHING = new Taken(0, 0, 0);

    /** What one task has, by OpenSearch's account of which threads worked for it; those that still do have gone on since it last read their counters. */
    static Taken by(Task task, Threads threads) {
        Taken all = NOTHING;
        for (List<ThreadResourceInfo> stints : task.getResourceStats().values()) {
            // A list that grows under our hands: an iterator would not do.
            for (int i = 0; i < stints.size(); i++) {
                ThreadResourceInfo stint = stints.get(i);
                if (stint != null) {
                    all = all.plus(by(stint, threads));
                }
            }
        }
        return all;
    }

    private static Taken by(ThreadResourceInfo stint, Threads threads) {
        Map<ResourceStats, ResourceStatsInfo> stats = stint.getResourceUsageInfo().getStatsInfo();
        ResourceStatsInfo memory = stats.get(ResourceStats.MEMORY);
        ResourceStatsInfo cpu = stats.get(ResourceStats.CPU);
        if (!stint.isActive()) {
            return new Taken(since(memory, -1), since(cpu, -1), 0);
        }
        long thread = stint.getThreadId();
        return new Taken(since(memory, threads.bytes(thread)), since(cpu, threads.cpuNs(thread)), 1);
    }

    /** What was counted, or more where the counter {@code now} is further. */
    private static long since(ResourceStatsInfo counted, long now) {
        return counted == null ? 0 : Math.max(0, Math.max(counted.getTotalValue(), now - counted.getStartValue()));
    }

    Taken plus(Taken other) {
        return new Taken(bytes + other.bytes, cpuNs + other.cpuNs, threads + other.threads);
    }
}
