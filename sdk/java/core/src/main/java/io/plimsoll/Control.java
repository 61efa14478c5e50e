package io.plimsoll;

import java.io.IOException;
import java.nio.channels.Selector;
import java.nio.file.Path;

/**
 * The one thread of the SDK that is always there: gives signs of life, ticks the clock while there is no agent, keeps the connection to the agent, and watches those who are given
 * only so much time. It never waits for the application.
 */
final class Control implements Runnable {
    private final Plimsoll app;
    private final Ledger ledger;
    private final Limits limits;
    private final Path socket;
    private final Thread thread;
    private volatile boolean stopping;
    private volatile Selector selector;
    private volatile boolean welcome;

    // The thread's own.
    private Connection connection;
    private boolean refused;
    private long nextBeatNs;
    private long nextConnectNs;

    Control(Plimsoll app, Path directory, Limits limits) {
        this.app = app;
        this.ledger = app.ledger;
        this.limits = limits;
        this.socket = directory.resolve("agent.sock");
        this.thread = new Thread(null, this, "plimsoll-control", 0, false);
        thread.setDaemon(true);
    }

    void start() {
        nextBeatNs = nextConnectNs = System.nanoTime();
        beat();
        thread.start();
    }

    void stop() {
        stopping = true;
        Selector selector = this.selector;
        if (selector != null) {
            selector.wakeup();
        }
    }

    /** Whether an agent has said welcome and is still there. */
    boolean isConnected() {
        return welcome;
    }

    @Override
    public void run() {
        while (!stopping) {
            try {
                turn();
            } catch (Exception | LinkageError e) {
                app.say.once("control", "the connection to the agent is in trouble, and is tried again: " + e);
                disconnect(limits.reconnectNs());
                pause();
            }
        }
        disconnect(0);
        close(selector);
    }

    private void turn() throws IOException {
        Thread.interrupted(); // nobody interrupts this thread who may
        if (selector == null) {
            selector = Selector.open();
        }
        long now = System.nanoTime();
        boolean connects = connection == null && now - nextConnectNs >= 0;
        // Who is awake beats, so that both fall together: waking up is what this thread costs.
        if (connects || now - nextBeatNs >= 0) {
            nextBeatNs = now + limits.beatNs();
            beat();
            app.canceller.watch(now);
            app.reruns.watch(now);
        }
        if (connects) {
            connect(now);
        }
        long sleepNs = nextBeatNs - now;
        if (connection == null) {
            sleepNs = Math.min(sleepNs, nextConnectNs - now);
        }
        selector.select(Math.max(1, (sleepNs + 999_999) / 1_000_000));
        selector.selectedKeys().clear();
        if (connection != null) {
            try {
                connection.receive(this::understand);
                connection.flush();
            } catch (IOException e) {
                disconnect(refused ? limits.refusedNs() : limits.reconnectNs());
            }
        }
    }

    private void beat() {
        long now = ledger.exactNs();
        ledger.beat(now);
        long agent = ledger.agentBeatNs();
        if (agent == 0 || Math.abs(now - agent) > limits.agentGoneNs()) {
            ledger.tickWithoutAgent(now);
        }
    }

    private void connect(long now) {
        nextConnectNs = now + limits.reconnectNs();
        refused = false;
        try {
            connection = Connection.to(socket, selector);
        } catch (IOException e) {
            return; // nobody is there, which is how it may be
        } catch (SecurityException e) {
            app.say.once("peer", e.getMessage());
            nextConnectNs = now + limits.refusedNs();
            return;
        } catch (UnsupportedOperationException | IllegalArgumentException e) {
            app.say.once("socket", "there is no connection to an agent: " + e);
            return;
        }
        if (connection != null) {
            connection.send("hello " + Layout.VERSION + " " + ledger.file.path.getFileName(), "");
        }
    }

    private void understand(String line) {
        switch (AgentLine.read(line)) {
            case AgentLine.Welcome welcome -> this.welcome = true;
            case AgentLine.Refused why -> {
                refused = true;
                app.say.once("refused", "the agent refuses this application: " + why.text());
            }
            case AgentLine.Cancel cancel -> app.canceller.cancel(connection, cancel);
            case AgentLine.Rerun rerun -> app.reruns.rerun(connection, rerun.id());
            case AgentLine.Drop drop -> app.reruns.drop(connection, drop.id());
            case null -> {
                // A word that a later version knows.
            }
        }
    }

    private void disconnect(long pauseNs) {
        welcome = false;
        if (connection != null) {
            Connection ended = connection;
            connection = null;
            ended.close();
            app.reruns.connectionEnded(ended);
        }
        nextConnectNs = System.nanoTime() + pauseNs;
    }

    private void pause() {
        try {
            Thread.sleep(Math.max(1, limits.beatNs() / 1_000_000));
        } catch (InterruptedException e) {
            // Then it is a short one.
        }
    }

    private static void close(Selector selector) {
        try {
            if (selector != null) {
                selector.close();
            }
        } catch (IOException e) {
            // It is gone either way.
        }
    }
}
