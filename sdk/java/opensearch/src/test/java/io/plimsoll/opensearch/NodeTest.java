package io.plimsoll.opensearch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.plimsoll.Witness;
import java.io.IOException;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A node as it comes, with the plug-in. */
class NodeTest {
    private static final int DOCUMENTS = 50_000;
    private static final String CUBE = """
            {"size": 0, "query": {"range": {"price": {"lte": 5000}}}, "aggs": {"price": {"terms": {"field": "price", "size": 10000},
              "aggs": {"user": {"terms": {"field": "user", "size": 1000}, "aggs": {"p": {"percentiles": {"field": "price"}}}}}}}}""";

    @TempDir
    Path directory;

    @Test
    void aSearchIsSeenAndCancelled() throws Exception {
        Path ledgers = Files.createDirectory(directory.resolve("ledgers"), PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        try (Witness agent = new Witness(ledgers); RealNode node = RealNode.start(directory, ledgers)) {
            agent.welcome();
            fill(node);
            Path ledger = onlyLedger(ledgers);
            long before = completed(ledger);
            assertEquals(200, node.call("POST", "/items/_search", "{\"query\": {\"term\": {\"user\": \"u7\"}}}").statusCode());
            assertEquals(before + 1, completed(ledger));
            assertTrue(Witness.sum(ledger, "search threads", "gets", null) > 0);
            assertTrue(Witness.sum(ledger, "heap", "gets", null) > 0);

            CompletableFuture<HttpResponse<String>> cube = node.send("POST", "/items/_search?request_cache=false", CUBE);
            Map<String, String> task = null;
            long seen = 0;
            int grown = 0;
            for (long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60); grown < 3 && System.nanoTime() < until; Thread.sleep(20)) {
                task = Witness.tasks(ledger).stream().filter(row -> row.get("label").equals("search items")).findFirst().orElse(task);
                long now = task == null ? 0 : Witness.sum(ledger, "heap", "gets", task);
                grown += now > seen + 1_000_000 ? 1 : 0;
                seen = now;
            }
            assertEquals(3, grown, "the heap that it takes grows while it runs");
            assertTrue(Witness.sum(ledger, "processors", "gets", task) > 0);
            agent.cancel(1, task, "it fills the heap");
            assertEquals("acknowledge 1", agent.next());
            assertEquals("outcome 1 cancelled", agent.next());
            HttpResponse<String> answer = cube.get(30, TimeUnit.SECONDS);
            assertTrue(answer.body().contains("task_cancelled_exception"), answer.body());
            assertEquals(0, Witness.tasks(ledger).size());
        }
    }

    private static void fill(RealNode node) throws Exception {
        node.call("PUT", "/_cluster/settings", "{\"persistent\": {\"search.max_buckets\": 10000000}}");
        node.call("PUT", "/items", """
                {"settings": {"number_of_shards": 1, "number_of_replicas": 0},
                 "mappings": {"properties": {"user": {"type": "keyword"}, "price": {"type": "integer"}}}}""");
        StringBuilder lines = new StringBuilder();
        for (int i = 1; i <= DOCUMENTS; i++) {
            lines.append("{\"index\": {}}\n{\"user\": \"u%d\", \"price\": %d}\n".formatted(i * 7919 % 1000, i * 31 % 10_000));
            if (i % 10_000 == 0) {
                assertEquals(200, node.call("POST", "/items/_bulk", lines.toString()).statusCode());
                lines.setLength(0);
            }
        }
        node.call("POST", "/items/_refresh", "");
    }

    private static Path onlyLedger(Path ledgers) throws IOException {
        try (Stream<Path> files = Files.list(ledgers)) {
            return files.filter(file -> file.getFileName().toString().matches("opensearch\\.\\d+\\.ledger")).findFirst().orElseThrow();
        }
    }

    private static long completed(Path ledger) throws IOException {
        return Witness.rows(ledger, "lane").stream().mapToLong(lane -> Long.parseLong(lane.get("completed"))).sum();
    }
}
