package io.plimsoll.solr;

import io.plimsoll.Plimsoll;
import io.plimsoll.Task;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.solr.core.CloseHook;
import org.apache.solr.core.SolrCore;
import org.apache.solr.handler.component.SearchHandler;
import org.apache.solr.request.SolrQueryRequest;
import org.apache.solr.request.SolrRequestInfo;
import org.apache.solr.response.SolrQueryResponse;

/**
 * Solr's {@code solr.SearchHandler}, of which every query is a task: from when a thread has it to when its answer is written.
 *
 * <pre>{@code
 * <requestHandler name="/select" class="io.plimsoll.solr.PlimsollSearchHandler"> ... as before ...
 * }</pre>
 *
 * <p>Whose query is cancelled gets what was found so far, with {@code partialResults}, as from Solr's own {@code /tasks/cancel}. All cores of a Solr are one application; its name is the system
 * property {@value #APPLICATION}, or {@code solr}.
 */
public class PlimsollSearchHandler extends SearchHandler {
    /** The system property that names the application. */
    public static final String APPLICATION = "plimsoll.app";

    /** Queries are numbered, whichever core they are for. */
    private static final AtomicLong NUMBERS = new AtomicLong();

    private Plimsoll app;

    /** Made by Solr, for each core. */
    public PlimsollSearchHandler() {}

    @Override
    public void inform(SolrCore core) {
        super.inform(core);
        app = Plimsoll.open(System.getProperty(APPLICATION, "solr"));
        core.addCloseHook(new CloseHook() {
            @Override
            public void postClose(SolrCore closed) {
                app.close();
            }
        });
    }

    @Override
    public void handleRequestBody(SolrQueryRequest request, SolrQueryResponse response) throws Exception {
        Query query = Query.of(request.getParams(), NUMBERS.incrementAndGet());
        request.setParams(query.marked());
        SolrCore core = request.getCore();
        Task task = query.task(app, core.getName() + request.getPath(), core.getCancellableQueryTracker()::getCancellableTask);
        SolrRequestInfo info = SolrRequestInfo.getRequestInfo();
        if (info != null) {
            // What was found is read when the answer is written.
            info.addCloseHook(task::close);
            super.handleRequestBody(request, response);
            return;
        }
        try (task) {
            super.handleRequestBody(request, response);
        }
    }
}
