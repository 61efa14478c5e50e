package io.plimsoll.opensearch;

import java.util.Collection;
import org.opensearch.core.tasks.TaskId;
import org.opensearch.tasks.Task;

/** The tasks that the node has now. */
interface Running {
    Collection<Task> all();

    /** Null if there is none, as where it has ended. */
    Task find(long id);

    /** Whether it is one of this node: numbers are each node's own. */
    boolean isHere(TaskId id);
}
