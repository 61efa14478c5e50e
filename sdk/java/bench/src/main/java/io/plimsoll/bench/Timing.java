package io.plimsoll.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Locale;

/**
 * How long a turn of a loop takes, in nanoseconds of processor time of this thread: what other processes take of the machine does not count, unlike what they do to its caches.
 */
final class Timing {
    private static final int WARM_UP = 5;
    private static final int REPETITIONS = 5;
    private static final double REPETITION_NS = 1e8;

    private Timing() {}

    /** Does what is measured so many times. */
    interface Loop {
        void run(int turns);
    }

    /** Prints each repetition on a line, after a warm-up. */
    static void print(Loop loop) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        int turns = 100_000;
        for (int i = 0; i < WARM_UP + REPETITIONS; i++) {
            long began = threads.getCurrentThreadCpuTime();
            loop.run(turns);
            double ns = (double) (threads.getCurrentThreadCpuTime() - began) / turns;
            if (i < WARM_UP) {
                turns = (int) Math.max(1_000, Math.min(1e9, REPETITION_NS / Math.max(ns, 0.1)));
            } else {
                System.out.printf(Locale.ROOT, "%.3f%n", ns);
            }
        }
    }
}
