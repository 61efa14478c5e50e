package io.plimsoll.servlet;

import io.plimsoll.Plimsoll;
import io.plimsoll.Task;
import io.plimsoll.TaskBuilder;
import io.plimsoll.Work;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.FilterConfig;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * Makes every request a task, from when it passes this filter to when it is answered. Should come first, and be set up with {@code async-supported}.
 *
 * <p>A request that is cancelled is interrupted. If it then ends with an exception, as it does unless the application handles that, and nothing was sent yet, it is answered with
 * 503, {@code cancelled: } with the reason, and the header {@value #CANCELLED}, which names what it held up. What the application answers by itself stands. A gateway may send such a request a second
 * time, with the header {@value #RERUN} being 1: it is not cancelled then.
 *
 * <p>A request that is answered asynchronously is a task until the container says that it is complete. No thread works for it after the first one has returned, but for those that
 * {@linkplain Task#enter enter} the task, which is the request's attribute {@value #TASK}; if none does, being cancelled means that {@link Task#isCancelled} says so.
 */
public class PlimsollFilter implements Filter {
    /** The request's attribute that is its {@link Task}. */
    public static final String TASK = "io.plimsoll.task";
    /** In the answer to a request that was cancelled: the name of the resource that it held up. */
    public static final String CANCELLED = "plimsoll-cancelled";
    /** {@code 1} in a request that is sent a second time because it was cancelled. */
    public static final String RERUN = "plimsoll-rerun";

    private Plimsoll app;
    private boolean opened;

    /** A filter that opens its application itself: its name is the init parameter {@code application}, or {@code servlet}. */
    public PlimsollFilter() {}

    /** A filter of an application that is open, and that it leaves open. */
    public PlimsollFilter(Plimsoll app) {
        this.app = app;
    }

    @Override
    public void init(FilterConfig config) {
        if (app == null) {
            String name = config.getInitParameter("application");
            app = Plimsoll.open(name == null ? "servlet" : name);
            opened = true;
        }
    }

    @Override
    public void destroy() {
        if (opened) {
            app.close();
            app = null;
            opened = false;
        }
    }

    /**
     * What kind of task a request is. By default one that is called by its method and the servlet's path, such as {@code GET /report/*}, or its own path where one servlet does it all.
     * Override this for a key, a deadline, or what cannot be cancelled.
     */
    protected TaskBuilder task(Plimsoll app, HttpServletRequest request) {
        String pattern = request.getHttpServletMapping() == null ? "" : request.getHttpServletMapping().getPattern();
        boolean says = pattern != null && !pattern.isEmpty() && !pattern.equals("/") && !pattern.equals("/*");
        return app.task(request.getMethod() + " " + (says ? pattern : request.getRequestURI()));
    }

    @Override
    public final void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (!(request instanceof HttpServletRequest http) || !(response instanceof HttpServletResponse answer)) {
            chain.doFilter(request, response);
            return;
        }
        if (request.getAttribute(TASK) instanceof Task begun) {
            // Handed on: to another servlet, to an error page, or back to the container.
            try (Work work = begun.enter()) {
                pass(begun, http, answer, chain);
            }
            return;
        }
        TaskBuilder asked = task(app, http);
        Task task = ("1".equals(http.getHeader(RERUN)) ? asked.again() : asked).begin();
        request.setAttribute(TASK, task);
        try {
            pass(task, http, answer, chain);
        } finally {
            if (!goesOn(task, http)) {
                task.close();
            }
        }
    }

    private static void pass(Task task, HttpServletRequest request, HttpServletResponse response, FilterChain chain) throws IOException, ServletException {
        try {
            chain.doFilter(request, response);
        } catch (IOException | ServletException | RuntimeException | Error e) {
            if (!task.isCancelled() || response.isCommitted()) {
                throw e;
            }
            // The interrupt has done what it was for, and would keep the answer from being sent.
            Thread.interrupted();
            byte[] why = ("cancelled: " + task.cancellation().reason()).getBytes(StandardCharsets.UTF_8);
            response.reset();
            response.setStatus(HttpServletResponse.SC_SERVICE_UNAVAILABLE);
            response.setHeader(CANCELLED, headerValue(task.cancellation().resource()));
            response.setContentType("text/plain; charset=utf-8");
            response.setContentLength(why.length);
            response.getOutputStream().write(why);
        }
    }

    /** A text as a header can carry it: printable ASCII. */
    private static String headerValue(String text) {
        return text.replaceAll("[^ -~]", "?");
    }

    /** Whether the request is answered later; then the task ends with it. */
    private static boolean goesOn(Task task, HttpServletRequest request) {
        if (!request.isAsyncStarted()) {
            return false;
        }
        try {
            request.getAsyncContext().addListener(new Ending(task));
        } catch (IllegalStateException e) {
            return false; // it was completed meanwhile
        }
        task.detach();
        return true;
    }

    /** Ends the task with the request. */
    private record Ending(Task task) implements AsyncListener {
        @Override
        public void onComplete(AsyncEvent event) {
            task.close();
        }

        @Override
        public void onTimeout(AsyncEvent event) {
            // The container completes it next.
        }

        @Override
        public void onError(AsyncEvent event) {
            // The container completes it next.
        }

        @Override
        public void onStartAsync(AsyncEvent event) {
            event.getAsyncContext().addListener(this);
        }
    }
}
