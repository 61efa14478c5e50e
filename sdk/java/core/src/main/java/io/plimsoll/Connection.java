package io.plimsoll;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import jdk.net.ExtendedSocketOptions;

/** One connection to an agent. Any thread may send; all else is the control thread's. */
final class Connection {
    /** So many lines wait to be sent at most: an agent that does not read is hung up on. */
    private static final int MOST_LINES = 16_384;

    private final SocketChannel channel;
    private final Selector selector;
    private final SelectionKey key;
    private final ConcurrentLinkedQueue<byte[]> lines = new ConcurrentLinkedQueue<>();
    private final AtomicInteger waiting = new AtomicInteger();
    private final Lines received = new Lines();
    private final ByteBuffer in = ByteBuffer.allocate(4096);
    private ByteBuffer out = ByteBuffer.allocate(0);
    private volatile boolean open = true;

    private Connection(SocketChannel channel, Selector selector) throws IOException {
        this.channel = channel;
        this.selector = selector;
        this.key = channel.register(selector, SelectionKey.OP_READ);
    }

    /** Connects; null if nobody listens. Throws if who listens is neither this process's user nor root. */
    static Connection to(Path socket, Selector selector) throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        boolean done = false;
        try {
            channel.configureBlocking(false);
            if (!channel.connect(UnixDomainSocketAddress.of(socket))) {
                return null; // it has too many waiting
            }
            UserPrincipal peer = channel.getOption(ExtendedSocketOptions.SO_PEERCRED).user();
            // By number, so that it does not matter what root is called.
            UserPrincipal root = socket.getFileSystem().getUserPrincipalLookupService().lookupPrincipalByName("0");
            if (!peer.equals(Own.user()) && !peer.equals(root)) {
                throw new SecurityException(socket + " is listened on by " + peer.getName() + ", who is neither this process's user nor root");
            }
            Connection connection = new Connection(channel, selector);
            done = true;
            return connection;
        } finally {
            if (!done) {
                channel.close();
            }
        }
    }

    /** Sends a line, soon. Into the void if the connection has ended. */
    void send(String words, String text) {
        if (open && waiting.incrementAndGet() <= MOST_LINES) {
            lines.add(Lines.line(words, text));
            selector.wakeup();
        }
    }

    /** Writes what waits, as far as the agent takes it. */
    void flush() throws IOException {
        while (true) {
            if (!out.hasRemaining()) {
                byte[] next = lines.poll();
                if (next == null) {
                    key.interestOps(SelectionKey.OP_READ);
                    return;
                }
                waiting.decrementAndGet();
                out = ByteBuffer.wrap(next);
            }
            if (waiting.get() >= MOST_LINES) {
                throw new IOException("the agent does not read");
            }
            channel.write(out);
            if (out.hasRemaining()) {
                key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                return;
            }
        }
    }

    /** Reads what there is. Throws if the connection has ended. */
    void receive(Consumer<String> to) throws IOException {
        in.clear();
        if (channel.read(in) < 0) {
            throw new IOException("the agent has gone");
        }
        if (!received.take(in.flip(), to)) {
            throw new IOException("a line of more than " + Lines.MOST_BYTES + " bytes");
        }
    }

    boolean isOpen() {
        return open;
    }

    void close() {
        open = false;
        lines.clear();
        try {
            channel.close();
        } catch (IOException e) {
            // It is gone either way.
        }
    }
}
