package io.plimsoll.opensearch;

import io.plimsoll.Plimsoll;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.opensearch.action.search.SearchShardTask;
import org.opensearch.action.search.SearchTask;
import org.opensearch.core.tasks.TaskId;
import org.opensearch.core.tasks.resourcetracker.ResourceStats;
import org.opensearch.core.tasks.resourcetracker.ResourceStatsType;
import org.opensearch.core.tasks.resourcetracker.ResourceUsageMetric;
import org.opensearch.tasks.Task;

/** As much of a node as there has to be: a list of tasks, and what threads have done. */
final class FakeNode implements Running, Threads, AutoCloseable {
    static final String SEARCH = "indices:data/read/search";
    static final long MS = 1_000_000;

    final Map<Long, Task> tasks = new ConcurrentHashMap<>();
    /** Bytes and nanoseconds, by thread. */
    final Map<Long, long[]> counters = new ConcurrentHashMap<>();
    final List<String> cancelled = new ArrayList<>();
    final Plimsoll app;
    final Keeper keeper;

    FakeNode(Path directory) {
        app = Plimsoll.of("node").directory(directory).open();
        keeper = new Keeper(app, 4, this, (task, why) -> cancelled.add(task + " " + why));
        keeper.follow(this);
    }

    Path ledger() {
        return app.file();
    }

    /** A search of a client that came just now. */
    Task search(long id) {
        return there(new SearchTask(id, "transport", SEARCH, () -> "secret", TaskId.EMPTY_TASK_ID, Map.of()));
    }

    /** What works for it on a shard. */
    Task shard(long id, String node, long parent) {
        return there(new SearchShardTask(id, "transport", SEARCH + "[phase/query]", "secret", new TaskId(node, parent), Map.of()));
    }

    Task task(long id, String action, TaskId parent) {
        return there(new Task(id, "transport", action, "secret", parent, Map.of()));
    }

    private Task there(Task task) {
        tasks.put(task.getId(), task);
        return task;
    }

    void works(Task task, long thread) {
        task.startThreadResourceTracking(thread, ResourceStatsType.WORKER_STATS, metrics(thread));
    }

    void worksNoMore(Task task, long thread) {
        task.stopThreadResourceTracking(thread, ResourceStatsType.WORKER_STATS, metrics(thread));
    }

    void ends(Task task) {
        keeper.ended(task);
        tasks.remove(task.getId());
    }

    private ResourceUsageMetric[] metrics(long thread) {
        return new ResourceUsageMetric[] {
            new ResourceUsageMetric(ResourceStats.MEMORY, bytes(thread)), new ResourceUsageMetric(ResourceStats.CPU, cpuNs(thread))
        };
    }

    void count(long thread, long bytes, long cpuNs) {
        counters.put(thread, new long[] {bytes, cpuNs});
    }

    @Override
    public long bytes(long thread) {
        return counters.getOrDefault(thread, new long[] {-1, -1})[0];
    }

    @Override
    public long cpuNs(long thread) {
        return counters.getOrDefault(thread, new long[] {-1, -1})[1];
    }

    @Override
    public Collection<Task> all() {
        return tasks.values();
    }

    @Override
    public Task find(long id) {
        return tasks.get(id);
    }

    @Override
    public boolean isHere(TaskId id) {
        return id.getNodeId().equals("here");
    }

    @Override
    public void close() {
        keeper.close();
    }
}
