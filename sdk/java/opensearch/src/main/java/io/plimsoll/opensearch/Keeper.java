package io.plimsoll.opensearch;

import io.plimsoll.Plimsoll;
import io.plimsoll.TaskBuilder;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.opensearch.tasks.CancellableTask;
import org.opensearch.tasks.Task;

/** All that keeps the ledger of one node. It accounts once it is told who {@linkplain #start knows the node's tasks}. */
public final class Keeper {
    private static final Logger LOG = LogManager.getLogger(Keeper.class);

    private final Plimsoll app;
    private final Resources resources;
    private final Threads threads;
    private final Cancel cancel;
    private final Roots roots = new Roots();
    private final SearchThreads searchThreads;
    private final Sampler sampler;

    Keeper(Plimsoll app, int searchThreads, Threads threads, Cancel cancel) {
        this.app = app;
        this.threads = threads;
        this.cancel = cancel;
        resources = Resources.of(app, searchThreads);
        this.searchThreads = new SearchThreads(roots, resources.searchThreads());
        sampler = new Sampler(roots);
    }

    /** From now on requests are accounted. */
    void start(Running running) {
        follow(running);
        sampler.start();
    }

    /** The same without a thread that looks. */
    void follow(Running running) {
        roots.follow(running);
    }

    /** No request is accounted any more, and the ledger goes. */
    void close() {
        roots.follow(null);
        sampler.close();
        app.close();
    }

    SearchThreads searchThreads() {
        return searchThreads;
    }

    Roots roots() {
        return roots;
    }

    Sampler sampler() {
        return sampler;
    }

    /** A request has come. Null if it is none of a client, or if it is none that is new. */
    Root begin(Task task, String action, Object request) {
        try {
            if (task == null || !Actions.isClients(action) || task.getParentTaskId().isSet() || !roots.follows() || roots.has(task.getId())) {
                return null;
            }
            TaskBuilder asked = app.task(Actions.label(action, request)).key(task.getId()).detached();
            if (Actions.isBackground(action)) {
                asked.background();
            }
            if (task instanceof CancellableTask) {
                asked.onCancel(why -> cancel.cancel(task.getId(), why.reason()));
            } else {
                asked.uncancellable();
            }
            Root root = new Root(task, asked.begin(), roots, resources, threads);
            roots.add(root);
            sampler.wake();
            return root;
        } catch (RuntimeException e) {
            LOG.debug("a request goes unaccounted", e);
            return null;
        }
    }

    /** A task of the node has ended, whatever became of it. */
    void ended(Task task) {
        try {
            Root root = roots.of(task);
            if (root == null) {
                return;
            }
            if (root.node() == task) {
                // Also where nobody has told its listener.
                root.end();
            } else {
                root.add(Taken.by(task, threads));
            }
        } catch (RuntimeException e) {
            LOG.debug("what a task took goes unaccounted", e);
        }
    }
}
