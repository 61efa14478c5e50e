package io.plimsoll;

import static java.nio.ByteOrder.LITTLE_ENDIAN;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

/**
 * Words of mapped memory.
 *
 * <p>A segment that the just-in-time compiler knows as a constant costs nothing to check: a store is a store. One that it does not know costs bounds, kind and liveness
 * at each access. So the first ledger of a process is kept as a constant, see {@link First}, and whoever writes often asks once whether it is that one: the stores of a pair of events are
 * 2 ns for the first ledger, and 9 ns for any further one. All stores of events are in release order, which is what the reader needs; where the segment is a constant that costs
 * nothing on x86. {@code bench.sh stores} measures it.
 */
final class Memory {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.withOrder(LITTLE_ENDIAN).varHandle();
    private static final VarHandle INT = ValueLayout.JAVA_INT.withOrder(LITTLE_ENDIAN).varHandle();
    private static final ValueLayout.OfLong TEXT = ValueLayout.JAVA_LONG_UNALIGNED.withOrder(LITTLE_ENDIAN);

    /** What {@link First} is made of. Set once, before it is. */
    private static MemorySegment candidate;

    private Memory() {}

    /** The first ledger of the process. The class is initialised when there is one, so that it is a constant from the first compilation on. */
    static final class First {
        static final MemorySegment SEGMENT = candidate;

        private First() {}
    }

    /** A new ledger is mapped. Whether it is the first. */
    static synchronized boolean mapped(MemorySegment segment) {
        if (candidate == null) {
            candidate = segment;
        }
        return First.SEGMENT == segment;
    }

    /** A store that comes after all stores before it. */
    static void put(MemorySegment memory, long at, long value) {
        LONG.setRelease(memory, at, value);
    }

    /** Whatever is there; of no order. */
    static long get(MemorySegment memory, long at) {
        return (long) LONG.getOpaque(memory, at);
    }

    /** An addition that other threads may make, too. */
    static void add(MemorySegment memory, long at, long more) {
        LONG.getAndAddRelease(memory, at, more);
    }

    static void putInt(MemorySegment memory, long at, int value) {
        INT.setRelease(memory, at, value);
    }

    static int getInt(MemorySegment memory, long at) {
        return (int) INT.getOpaque(memory, at);
    }

    /** Raises a count that other threads may raise, too. */
    static void raise(MemorySegment memory, long at, int value) {
        for (int was = (int) INT.getVolatile(memory, at); was < value; ) {
            int found = (int) INT.compareAndExchange(memory, at, was, value);
            if (found == was) {
                return;
            }
            was = found;
        }
    }

    /** Writes a padded text, a word at a time. */
    static void putText(MemorySegment memory, long at, byte[] text) {
        MemorySegment from = MemorySegment.ofArray(text);
        for (int i = 0; i < text.length; i += 8) {
            put(memory, at + i, from.get(TEXT, i));
        }
    }
}
