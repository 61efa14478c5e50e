package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.plimsoll.testbed.Testbed;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The testbed server can be brought to its knees, and recovers when who does it is cancelled. */
@Timeout(60)
class TestbedTest {
    @TempDir
    Path directory;

    private final HttpClient client = HttpClient.newHttpClient();
    private FakeAgent agent;
    private Plimsoll app;
    private Testbed testbed;

    @BeforeEach
    void start() throws Exception {
        agent = new FakeAgent(directory);
        app = Plimsoll.of("testbed").directory(directory).open();
        agent.welcome();
        testbed = new Testbed(app, 0);
    }

    @AfterEach
    void stop() throws Exception {
        testbed.close();
        agent.close();
        app.close();
    }

    private CompletableFuture<HttpResponse<String>> get(String path) {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + testbed.port() + path)).build();
        return client.sendAsync(request, HttpResponse.BodyHandlers.ofString());
    }

    /** The first line of the dump in which all of these are, as soon as there is one. */
    private String line(String... parts) throws Exception {
        while (true) {
            for (String line : Dump.of(Files.readAllBytes(app.file())).lines().toList()) {
                if (List.of(parts).stream().allMatch(line::contains)) {
                    return line;
                }
            }
            Thread.sleep(2);
        }
    }

    private Task task(String label) throws Exception {
        while (true) {
            for (int i = 0; i < app.ledger.shape.tasks(); i++) {
                Task task = app.live(i);
                if (task != null && task.asked.labelText.equals(label)) {
                    return task;
                }
            }
            Thread.sleep(2);
        }
    }

    /** How many pages were evicted so far. */
    private long evicted() throws Exception {
        return Dump.of(Files.readAllBytes(app.file())).lines().filter(line -> line.startsWith("account ") && line.contains(" resource=2 "))
                .mapToLong(line -> Long.parseLong(line.replaceFirst(".* slows=([0-9]+) .*", "$1"))).sum();
    }

    @Test
    void itemsAreServed() throws Exception {
        for (int i = 0; i < 300; i++) {
            HttpResponse<String> answer = get("/item?id=" + i).get();
            assertEquals("200 ok", answer.statusCode() + " " + answer.body());
        }
        assertTrue(line("account ", " gets=300 frees=300 ").contains(" task=- "));
        assertEquals("resource 0 QUEUE capacity=8 workers", line("resource 0"));
        assertEquals("resource 1 LOCK capacity=1 table", line("resource 1"));
        assertEquals("resource 2 MEMORY capacity=256 pages", line("resource 2"));
    }

    @Test
    void whoHogsTheLockStopsAllOthersUntilItIsCancelled() throws Exception {
        CompletableFuture<HttpResponse<String>> hog = get("/hog/lock?seconds=50");
        Task task = task("GET /hog/lock");
        line("account ", "resource=1 gets=1 frees=0");
        CompletableFuture<HttpResponse<String>> victim = get("/item?id=1");
        line("account ", "resource=1 gets=0 frees=0 slows=1");
        assertFalse(victim.isDone());
        agent.cancel(1, task, "it holds table");
        assertEquals("503 cancelled: it holds table", hog.get().statusCode() + " " + hog.get().body());
        assertEquals(200, victim.get().statusCode());
        agent.expect("acknowledge 1");
        agent.expect("outcome 1 cancelled");
    }

    @ParameterizedTest
    @ValueSource(strings = {"/hog/cache", "/hog/pool", "/slow"})
    void whatLastsCanBeCancelledAndSaysHowFarItIs(String path) throws Exception {
        CompletableFuture<HttpResponse<String>> answer = get(path + "?seconds=50");
        Task task = task("GET " + path);
        line("task " + task.record, " total=50000 ");
        agent.cancel(1, task, "why not");
        assertEquals("503 cancelled: why not", answer.get().statusCode() + " " + answer.get().body());
    }

    @Test
    void whoHogsTheCacheEvictsWhatIsHot() throws Exception {
        for (int i = 0; i < 200; i++) {
            get("/item?id=" + i).get();
        }
        CompletableFuture<HttpResponse<String>> hog = get("/hog/cache?seconds=0.3");
        assertEquals(200, hog.get().statusCode());
        long evicted = evicted();
        assertTrue(evicted > 200, evicted + " pages were evicted");
        get("/item?id=0").get();
        assertEquals(evicted + 1, evicted());
    }

    @Test
    void eightWhoHogWorkersStopAllOthers() throws Exception {
        List<CompletableFuture<HttpResponse<String>>> hogs = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            hogs.add(get("/hog/pool?seconds=50"));
        }
        line("account 7", "resource=0 gets=1 frees=0");
        CompletableFuture<HttpResponse<String>> victim = get("/item?id=1");
        line("account ", "resource=0 gets=0 frees=0 slows=1");
        assertEquals(200, get("/slow?seconds=0.01").get().statusCode());
        assertFalse(victim.isDone());
        agent.cancel(1, task("GET /hog/pool"), "it holds a worker");
        assertEquals(200, victim.get().statusCode());
    }

    @Test
    void whatIsAskedForWronglyIsAnswered() throws Exception {
        assertEquals("400 seconds is \"ten\", but must be a number from 0 to 600", get("/slow?seconds=ten").get().statusCode() + " " + get("/slow?seconds=ten").get().body());
        assertEquals(400, get("/item").get().statusCode());
        assertEquals(404, get("/item/7").get().statusCode());
        assertEquals(404, get("/").get().statusCode());
    }
}
