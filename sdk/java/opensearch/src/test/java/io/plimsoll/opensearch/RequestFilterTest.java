package io.plimsoll.opensearch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.plimsoll.Witness;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.opensearch.action.ActionRequest;
import org.opensearch.action.ActionRequestValidationException;
import org.opensearch.action.support.ActionFilterChain;
import org.opensearch.core.action.ActionListener;
import org.opensearch.core.action.ActionResponse;
import org.opensearch.core.tasks.TaskId;
import org.opensearch.tasks.Task;

/** Requests become tasks, which end as often as they begin. */
class RequestFilterTest {
    @TempDir
    Path directory;

    private FakeNode node;
    private RequestFilter filter;
    /** What the client was told. */
    private final List<String> told = new ArrayList<>();
    /** Whom the node has to tell. */
    private final List<ActionListener<ActionResponse>> waiting = new ArrayList<>();

    private final ActionListener<ActionResponse> client = new ActionListener<>() {
        @Override
        public void onResponse(ActionResponse response) {
            told.add("response");
        }

        @Override
        public void onFailure(Exception e) {
            told.add(e.getMessage());
        }
    };

    private static final class Request extends ActionRequest {
        @Override
        public ActionRequestValidationException validate() {
            return null;
        }
    }

    @BeforeEach
    void begin() {
        node = new FakeNode(directory);
        filter = new RequestFilter(node.keeper);
    }

    @AfterEach
    void end() {
        node.close();
    }

    private void apply(Task task, String action, ActionFilterChain<Request, ActionResponse> chain) {
        filter.apply(task, action, new Request(), null, client, chain);
    }

    private void apply(Task task, String action) {
        apply(task, action, (t, a, r, listener) -> waiting.add(listener));
    }

    private long completed() throws IOException {
        return Witness.rows(node.ledger(), "lane").stream().mapToLong(lane -> Long.parseLong(lane.get("completed"))).sum();
    }

    @Test
    void aRequestIsATaskUntilItIsAnswered() throws IOException {
        apply(node.search(7), FakeNode.SEARCH);
        Map<String, String> task = Witness.tasks(node.ledger()).getFirst();
        assertEquals(List.of("7", "search", "1"), List.of(task.get("key"), task.get("label"), task.get("flags")));
        waiting.getFirst().onResponse(null);
        assertEquals(List.of(), Witness.tasks(node.ledger()));
        // Should somebody tell it twice, it has ended once.
        waiting.getFirst().onFailure(new IllegalStateException("again"));
        node.ends(node.tasks.get(7L));
        assertEquals(1, completed());
        assertEquals(List.of("response", "again"), told);
    }

    @Test
    void aFailureEndsItToo() throws IOException {
        apply(node.search(7), FakeNode.SEARCH);
        waiting.getFirst().onFailure(new IllegalStateException("no such index"));
        assertEquals(1, completed());
        assertEquals(List.of("no such index"), told);
        IllegalStateException thrown = assertThrows(IllegalStateException.class, () -> apply(node.search(8), FakeNode.SEARCH, (t, a, r, listener) -> {
            throw new IllegalStateException("at once");
        }));
        assertEquals("at once", thrown.getMessage());
        assertEquals(2, completed());
        assertEquals(List.of(), Witness.tasks(node.ledger()));
        assertEquals(List.of("no such index"), told, "whoever called tells that");
    }

    @Test
    void aListenerThatIsNeverToldLeavesNothingBehind() throws IOException {
        Task task = node.search(7);
        apply(task, FakeNode.SEARCH);
        node.ends(task);
        assertEquals(List.of(), Witness.tasks(node.ledger()));
        assertEquals(1, completed());
    }

    @Test
    void whatWorksForARequestIsNone() throws IOException {
        apply(node.task(9, FakeNode.SEARCH, new TaskId("elsewhere", 7)), FakeNode.SEARCH);
        apply(node.task(10, "cluster:monitor/health", TaskId.EMPTY_TASK_ID), "cluster:monitor/health");
        apply(null, FakeNode.SEARCH);
        assertEquals(List.of(), Witness.tasks(node.ledger()));
        // One document is written as several are, by the same task.
        Task index = node.task(11, "indices:data/write/index", TaskId.EMPTY_TASK_ID);
        apply(index, "indices:data/write/index", (task, a, r, listener) -> apply(task, "indices:data/write/bulk"));
        assertEquals(List.of("index"), Witness.tasks(node.ledger()).stream().map(task -> task.get("label")).toList());
        assertEquals(4, waiting.size(), "all of them go on");
    }

    @Test
    void whatCannotBeCancelledSaysSoAndWorkInTheBackgroundToo() throws IOException {
        apply(node.task(1, "indices:data/write/bulk", TaskId.EMPTY_TASK_ID), "indices:data/write/bulk");
        apply(node.task(2, "indices:data/write/update/byquery", TaskId.EMPTY_TASK_ID), "indices:data/write/update/byquery");
        List<Map<String, String>> tasks = Witness.tasks(node.ledger());
        assertEquals(List.of("bulk 0", "update by query 2"), tasks.stream().map(task -> task.get("label") + " " + task.get("flags")).toList());
    }

    @Test
    void cancellingAsksTheNode() throws Exception {
        node.close();
        try (Witness agent = new Witness(directory)) {
            begin();
            agent.welcome();
            apply(node.search(7), FakeNode.SEARCH);
            agent.cancel(1, Witness.tasks(node.ledger()).getFirst(), "it fills the heap");
            assertEquals("acknowledge 1", agent.next());
            // The agent sees that it ends: the node answers it.
            while (node.cancelled.isEmpty()) {
                Thread.sleep(1);
            }
            assertEquals(List.of("7 it fills the heap"), node.cancelled);
            waiting.getFirst().onFailure(new IllegalStateException("task cancelled"));
            assertEquals("outcome 1 cancelled", agent.next());
        }
    }

    @Test
    void afterTheEndRequestsGoOn() {
        node.close();
        apply(node.search(7), FakeNode.SEARCH);
        waiting.getFirst().onResponse(null);
        assertEquals(List.of("response"), told);
    }
}
