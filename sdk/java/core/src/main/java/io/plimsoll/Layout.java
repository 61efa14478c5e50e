package io.plimsoll;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Where everything is in a ledger: {@code docs/ledger.md} in numbers. Offsets and sizes are bytes. */
final class Layout {
    static final long MAGIC = 0x4c4c4f534d494c50L; // "PLIMSOLL", read as a little-endian number
    static final int VERSION = 1;

    static final int HEADER_BYTES = 4096;
    static final int RESOURCE_BYTES = 64;
    static final int LANE_BYTES = 2048;
    static final int TASK_BYTES = 128;
    static final int ACCOUNT_BYTES = 64;
    static final int APP_BYTES = 64;
    static final int NAME_BYTES = 48;
    static final int LABEL_BYTES = 64;
    static final int BINS = 248;

    // The header.
    static final long AT_MAGIC = 0x000;
    static final long AT_VERSION = 0x008;
    static final long AT_RESOURCES = 0x00c;
    static final long AT_LANES = 0x010;
    static final long AT_TASKS = 0x014;
    static final long AT_ACCOUNTS = 0x018;
    static final long AT_PID = 0x020;
    static final long AT_PID_STARTED = 0x028;
    static final long AT_CREATED_NS = 0x030;
    static final long AT_APP = 0x040;
    static final long AT_APP_BEAT_NS = 0x080;
    static final long AT_TASKS_REFUSED = 0x088;
    static final long AT_ACCOUNTS_REFUSED = 0x090;
    static final long AT_RESOURCES_REFUSED = 0x098;
    static final long AT_TASKS_USED = 0x0a0;
    static final long AT_ACCOUNTS_USED = 0x0a4;
    static final long AT_AGENT_BEAT_NS = 0x0c0;
    static final long AT_FLAGS = 0x0c8;
    static final long AT_AGENT_PID = 0x0d0;
    static final long AT_CLOCK_NS = 0x100;

    // A resource.
    static final long KIND = 0;
    static final long CAPACITY = 8;
    static final long NAME = 16;

    // A lane.
    static final long COMPLETED = 0;
    static final long CANCELLED = 8;
    static final long SUM_NS = 16;
    static final long BIN = 64;

    // A task.
    static final long TURN = 0;
    static final long KEY = 8;
    static final long STARTED_NS = 16;
    static final long DONE = 24;
    static final long TOTAL = 32;
    static final long DEADLINE_NS = 40;
    static final long FLAGS = 48;
    static final long TID = 52;
    static final long LABEL = 64;

    // An account.
    static final long OWNER = 0;
    static final long GETS = 8;
    static final long FREES = 16;
    static final long SLOWS = 24;
    static final long WAIT_NS = 32;
    static final long HOLD_NS = 40;
    static final long WAITING_SINCE_NS = 48;
    static final long HOLDING_SINCE_NS = 56;

    // Flags of a task.
    static final int CANCELLABLE = 1;
    static final int BACKGROUND = 2;
    static final int RERUNNABLE = 4;
    static final int RERUN = 8;

    // Flags of the agent.
    static final long EXACT = 1;

    private Layout() {}

    /** How many records of each kind a ledger has. */
    record Shape(int resources, int lanes, int tasks, int accounts) {
        static final Shape DEFAULT = new Shape(64, 8, 4096, 16384);

        Shape {
            check("resources", resources, 256);
            check("lanes", lanes, 64);
            check("tasks", tasks, 131_072);
            check("accounts", accounts, 1_048_576);
        }

        private static void check(String what, int count, int most) {
            if (count < 1 || count > most) {
                throw new IllegalArgumentException(what + " is " + count + ", but must be from 1 to " + most);
            }
        }

        long resourceAt(int index) {
            return HEADER_BYTES + (long) RESOURCE_BYTES * index;
        }

        long laneAt(int index) {
            return resourceAt(resources) + (long) LANE_BYTES * index;
        }

        long taskAt(int index) {
            return laneAt(lanes) + (long) TASK_BYTES * index;
        }

        long accountAt(int index) {
            return taskAt(tasks) + (long) ACCOUNT_BYTES * index;
        }

        long bytes() {
            return accountAt(accounts);
        }
    }

    /** The bin of a latency: no wider than an eighth of it. */
    static int bin(long latencyNs) {
        long value = latencyNs >>> 10;
        int shift = Math.max(0, 63 - Long.numberOfLeadingZeros(value) - 3);
        return (int) Math.min(BINS - 1, ((long) shift << 3) + (value >>> shift));
    }

    /** The word that says whose an account is. */
    static long owner(int task, int resource, long turn) {
        return (task + 1L) | (long) resource << 32 | (turn & 0xffff) << 48;
    }

    /** The word of an account that nobody has. */
    static long ownerNobody(int resource) {
        return (long) resource << 32;
    }

    /** A text as it is in the ledger: cut at its first zero byte and, where it is too long, at the end of a character; padded with zeros. */
    static byte[] text(String text, int bytes) {
        int zero = text.indexOf('\0');
        String whole = zero < 0 ? text : text.substring(0, zero);
        byte[] utf8 = (whole.length() > bytes ? whole.substring(0, bytes) : whole).getBytes(StandardCharsets.UTF_8);
        int end = utf8.length;
        if (end > bytes) {
            end = bytes;
            while (end > 0 && (utf8[end] & 0xc0) == 0x80) {
                end--;
            }
        }
        return Arrays.copyOf(Arrays.copyOf(utf8, end), bytes);
    }
}
