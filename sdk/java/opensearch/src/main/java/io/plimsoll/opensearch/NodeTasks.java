package io.plimsoll.opensearch;

import java.util.Collection;
import org.opensearch.common.inject.Inject;
import org.opensearch.common.lifecycle.AbstractLifecycleComponent;
import org.opensearch.core.tasks.TaskId;
import org.opensearch.tasks.Task;
import org.opensearch.tasks.TaskManager;
import org.opensearch.transport.TransportService;

/** The node's own list of its tasks, and when each has ended. OpenSearch makes it, since a plug-in cannot get at that list otherwise. */
public final class NodeTasks extends AbstractLifecycleComponent implements Running, TaskManager.TaskEventListeners {
    private final Keeper keeper;
    private final TransportService transport;
    private final TaskManager tasks;

    /** Nothing runs yet, so that nobody looks through the listeners just now. */
    @Inject
    public NodeTasks(Keeper keeper, TransportService transport) {
        this.keeper = keeper;
        this.transport = transport;
        tasks = transport.getTaskManager();
        tasks.addTaskEventListeners(this);
    }

    @Override
    protected void doStart() {
        keeper.start(this);
    }

    @Override
    protected void doStop() {
        // The plug-in's end is the end.
    }

    @Override
    protected void doClose() {
        // Likewise.
    }

    @Override
    public Collection<Task> all() {
        return tasks.getTasks().values();
    }

    @Override
    public Task find(long id) {
        return tasks.getTask(id);
    }

    @Override
    public boolean isHere(TaskId id) {
        return id.getNodeId().equals(transport.getLocalNode().getId());
    }

    @Override
    public void onTaskCompleted(Task task) {
        keeper.ended(task);
    }
}
