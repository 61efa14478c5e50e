package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** The agent's end of the control connection, as a test wants it. One connection at a time. */
final class FakeAgent implements AutoCloseable {
    /** Longer than anything takes, so that waiting this long is failing. */
    static final long PATIENCE_S = 20;

    private final ServerSocketChannel server;
    private final Path socket;
    private final BlockingQueue<SocketChannel> connections = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private SocketChannel connection;

    FakeAgent(Path directory) throws IOException {
        socket = directory.resolve("agent.sock");
        Files.deleteIfExists(socket);
        server = ServerSocketChannel.open(StandardProtocolFamily.UNIX).bind(UnixDomainSocketAddress.of(socket));
        Thread.ofVirtual().start(() -> {
            try {
                while (true) {
                    connections.add(server.accept());
                }
            } catch (IOException e) {
                // It was closed.
            }
        });
    }

    /** The application connects and says hello. Its line. */
    String hello() throws Exception {
        connection = connections.poll(PATIENCE_S, TimeUnit.SECONDS);
        assertNotNull(connection, "nobody connects");
        SocketChannel from = connection;
        Thread.ofVirtual().start(() -> {
            try (BufferedReader reader = new BufferedReader(Channels.newReader(from, StandardCharsets.UTF_8))) {
                for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                    lines.add(line);
                }
            } catch (IOException e) {
                // It ended.
            }
            lines.add("END");
        });
        return next();
    }

    void welcome() throws Exception {
        hello();
        send("welcome 1 enforce");
    }

    String next() throws InterruptedException {
        String line = lines.poll(PATIENCE_S, TimeUnit.SECONDS);
        assertNotNull(line, "the application says nothing");
        return line;
    }

    void expect(String line) throws InterruptedException {
        assertEquals(line, next());
    }

    void send(String line) throws IOException {
        ByteBuffer bytes = ByteBuffer.wrap((line + "\n").getBytes(StandardCharsets.UTF_8));
        while (bytes.hasRemaining()) {
            connection.write(bytes);
        }
    }

    /** Asks for a cancellation. */
    void cancel(long id, Task task, String why) throws IOException {
        send("cancel " + id + " " + task.record + " " + task.turn + " 0 " + why);
    }

    void hangUp() throws IOException {
        connection.close();
    }

    @Override
    public void close() throws IOException {
        server.close();
        if (connection != null) {
            connection.close();
        }
        Files.deleteIfExists(socket);
    }
}
