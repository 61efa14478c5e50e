package io.plimsoll;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A ledger as text, as {@code sdk/vectors/README.md} lays down; a reader of its own, that shares only numbers with the writer. */
final class Dump {
    private static final String[] KINDS = {"", "LOCK", "MEMORY", "QUEUE", "CPU", "IO"};

    private final ByteBuffer bytes;

    private Dump(byte[] bytes) {
        this.bytes = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** The text, or why it is no ledger, in a word of the vectors. */
    static String of(byte[] bytes) throws LedgerException {
        return new Dump(bytes).all();
    }

    private String all() throws LedgerException {
        int length = bytes.capacity();
        if (length < 8 || bytes.getLong(0) != Layout.MAGIC) {
            throw new LedgerException("magic", "it does not begin as a ledger does");
        }
        if (length < Layout.HEADER_BYTES) {
            throw new LedgerException("length", length + " bytes, less than a header");
        }
        if (int32(8) != 1) {
            throw new LedgerException("version", "version " + int32(8) + ", not 1");
        }
        Layout.Shape shape;
        try {
            shape = new Layout.Shape(int32(0x0c), int32(0x10), int32(0x14), int32(0x18));
        } catch (IllegalArgumentException e) {
            throw new LedgerException("counts", e.getMessage());
        }
        String app = text(0x40, 64);
        if (!LedgerFile.isAppName(app)) {
            throw new LedgerException("app", app + " is no name");
        }
        if (length != shape.bytes()) {
            throw new LedgerException("length", length + " bytes, not " + shape.bytes());
        }
        StringBuilder out = new StringBuilder();
        int tasksUsed = (int) Math.min(Integer.toUnsignedLong(int32(0xa0)), shape.tasks());
        int accountsUsed = (int) Math.min(Integer.toUnsignedLong(int32(0xa4)), shape.accounts());
        out.append("ledger %s version=1 resources=%d lanes=%d tasks=%d accounts=%d pid=%s pid_started=%s created_ns=%s%n".formatted(
                app, shape.resources(), shape.lanes(), shape.tasks(), shape.accounts(), u(0x20), u(0x28), u(0x30)));
        out.append("application beat_ns=%s tasks_refused=%s accounts_refused=%s resources_refused=%s tasks_used=%d accounts_used=%d%n".formatted(
                u(0x80), u(0x88), u(0x90), u(0x98), tasksUsed, accountsUsed));
        out.append("agent beat_ns=%s exact=%d pid=%s%nclock ns=%s%n".formatted(u(0xc0), int64(0xc8) & 1, u(0xd0), u(0x100)));
        resources(shape, out);
        lanes(shape, out);
        List<Long> turns = tasks(shape, tasksUsed, out);
        accounts(shape, accountsUsed, turns, out);
        return out.toString();
    }

    private void resources(Layout.Shape shape, StringBuilder out) {
        for (int i = 0; i < shape.resources(); i++) {
            int at = (int) shape.resourceAt(i);
            int kind = int32(at);
            if (kind >= 1 && kind <= 5) {
                out.append("resource %d %s capacity=%s%s%n".formatted(i, KINDS[kind], u(at + 8), last(text(at + 16, 48))));
            }
        }
    }

    private void lanes(Layout.Shape shape, StringBuilder out) {
        for (int i = 0; i < shape.lanes(); i++) {
            int at = (int) shape.laneAt(i);
            if (int64(at) == 0) {
                continue;
            }
            List<String> bins = new ArrayList<>();
            for (int bin = 0; bin < 248; bin++) {
                if (int64(at + 64 + 8 * bin) != 0) {
                    bins.add(bin + ":" + u(at + 64 + 8 * bin));
                }
            }
            out.append("lane %d completed=%s cancelled=%s sum_ns=%s bins=%s%n".formatted(i, u(at), u(at + 8), u(at + 16), String.join(",", bins)));
        }
    }

    private List<Long> tasks(Layout.Shape shape, int used, StringBuilder out) {
        List<Long> turns = new ArrayList<>();
        for (int i = 0; i < used; i++) {
            int at = (int) shape.taskAt(i);
            turns.add(int64(at));
            out.append("task %d turn=%s key=%s started_ns=%s done=%s total=%s deadline_ns=%s flags=%s tid=%s%s%n".formatted(i, u(at), u(at + 8), u(at + 16),
                    u(at + 24), u(at + 32), u(at + 40), Integer.toUnsignedString(int32(at + 48)), Integer.toUnsignedString(int32(at + 52)), last(text(at + 64, 64))));
        }
        return turns;
    }

    private void accounts(Layout.Shape shape, int used, List<Long> turns, StringBuilder out) {
        for (int i = 0; i < used; i++) {
            int at = (int) shape.accountAt(i);
            long owner = int64(at);
            long task = (owner & 0xffff_ffffL) - 1;
            int resource = (int) (owner >>> 32) & 0xffff;
            long turn = owner >>> 48;
            boolean somebody = task >= 0 && task < turns.size() && resource < shape.resources()
                    && turns.get((int) task) % 2 != 0 && (turns.get((int) task) & 0xffff) == turn;
            out.append("account %d task=%s turn=%d resource=%d gets=%s frees=%s slows=%s wait_ns=%s hold_ns=%s waiting_since_ns=%s holding_since_ns=%s%n".formatted(
                    i, somebody ? Long.toString(task) : "-", somebody ? turn : 0, resource,
                    u(at + 8), u(at + 16), u(at + 24), u(at + 32), u(at + 40), u(at + 48), u(at + 56)));
        }
    }

    private int int32(int at) {
        return bytes.getInt(at);
    }

    private long int64(int at) {
        return bytes.getLong(at);
    }

    private String u(int at) {
        return Long.toUnsignedString(int64(at));
    }

    private String text(int at, int most) {
        int length = 0;
        while (length < most && bytes.get(at + length) != 0) {
            length++;
        }
        StringBuilder shown = new StringBuilder();
        new String(bytes.array(), at, length, StandardCharsets.UTF_8).codePoints()
                .forEach(c -> shown.appendCodePoint(Character.isISOControl(c) ? 0xfffd : c));
        return shown.toString();
    }

    private static String last(String text) {
        return text.isEmpty() ? "" : " " + text;
    }
}
