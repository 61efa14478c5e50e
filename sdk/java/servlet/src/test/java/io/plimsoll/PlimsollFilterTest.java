package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.plimsoll.servlet.PlimsollFilter;
import jakarta.servlet.AsyncContext;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The filter in a container, with an agent. */
@Timeout(60)
class PlimsollFilterTest {
    @TempDir
    Path directory;

    private final BlockingQueue<Task> tasks = new LinkedBlockingQueue<>();
    private final BlockingQueue<AsyncContext> asyncs = new LinkedBlockingQueue<>();
    private final CountDownLatch go = new CountDownLatch(1);
    private final HttpClient client = HttpClient.newHttpClient();
    private FakeAgent agent;
    private Plimsoll app;
    private Tomcat tomcat;

    @BeforeEach
    void start() throws Exception {
        agent = new FakeAgent(directory);
        app = Plimsoll.of("servlets").directory(directory).lanes(1).open();
        agent.welcome();
        tomcat = new Tomcat();
        tomcat.setBaseDir(directory.resolve("tomcat").toString());
        tomcat.setPort(0);
        tomcat.getConnector();
        Context context = tomcat.addContext("", directory.toString());
        FilterDef def = new FilterDef();
        def.setFilterName("plimsoll");
        def.setFilter(new PlimsollFilter(app));
        def.setAsyncSupported("true");
        context.addFilterDef(def);
        FilterMap map = new FilterMap();
        map.setFilterName("plimsoll");
        map.addURLPattern("/*");
        map.setDispatcher("REQUEST");
        map.setDispatcher("ASYNC");
        context.addFilterMap(map);
        add(context, "fine", "/fine/*", (request, response) -> response.getWriter().print("ok"));
        add(context, "sleeps", "/sleeps", (request, response) -> {
            try {
                Thread.sleep(1_000 * FakeAgent.PATIENCE_S);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new ServletException(e);
            }
        });
        add(context, "waits", "/waits", (request, response) -> {
            if (Layout.RERUN != Memory.getInt(app.ledger.memory, app.ledger.shape.taskAt(Task.current().record) + Layout.FLAGS)) {
                throw new ServletException("it is not said to be here again");
            }
            try {
                go.await();
            } catch (InterruptedException e) {
                throw new ServletException(e);
            }
            response.getWriter().print("the second time");
        });
        add(context, "fails", "/fails", (request, response) -> {
            throw new ServletException("by itself");
        });
        add(context, "async", "/async", (request, response) -> asyncs.add(request.startAsync()));
        add(context, "again", "/again", (request, response) -> {
            if (request.getAttribute("dispatched") == null) {
                request.setAttribute("dispatched", true);
                request.startAsync().dispatch();
            } else {
                response.getWriter().print(Task.current() == request.getAttribute(PlimsollFilter.TASK) ? "ok" : "of no task");
            }
        });
        tomcat.start();
    }

    @AfterEach
    void stop() throws Exception {
        tomcat.stop();
        tomcat.destroy();
        agent.close();
        app.close();
    }

    interface Body {
        void answer(HttpServletRequest request, HttpServletResponse response) throws ServletException, IOException;
    }

    private void add(Context context, String name, String path, Body body) {
        HttpServlet servlet = new HttpServlet() {
            private static final long serialVersionUID = 1;

            @Override
            protected void doGet(HttpServletRequest request, HttpServletResponse response) throws ServletException, IOException {
                tasks.add(Task.current());
                body.answer(request, response);
            }
        };
        Tomcat.addServlet(context, name, servlet).setAsyncSupported(true);
        context.addServletMappingDecoded(path, name);
    }

    private CompletableFuture<HttpResponse<String>> get(String path, String... headers) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + path));
        if (headers.length > 0) {
            request.headers(headers);
        }
        return client.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    private Task task() throws InterruptedException {
        Task task = tasks.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS);
        assertTrue(task != null, "no request has come");
        return task;
    }

    private void awaitLine(String word, Consumer<String> check) throws Exception {
        long until = System.nanoTime() + FakeAgent.PATIENCE_S * 1_000_000_000L;
        while (true) {
            String line = Dump.of(Files.readAllBytes(app.file())).lines().filter(l -> l.contains(word)).findFirst().orElse("");
            try {
                check.accept(line);
                return;
            } catch (AssertionError e) {
                if (System.nanoTime() - until > 0) {
                    throw e;
                }
                Thread.sleep(5);
            }
        }
    }

    @Test
    void aRequestIsATaskUntilItIsAnswered() throws Exception {
        assertEquals("ok", get("/fine/7?all").get().body());
        Task task = task();
        awaitLine("task " + task.record, line -> assertTrue(line.contains(" turn=2 ") && line.endsWith(" GET /fine/*"), line));
        awaitLine("lane 0", line -> assertTrue(line.contains("completed=1 cancelled=0"), line));
    }

    @Test
    void aRequestThatIsCancelledIsAnswered() throws Exception {
        app.resource(Kind.LOCK, "täble", 1); // what the agent names as held up
        CompletableFuture<HttpResponse<String>> answer = get("/sleeps", "plimsoll-rerun", "0");
        Task task = task();
        agent.cancel(1, task, "GET /sleeps holds table for 1.2 s");
        assertEquals("cancelled: GET /sleeps holds table for 1.2 s", answer.get().body());
        assertEquals(503, answer.get().statusCode());
        assertEquals("t?ble", answer.get().headers().firstValue("plimsoll-cancelled").orElse("none"));
        agent.expect("acknowledge 1");
        agent.expect("outcome 1 cancelled");
        awaitLine("lane 0", line -> assertTrue(line.contains("completed=1 cancelled=1"), line));
        assertEquals("ok", get("/fine/").get().body());
    }

    @Test
    void aRequestThatIsSentASecondTimeIsNotCancelled() throws Exception {
        CompletableFuture<HttpResponse<String>> answer = get("/waits", "Plimsoll-Rerun", "1");
        Task task = task();
        agent.cancel(1, task, "again?");
        agent.expect("outcome 1 failed the task cannot be cancelled");
        go.countDown();
        assertEquals("the second time", answer.get().body());
        assertEquals(200, answer.get().statusCode());
    }

    @Test
    void aRequestThatFailsByItselfIsTheContainersBusiness() throws Exception {
        assertEquals(500, get("/fails").get().statusCode());
        awaitLine("lane 0", line -> assertTrue(line.contains("completed=1 cancelled=0"), line));
    }

    @Test
    void aRequestThatIsAnsweredLaterIsATaskUntilThen() throws Exception {
        CompletableFuture<HttpResponse<String>> answer = get("/async");
        Task task = task();
        AsyncContext async = asyncs.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS);
        awaitLine("task " + task.record, line -> assertTrue(line.contains(" turn=1 ") && line.contains(" tid=0 "), line));
        agent.cancel(1, task, "too long");
        agent.expect("acknowledge 1");
        while (!task.isCancelled()) {
            Thread.onSpinWait();
        }
        async.getResponse().getWriter().print(task.cancellation().reason());
        async.complete();
        assertEquals("too long", answer.get().body());
        agent.expect("outcome 1 cancelled");
        awaitLine("task " + task.record, line -> assertTrue(line.contains(" turn=2 "), line));
    }

    @Test
    void aRequestThatIsHandedBackIsTheSameTask() throws Exception {
        assertEquals("ok", get("/again").get().body());
        Task task = task();
        assertEquals(task, task());
        awaitLine("task " + task.record, line -> assertTrue(line.contains(" turn=2 "), line));
        awaitLine("lane 0", line -> assertTrue(line.contains("completed=1 "), line));
    }
}
