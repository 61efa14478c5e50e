package io.plimsoll.testbed;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.plimsoll.Plimsoll;
import io.plimsoll.Task;
import io.plimsoll.TaskBuilder;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** A small server that can be brought to its knees: {@code --port N}, or 0 for a free one, then {@code ready PORT} on standard output. {@code README.md} of the SDK lists what it answers. */
public final class Testbed implements AutoCloseable {
    private static final int MOST_CONNECTIONS = 512;
    private static final double MOST_SECONDS = 600;

    private final Plimsoll app;
    private final Shop shop;
    private final HttpServer server;
    private final ThreadPoolExecutor threads =
            new ThreadPoolExecutor(0, MOST_CONNECTIONS, 10, TimeUnit.SECONDS, new SynchronousQueue<>());

    /** Serves on this port of 127.0.0.1, 0 for a free one. */
    public Testbed(Plimsoll app, int port) throws IOException {
        this(app, port, 2);
    }

    /** Without an app (null) it keeps no accounts. {@code missMs}: what it takes to read a page that is not in the cache. */
    private Testbed(Plimsoll app, int port, long missMs) throws IOException {
        this.app = app;
        this.shop = new Shop(app, missMs);
        server = HttpServer.create(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), port), MOST_CONNECTIONS);
        server.setExecutor(threads);
        route("/item", (task, query) -> shop.item(number(query, "id", Long.MAX_VALUE).longValue()));
        route("/hog/lock", (task, query) -> shop.hogLock(task, seconds(query)));
        route("/hog/cache", (task, query) -> shop.hogCache(task, seconds(query)));
        route("/hog/pool", (task, query) -> shop.hogPool(task, seconds(query)));
        route("/slow", (task, query) -> Shop.sleep(task, seconds(query)));
        server.start();
    }

    /** Runs until it is ended. */
    public static void main(String[] words) throws IOException {
        // What the JDK's server needs to be told before it starts: otherwise small answers wait for 40 ms.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        System.setProperty("jdk.httpserver.maxConnections", Integer.toString(MOST_CONNECTIONS));
        int port = -1;
        int missMs = 2;
        boolean sdk = true;
        boolean right = true;
        for (Iterator<String> left = List.of(words).iterator(); left.hasNext();) {
            switch (left.next()) {
                case "--port" -> port = next(left, 65_535);
                case "--miss-ms" -> missMs = next(left, 1_000);
                case "--no-sdk" -> sdk = false;
                default -> right = false;
            }
        }
        if (!right || port < 0 || missMs < 0) {
            System.err.println("write --port N [--miss-ms N] [--no-sdk], the port from 0 to 65535, 0 is a free one; a page that is not in the cache takes 0 to 1000 ms, 2 if not said");
            System.exit(2);
        }
        Testbed testbed = new Testbed(sdk ? Plimsoll.open("testbed-java") : null, port, missMs);
        System.out.println("ready " + testbed.port());
        System.out.flush();
    }

    /** The number that the next word is, or -1. */
    private static int next(Iterator<String> left, int most) {
        String word = left.hasNext() ? left.next() : "";
        return word.matches("[0-9]{1,6}") && Integer.parseInt(word) <= most ? Integer.parseInt(word) : -1;
    }

    /** Where it listens. */
    public int port() {
        return server.getAddress().getPort();
    }

    @Override
    public void close() {
        server.stop(0);
        threads.shutdownNow();
    }

    /** What a request does. The query is by name. */
    private interface Handler {
        void handle(Task task, Map<String, String> query) throws InterruptedException;
    }

    private void route(String path, Handler handler) {
        server.createContext(path, exchange -> {
            try (exchange) {
                serve(path, handler, exchange);
            }
        });
    }

    private void serve(String path, Handler handler, HttpExchange exchange) throws IOException {
        if (!exchange.getRequestURI().getPath().equals(path)) {
            answer(exchange, 404, "there is /item, /hog/lock, /hog/cache, /hog/pool and /slow");
            return;
        }
        if (!exchange.getRequestMethod().equals("GET")) {
            answer(exchange, 405, "only GET is answered");
            return;
        }
        int status = 200;
        String text = "ok";
        Map<String, String> query = query(exchange.getRequestURI().getRawQuery());
        // No app, no task: then nothing is closed.
        boolean again = "1".equals(exchange.getRequestHeaders().getFirst("plimsoll-rerun"));
        try (Task task = app == null ? null : begin("GET " + path, key(query), again)) {
            try {
                handler.handle(task, query);
                if (task != null) {
                    task.complete();
                }
            } catch (InterruptedException e) {
                status = 503;
                text = "interrupted";
                if (task != null && task.isCancelled()) {
                    text = "cancelled: " + task.cancellation().reason();
                    exchange.getResponseHeaders().set("plimsoll-cancelled", task.cancellation().resource());
                }
            } catch (IllegalArgumentException e) {
                status = 400;
                text = e.getMessage();
            }
        }
        answer(exchange, status, text);
    }

    private Task begin(String label, long key, boolean again) {
        TaskBuilder task = app.task(label).key(key);
        return (again ? task.again() : task).begin();
    }

    private static void answer(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "text/plain; charset=utf-8");
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
    }

    private static Map<String, String> query(String raw) {
        Map<String, String> query = new HashMap<>();
        for (String pair : raw == null ? new String[0] : raw.split("&")) {
            int equals = pair.indexOf('=');
            if (equals > 0) {
                query.put(pair.substring(0, equals), pair.substring(equals + 1));
            }
        }
        return query;
    }

    private static long key(Map<String, String> query) {
        String id = query.getOrDefault("id", "");
        return id.matches("[0-9]{1,18}") ? Long.parseLong(id) : 0;
    }

    private static double seconds(Map<String, String> query) {
        return number(query, "seconds", MOST_SECONDS);
    }

    private static Double number(Map<String, String> query, String name, double most) {
        String word = query.getOrDefault(name, "");
        if (!word.matches("[0-9]{1,18}([.][0-9]{1,9})?") || Double.parseDouble(word) > most) {
            throw new IllegalArgumentException(name + " is \"" + word + "\", but must be a number from 0 to " + (long) most);
        }
        return Double.parseDouble(word);
    }
}
