package io.plimsoll.opensearch;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentSkipListMap;
import org.opensearch.core.tasks.TaskId;
import org.opensearch.tasks.Task;

/** The requests that there are now, by the numbers of their tasks, which is by when they came. */
final class Roots {
    /** Generations that are followed up. */
    private static final int GENERATIONS = 16;

    private final ConcurrentSkipListMap<Long, Root> live = new ConcurrentSkipListMap<>();
    /** Null while nobody knows the node's tasks. */
    private volatile Running running;

    void follow(Running running) {
        this.running = running;
    }

    boolean follows() {
        return running != null;
    }

    void add(Root root) {
        live.put(root.node().getId(), root);
    }

    void remove(Root root) {
        live.remove(root.node().getId(), root);
    }

    boolean has(long id) {
        return live.containsKey(id);
    }

    boolean isEmpty() {
        return live.isEmpty();
    }

    /** The oldest come first. */
    Collection<Root> all() {
        return live.values();
    }

    /** All tasks of the node. */
    Collection<Task> tasks() {
        Running running = this.running;
        return running == null ? List.of() : running.all();
    }

    /** Whom a task works for; null if for nobody that is known, as where another node has begun it. */
    Root of(Task task) {
        Running running = this.running;
        for (int i = 0; running != null && task != null && i < GENERATIONS; i++) {
            Root root = live.get(task.getId());
            if (root != null) {
                return root;
            }
            TaskId parent = task.getParentTaskId();
            if (!parent.isSet() || !running.isHere(parent)) {
                return null;
            }
            root = live.get(parent.getId());
            if (root != null) {
                return root;
            }
            task = running.find(parent.getId());
        }
        return null;
    }
}
