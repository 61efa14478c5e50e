package io.plimsoll.opensearch;

import org.opensearch.index.shard.SearchOperationListener;
import org.opensearch.search.internal.SearchContext;

/** The phases of searches on the shards of an index. */
final class PhaseListener implements SearchOperationListener {
    private final SearchThreads threads;

    PhaseListener(SearchThreads threads) {
        this.threads = threads;
    }

    @Override
    public void onPreQueryPhase(SearchContext context) {
        threads.begin(context.getTask());
    }

    @Override
    public void onQueryPhase(SearchContext context, long tookInNanos) {
        threads.end();
    }

    @Override
    public void onFailedQueryPhase(SearchContext context) {
        threads.end();
    }

    @Override
    public void onPreFetchPhase(SearchContext context) {
        threads.begin(context.getTask());
    }

    @Override
    public void onFetchPhase(SearchContext context, long tookInNanos) {
        threads.end();
    }

    @Override
    public void onFailedFetchPhase(SearchContext context) {
        threads.end();
    }
}
