package io.plimsoll.solr;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.plimsoll.FakeAgent;
import io.plimsoll.Plimsoll;
import io.plimsoll.Task;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.search.Collector;
import org.apache.lucene.search.LeafCollector;
import org.apache.lucene.search.Scorable;
import org.apache.lucene.search.ScoreMode;
import org.apache.solr.common.params.MapSolrParams;
import org.apache.solr.common.params.SolrParams;
import org.apache.solr.search.CancellableCollector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What a query is made of, and how it is cancelled; in a Solr the whole is tried by the project's cases. */
@Timeout(60)
class QueryTest {
    @TempDir
    Path directory;

    private final Map<String, CancellableCollector> searches = new ConcurrentHashMap<>();
    private FakeAgent agent;
    private Plimsoll app;

    @BeforeEach
    void start() throws Exception {
        agent = new FakeAgent(directory);
        app = Plimsoll.of("solr").directory(directory).lanes(1).open();
        agent.welcome();
    }

    @AfterEach
    void stop() throws Exception {
        app.close();
        agent.close();
    }

    private static Query of(Map<String, String> params) {
        return Query.of(new MapSolrParams(params), 7);
    }

    @Test
    void aQueryIsMadeOneThatCanBeCancelledWithOneShardOrWithSeveral() {
        Query query = of(Map.of("q", "a:b"));
        assertEquals("plimsoll-7", query.id());
        assertFalse(query.ofShard());
        SolrParams marked = query.marked();
        assertEquals("a:b", marked.get("q"));
        assertTrue(marked.getBool("canCancel", false));
        assertEquals("plimsoll-7", marked.get("queryUUID"));
        assertEquals("plimsoll-7", marked.get("queryID"));
    }

    @Test
    void whatItsClientHasAskedForStands() {
        Map<String, String> own = Map.of("canCancel", "true", "queryUUID", "mine");
        assertEquals("mine", of(own).id());
        assertNull(of(own).marked().get("queryID"));
        assertNull(of(Map.of("canCancel", "false")).id(), "it is not to be cancelled");
        assertNull(of(Map.of("queryUUID", "mine")).id(), "nor is one that has not asked for that");
        Query part = of(Map.of("isShard", "true", "canCancel", "true", "queryUUID", "whole", "queryID", "part"));
        assertTrue(part.ofShard());
        assertEquals("part", part.id());
    }

    @Test
    void beingCancelledMeansThatTheSearchOfThatNumberIs() throws Exception {
        Search other = new Search();
        Search own = new Search();
        searches.put("plimsoll-8", other.collector);
        Task task = of(Map.of("q", "a:b")).task(app, "items/select", searches::get);
        agent.cancel(1, task, "it has every thread");
        agent.expect("acknowledge 1");
        assertTrue(other.goesOn());
        // Between two of its searches there is none; the next is told.
        searches.put("plimsoll-7", own.collector);
        while (own.goesOn()) {
            Thread.onSpinWait();
        }
        task.close();
        agent.expect("outcome 1 cancelled");
        assertTrue(other.goesOn());
    }

    @Test
    void whoCollectsNothingCannotBeCancelledAndThatIsSaid() throws Exception {
        Task task = of(Map.of("q", "a:b")).task(app, "items/select", searches::get);
        agent.cancel(1, task, "it has every thread");
        agent.expect("acknowledge 1");
        String outcome = agent.next();
        assertTrue(outcome.startsWith("outcome 1 failed") && outcome.contains("no documents"), outcome);
        task.close();
    }

    @Test
    void theThreadThatAnswersWorksForIt() {
        try (Task task = of(Map.of("q", "a:b")).task(app, "items/select", searches::get)) {
            assertSame(task, Task.current());
        }
        assertNull(Task.current());
    }

    /** A search, as Solr has them collect documents. */
    private static final class Search implements Collector, LeafCollector {
        final CancellableCollector collector = new CancellableCollector(this);

        boolean goesOn() {
            try {
                collector.getLeafCollector(null).collect(0);
                return true;
            } catch (Exception e) {
                return false;
            }
        }

        @Override
        public LeafCollector getLeafCollector(LeafReaderContext context) {
            return this;
        }

        @Override
        public ScoreMode scoreMode() {
            return ScoreMode.COMPLETE_NO_SCORES;
        }

        @Override
        public void setScorer(Scorable scorer) {}

        @Override
        public void collect(int doc) {}
    }
}
