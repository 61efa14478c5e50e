package io.plimsoll.opensearch;

import org.opensearch.action.ActionRequest;
import org.opensearch.action.support.ActionFilter;
import org.opensearch.action.support.ActionFilterChain;
import org.opensearch.action.support.ActionRequestMetadata;
import org.opensearch.core.action.ActionListener;
import org.opensearch.core.action.ActionResponse;
import org.opensearch.tasks.Task;

/** Makes every request of a client a task, from when it passes here to when it is answered. */
final class RequestFilter implements ActionFilter {
    private final Keeper keeper;

    RequestFilter(Keeper keeper) {
        this.keeper = keeper;
    }

    /** Before all but one that has to be the very first, which may refuse it. */
    @Override
    public int order() {
        return Integer.MIN_VALUE + 1;
    }

    @Override
    public <Request extends ActionRequest, Response extends ActionResponse> void apply(Task task, String action, Request request,
            ActionRequestMetadata<Request, Response> metadata, ActionListener<Response> listener, ActionFilterChain<Request, Response> chain) {
        Root root = keeper.begin(task, action, request);
        if (root == null) {
            chain.proceed(task, action, request, listener);
            return;
        }
        boolean proceeds = false;
        try {
            chain.proceed(task, action, request, new Ending<>(root, listener));
            proceeds = true;
        } finally {
            if (!proceeds) {
                // Whoever called answers it.
                root.end();
            }
        }
    }

    /** Ends the task with the request, before the client knows. */
    private record Ending<Response>(Root root, ActionListener<Response> listener) implements ActionListener<Response> {
        @Override
        public void onResponse(Response response) {
            try {
                root.end();
            } finally {
                listener.onResponse(response);
            }
        }

        @Override
        public void onFailure(Exception e) {
            try {
                root.end();
            } finally {
                listener.onFailure(e);
            }
        }
    }
}
