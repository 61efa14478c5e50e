package io.plimsoll.opensearch;

import org.opensearch.action.admin.cluster.node.tasks.cancel.CancelTasksRequest;
import org.opensearch.action.admin.cluster.node.tasks.cancel.CancelTasksResponse;
import org.opensearch.core.tasks.TaskId;
import org.opensearch.transport.client.Client;
import org.opensearch.transport.client.node.NodeClient;

/** As {@code POST _tasks/ID/_cancel} does it, which also ends what works for the task, on whatever node. */
final class NodeCancel implements Cancel {
    private final Client client;

    NodeCancel(Client client) {
        this.client = client;
    }

    @Override
    public void cancel(long task, String why) throws Exception {
        if (!(client instanceof NodeClient node)) {
            throw new IllegalStateException("this is no node's own client");
        }
        CancelTasksRequest request = new CancelTasksRequest().setTaskId(new TaskId(node.getLocalNodeId(), task)).setReason(why);
        request.setWaitForCompletion(false);
        CancelTasksResponse response = client.admin().cluster().cancelTasks(request).actionGet();
        // Who is not there any more has ended by itself, which its task tells.
        if (!response.getTaskFailures().isEmpty()) {
            throw response.getTaskFailures().getFirst().getCause();
        }
    }
}
