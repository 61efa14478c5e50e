package io.plimsoll;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.LongSupplier;

/**
 * An application's ledger and its connection to the agent. {@code docs/ledger.md} says what is in the one and said over the other.
 *
 * <pre>{@code
 * Plimsoll plimsoll = Plimsoll.open("shop");
 * Resource table = plimsoll.resource(Kind.LOCK, "table", 1);
 *
 * try (Task task = plimsoll.task("GET /report").key(7).begin()) {
 *     try (Hold hold = table.hold()) {
 *         ...
 *     }
 * }
 * }</pre>
 *
 * <p>The application never notices: where there is no room, no directory, no permission or no agent, everything here does nothing, and that is said once to the logger {@code io.plimsoll}.
 * Only what is asked for wrongly, such as a name that is none, is an {@link IllegalArgumentException}.
 */
public final class Plimsoll implements AutoCloseable {
    /** Those that are open, by name: there is one of each. */
    private static final Map<String, Plimsoll> OPEN = new HashMap<>();

    final Say say;
    /** Null if there is none. */
    final Ledger ledger;
    final CancelAction action;
    final Canceller canceller;
    final Reruns reruns;
    private final String name;
    /** The live tasks, by index of the record. */
    private final AtomicReferenceArray<Task> live;
    private final Control control;
    private final Thread removal;
    private int opened = 1;

    private Plimsoll(Builder asked) {
        name = asked.name;
        action = asked.action;
        say = new Say(name);
        canceller = new Canceller(this, asked.limits);
        reruns = new Reruns(this, asked.limits);
        Ledger made = null;
        Path directory = null;
        try {
            directory = LedgerFile.directory(asked.directory);
            made = new Ledger(LedgerFile.make(directory, asked.head(), asked.groupReads), asked.shape, asked.clock);
        } catch (LedgerException | IOException | RuntimeException e) {
            say.once("ledger", "nothing is accounted: " + e.getMessage());
        }
        ledger = made;
        live = new AtomicReferenceArray<>(made == null ? 0 : made.shape.tasks());
        control = made == null || !asked.connects ? null : new Control(this, directory, asked.limits);
        removal = made == null ? null : new Thread(null, made.file::remove, "plimsoll-exit", 0, false);
    }

    private void start() {
        if (control != null) {
            control.start();
        }
        if (removal != null) {
            try {
                Runtime.getRuntime().addShutdownHook(removal);
            } catch (IllegalStateException e) {
                // The process ends already.
                ledger.file.remove();
            }
        }
    }

    /** Opens the ledger of an application, with defaults. {@code name} is 1 to 32 of {@code a-z A-Z 0-9 _ -}. Who asks for one that is open gets that one. */
    public static Plimsoll open(String name) {
        return of(name).open();
    }

    /** The same, step by step. */
    public static Builder of(String name) {
        return new Builder(name);
    }

    /** What is wanted of an application, said before its ledger is opened. */
    public static final class Builder {
        private final String name;
        private CancelAction action;
        private Path directory;
        private Layout.Shape shape = Layout.Shape.DEFAULT;
        private boolean groupReads;
        // For tests.
        Limits limits = Limits.DEFAULT;
        LongSupplier clock;
        LedgerFile.Head head;
        boolean connects = true;

        private Builder(String name) {
            if (!LedgerFile.isAppName(Objects.requireNonNull(name, "an application has a name"))) {
                throw new IllegalArgumentException("\"" + name + "\" is no name of an application; write 1 to 32 of a-z A-Z 0-9 _ -");
            }
            this.name = name;
        }

        /** What cancelling a task does where the task has no action of its own, instead of interrupting its threads. */
        public Builder onCancel(CancelAction action) {
            this.action = Objects.requireNonNull(action, "leave the action away if there is none");
            return this;
        }

        /** Where ledgers are; {@code $PLIMSOLL_DIR} or {@code /dev/shm/plimsoll-UID} unless this is said. Must be the agent's. */
        public Builder directory(Path directory) {
            this.directory = Objects.requireNonNull(directory, "leave the directory away for the default");
            return this;
        }

        /** Most resources there can be, 1 to 256; 64 unless this is said. */
        public Builder resources(int most) {
            shape = new Layout.Shape(most, shape.lanes(), shape.tasks(), shape.accounts());
            return this;
        }

        /** Most tasks there can be at a time, 1 to 131,072; 4,096 unless this is said. */
        public Builder tasks(int most) {
            shape = new Layout.Shape(shape.resources(), shape.lanes(), most, shape.accounts());
            return this;
        }

        /** Most uses of a resource by a task there can be at a time, 1 to 1,048,576; 16,384 unless this is said. */
        public Builder accounts(int most) {
            shape = new Layout.Shape(shape.resources(), shape.lanes(), shape.tasks(), most);
            return this;
        }

        /** In how many places requests that end are counted, 1 to 64; 8 unless this is said. */
        public Builder lanes(int count) {
            shape = new Layout.Shape(shape.resources(), count, shape.tasks(), shape.accounts());
            return this;
        }

        /** An agent of the file's group may read: the file's mode is 0640, not 0600. */
        public Builder groupReads() {
            groupReads = true;
            return this;
        }

        /** Opens it, or gives the one of this name that is open; then all else that was said here goes for nothing. */
        public Plimsoll open() {
            synchronized (OPEN) {
                Plimsoll open = OPEN.get(name);
                if (open != null) {
                    open.opened++;
                    return open;
                }
                Plimsoll made = new Plimsoll(this);
                made.start();
                OPEN.put(name, made);
                return made;
            }
        }

        Layout.Shape shape() {
            return shape;
        }

        private LedgerFile.Head head() throws IOException {
            return head != null ? head : new LedgerFile.Head(name, shape, Own.pid(), Own.started(), System.nanoTime());
        }
    }

    /**
     * The resource of that name, made if there is none. Everything that tasks may hold up one another at should be one.
     *
     * @param name not empty, at most 48 bytes of it count
     * @param capacity units that can be held at once: permits, pages, workers; 1 for a mutex, 0 if nobody knows
     */
    public Resource resource(Kind kind, String name, long capacity) {
        Objects.requireNonNull(kind, "a resource is of a kind");
        if (name.isEmpty() || name.charAt(0) == '\0') {
            throw new IllegalArgumentException("a resource has a name, such as the table or the pool that it is");
        }
        if (capacity < 0) {
            throw new IllegalArgumentException("the capacity of " + name + " is " + capacity + "; write 0 if nobody knows it");
        }
        int index = ledger == null ? Ledger.NONE : ledger.resource(kind, capacity, name);
        if (ledger != null && index < 0) {
            say.once("resources", "there is no room for a resource " + name + "; more than " + ledger.shape.resources() + " must be asked for when opening");
        }
        return new Resource(this, index);
    }

    /** A task that is to begin. {@code label} says for people what it is, such as {@code GET /report}; at most 64 bytes of it count. */
    public TaskBuilder task(String label) {
        return new TaskBuilder(this, label);
    }

    /** Whether there is an agent that reads the ledger. */
    public boolean isConnected() {
        return control != null && control.isConnected();
    }

    /** Where the ledger is; null if there is none. */
    public Path file() {
        return ledger == null ? null : ledger.file.path;
    }

    /** Ends the connection and removes the file, once as often as it was opened. The end of the process does the latter by itself. */
    @Override
    public void close() {
        synchronized (OPEN) {
            if (opened == 0 || --opened > 0) {
                return;
            }
            OPEN.remove(name, this);
        }
        canceller.stop();
        reruns.stop(); // before the connection ends, at which what waits would be run again
        if (control != null) {
            control.stop();
        }
        if (removal != null) {
            ledger.file.remove();
            try {
                Runtime.getRuntime().removeShutdownHook(removal);
            } catch (IllegalStateException e) {
                // The process ends; what it does then has been done.
            }
        }
    }

    void began(Task task) {
        if (task.record >= 0) {
            live.setRelease(task.record, task);
        }
    }

    void ended(Task task) {
        if (task.record >= 0) {
            live.setRelease(task.record, null);
        }
    }

    /** The task that has a record; null if none has. */
    Task live(int record) {
        return record >= 0 && record < live.length() ? live.getAcquire(record) : null;
    }
}
