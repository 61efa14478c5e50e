package io.plimsoll.opensearch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.plimsoll.Witness;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.opensearch.core.tasks.TaskId;
import org.opensearch.tasks.Task;

/** What works for a request counts as its own. */
class AccountingTest {
    private static final long MS = FakeNode.MS;

    @TempDir
    Path directory;

    private FakeNode node;
    private long nowNs;

    @BeforeEach
    void begin() {
        node = new FakeNode(directory);
        nowNs = System.nanoTime();
    }

    @AfterEach
    void end() {
        node.close();
    }

    private Root request(Task task) {
        return node.keeper.begin(task, task.getAction(), new Object());
    }

    /** The next look is 20 ms later. */
    private void look() {
        nowNs = Math.max(nowNs, System.nanoTime()) + 20 * MS;
        node.keeper.sampler().look(nowNs);
    }

    private long sum(String resource, String figure) throws IOException {
        return Witness.sum(node.ledger(), resource, figure, null);
    }

    private long held(String resource) throws IOException {
        return sum(resource, "gets") - sum(resource, "frees");
    }

    @Test
    void threadsOfARequestAndOfItsPartsAddUp() throws IOException {
        Task search = node.search(1);
        Root root = request(search);
        Task first = node.shard(2, "here", 1);
        Task second = node.shard(3, "here", 1);
        node.count(10, 500, 5 * MS);
        node.count(11, 0, 0);
        node.count(12, 0, 0);
        node.works(search, 10);
        node.works(first, 11);
        node.works(second, 12);
        // Its segments are searched by another thread at once.
        node.works(second, 10);
        node.count(10, 600, 6 * MS);
        node.count(11, 1000, 10 * MS);
        node.count(12, 10_000, 20 * MS);
        look();
        assertEquals(11_200, held("heap"));
        assertEquals(32 * MS, held("processors"));
        // One part has ended, and the other goes on.
        node.worksNoMore(first, 11);
        node.ends(first);
        node.count(11, 1_000_000, 99 * MS);
        node.count(12, 20_000, 30 * MS);
        look();
        assertEquals(21_200, held("heap"));
        root.end();
        look();
        assertEquals(0, held("heap"), "it is given back");
        assertEquals(21_200, sum("heap", "gets"));
    }

    @Test
    void aThreadThatIsGoneCountsAsItWasLastSeen() throws IOException {
        request(node.search(1));
        Task shard = node.shard(2, "here", 1);
        node.count(11, 100, 0);
        node.works(shard, 11);
        node.count(11, 1100, 3 * MS);
        look();
        node.counters.clear();
        look();
        look();
        assertEquals(1000, held("heap"));
        assertEquals(3 * MS, held("processors"));
    }

    @Test
    void whatIsShorterThanALookCountsAtItsEnd() throws IOException {
        Task search = node.search(1);
        Root root = request(search);
        Task shard = node.shard(2, "here", 1);
        node.count(11, 0, 0);
        node.works(shard, 11);
        node.count(11, 700, MS);
        node.worksNoMore(shard, 11);
        node.ends(shard);
        root.end();
        assertEquals(700, sum("heap", "gets"));
        assertEquals(MS, sum("processors", "gets"));
        assertEquals(0, held("heap"));
    }

    @Test
    void whoHasBegunItAllIsFoundThroughGenerations() {
        Root root = request(node.task(1, "indices:data/read/msearch", TaskId.EMPTY_TASK_ID));
        node.task(2, FakeNode.SEARCH, new TaskId("here", 1));
        Roots roots = node.keeper.roots();
        assertEquals(root, roots.of(node.shard(3, "here", 2)));
        assertEquals(null, roots.of(node.shard(4, "elsewhere", 1)), "another node's number 1");
        assertEquals(null, roots.of(node.shard(5, "here", 99)));
    }

    @Test
    void aPhaseTakesAThreadAndHasWaitedForIt() throws IOException {
        Root root = request(node.search(1));
        Task shard = node.shard(2, "here", 1);
        SearchThreads threads = node.keeper.searchThreads();
        threads.begin(shard);
        assertEquals(1, held("search threads"));
        assertEquals(1, sum("search threads", "slows"));
        assertTrue(sum("search threads", "wait_ns") > 0);
        threads.end();
        assertEquals(0, held("search threads"));
        // The next phase, and one whose end nobody tells.
        threads.begin(shard);
        threads.begin(node.shard(3, "here", 1));
        assertEquals(1, held("search threads"));
        assertEquals(2, sum("search threads", "slows"), "one for each part");
        assertEquals(3, sum("search threads", "gets"));
        root.end();
        threads.end();
        threads.end();
        threads.begin(node.shard(4, "here", 1));
        threads.begin(null);
        assertEquals(0, held("search threads"));
        assertEquals(3, sum("search threads", "gets"), "of nobody");
    }

    @Test
    void whoHasNoThreadYetIsSeenToWait() throws IOException {
        request(node.search(1));
        Task shard = node.shard(2, "here", 1);
        look();
        List<Map<String, String>> waiting =
                Witness.rows(node.ledger(), "account").stream().filter(account -> !account.get("waiting_since_ns").equals("0")).toList();
        assertEquals(1, waiting.size());
        look();
        node.count(11, 0, 0);
        node.works(shard, 11);
        node.keeper.searchThreads().begin(shard);
        look();
        assertEquals(0, sum("search threads", "waiting_since_ns"));
        // What is told when it is over was told by then.
        assertEquals(2, sum("search threads", "slows"));
        node.keeper.searchThreads().end();
    }

    @Test
    void whatThreadsDidNotGetOfBusyProcessorsTheyWaitedFor() throws IOException {
        Root root = request(node.search(1));
        Task shard = node.shard(2, "here", 1);
        node.count(11, 0, 0);
        node.works(shard, 11);
        Look look = root.look();
        for (boolean busy : new boolean[] {true, false, true}) {
            // It gets 4 ms of each 10.
            node.count(11, 0, node.cpuNs(11) + 4 * MS);
            look.begin(1);
            look.add(shard);
            look.end(nowNs, 10 * MS, busy);
        }
        assertEquals(6 * MS, sum("processors", "wait_ns"), "not when it was new, and not while there was room");
        assertEquals(1, sum("processors", "slows"));
        assertEquals(12 * MS, held("processors"));
    }

    @Test
    void ofManyTheOldestAreLookedAt() throws IOException {
        for (long id = 1; id <= 1_100; id++) {
            request(node.search(id));
            Task shard = node.shard(10_000 + id, "here", id);
            node.count(id, 0, 0);
            node.works(shard, id);
            node.count(id, 1, 0);
        }
        look();
        assertEquals(1_024, sum("heap", "gets"));
    }

    @Test
    void itsOwnThreadSurvivesWhatFails() throws Exception {
        node.close();
        node = new FakeNode(directory);
        node.keeper.start(new Running() {
            @Override
            public Collection<Task> all() {
                throw new IllegalStateException("not now");
            }

            @Override
            public Task find(long id) {
                return node.find(id);
            }

            @Override
            public boolean isHere(TaskId id) {
                return true;
            }
        });
        Root failing = request(node.search(1));
        Thread.sleep(50);
        node.keeper.follow(node);
        Task shard = node.shard(2, "here", 1);
        node.count(11, 0, 0);
        node.works(shard, 11);
        node.count(11, 5, 0);
        for (int i = 0; i < 1000 && held("heap") == 0; i++) {
            Thread.sleep(10);
        }
        assertEquals(5, held("heap"));
        failing.end();
        for (int i = 0; i < 1000 && held("heap") > 0; i++) {
            Thread.sleep(10);
        }
        assertEquals(0, held("heap"));
    }
}
