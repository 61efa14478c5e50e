package io.plimsoll.solr;

import static org.apache.solr.common.params.CommonParams.IS_QUERY_CANCELLABLE;
import static org.apache.solr.common.params.CommonParams.QUERY_UUID;
import static org.apache.solr.common.params.ShardParams.IS_SHARD;
import static org.apache.solr.common.params.ShardParams.QUERY_ID;

import io.plimsoll.Plimsoll;
import io.plimsoll.Task;
import io.plimsoll.TaskBuilder;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.solr.common.params.ModifiableSolrParams;
import org.apache.solr.common.params.SolrParams;
import org.apache.solr.search.CancellableCollector;

/**
 * A query as Solr knows it by its parameters, made one that can be cancelled.
 *
 * @param id what Solr knows it by when it is to be cancelled
 * @param number ours
 * @param ofShard whether another Solr asks, on behalf of a client that waits there
 */
record Query(SolrParams marked, String id, long number, boolean ofShard) {
    /** How long to look for the search that is to be cancelled: between two of the same query, or before the first, there is none. */
    private static final long PATIENCE_MS = 500;
    private static final long LOOK_MS = 5;

    /** The query of these parameters: those of the client stand, where it has asked for a number of its own or for none. */
    static Query of(SolrParams asked, long number) {
        boolean ofShard = asked.getBool(IS_SHARD, false);
        String own = asked.get(QUERY_ID, asked.get(QUERY_UUID));
        if (own != null || asked.get(IS_QUERY_CANCELLABLE) != null) {
            boolean cancellable = asked.getBool(IS_QUERY_CANCELLABLE, false);
            return new Query(asked, cancellable ? own : null, number, ofShard);
        }
        String id = "plimsoll-" + number;
        ModifiableSolrParams marked = new ModifiableSolrParams(asked);
        marked.set(IS_QUERY_CANCELLABLE, true);
        // A query for several shards is known by the first and hands it on as the second; any other is known by that.
        marked.set(QUERY_UUID, id);
        marked.set(QUERY_ID, id);
        return new Query(marked, id, number, ofShard);
    }

    /** Begins its task. {@code searches} finds what collects its documents now; null where nothing does. */
    Task task(Plimsoll app, String label, Function<String, CancellableCollector> searches) {
        TaskBuilder asked = app.task(label).key(number);
        if (ofShard) {
            // It is part of one that counts where the client asks.
            asked.background();
        }
        if (id == null) {
            return asked.uncancellable().begin();
        }
        return asked.onCancel(why -> cancel(id, searches)).begin();
    }

    private static void cancel(String id, Function<String, CancellableCollector> searches) throws InterruptedException {
        for (long waited = 0; waited <= PATIENCE_MS; waited += LOOK_MS) {
            CancellableCollector search = searches.apply(id);
            if (search != null) {
                search.cancel();
                return;
            }
            TimeUnit.MILLISECONDS.sleep(LOOK_MS);
        }
        throw new IllegalStateException("it has collected no documents for " + PATIENCE_MS + " ms, and Solr cancels what does");
    }
}
