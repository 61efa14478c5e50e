// What a request costs in Netflix concurrency-limits: acquire and onSuccess of a SimpleLimiter, and a refusal.
// Loops and traffic are those of crates/admission/benches/decision. Arguments: rounds and a case; prints a JSON object.

import com.netflix.concurrency.limits.Limit;
import com.netflix.concurrency.limits.Limiter;
import com.netflix.concurrency.limits.limit.Gradient2Limit;
import com.netflix.concurrency.limits.limit.VegasLimit;
import com.netflix.concurrency.limits.limiter.SimpleLimiter;
import java.util.Arrays;
import java.util.Locale;
import java.util.Random;
import java.util.function.LongSupplier;

public class Decision {
    static final double ROUND_NS = 2e6;
    static final long WARM_UP_NS = 2_000_000_000L;
    static final int DRAWN = 1024;
    static final int CLASSES = 11;
    static final double SIGMA = 0.92;

    /** Stands still but for the processing times of the requests. */
    static final class DrawnTime implements LongSupplier {
        long now = 1;

        @Override
        public long getAsLong() {
            return now;
        }
    }

    interface Loop {
        void run(int turns);
    }

    public static void main(String[] args) {
        int rounds = Integer.parseInt(args[0]);
        // One case a process, as in an application: a second one would make the compiler's guesses worse.
        String what = args[1];
        Loop loop = switch (what) {
            case "whole cycle, vegas" -> cycle(VegasLimit.newDefault());
            case "whole cycle, gradient2" -> cycle(Gradient2Limit.newDefault());
            case "whole cycle and its clock reads, vegas" -> cycleWithClock(VegasLimit.newDefault());
            case "whole cycle and its clock reads, gradient2" -> cycleWithClock(Gradient2Limit.newDefault());
            case "refusal" -> refusal(VegasLimit.newDefault());
            case "clock read" -> clockRead();
            default -> throw new IllegalArgumentException(what);
        };
        int turns = warmUp(loop);
        double[] ns = new double[rounds];
        for (int round = 0; round < rounds; round++) {
            ns[round] = (double) time(loop, turns) / turns;
        }
        Arrays.sort(ns);
        System.out.printf(Locale.ROOT, "{\"what\":\"%s\",\"p10\":%.2f,\"p50\":%.2f,\"p90\":%.2f}%n",
            what, quantile(ns, 0.1), quantile(ns, 0.5), quantile(ns, 0.9));
    }

    static Loop cycle(Limit limit) {
        DrawnTime clock = new DrawnTime();
        Limiter<Void> limiter = SimpleLimiter.newBuilder().limit(limit).nanoClock(clock).build();
        long[] served = traffic();
        return turns -> {
            for (int i = 0; i < turns; i++) {
                Limiter.Listener listener = limiter.acquire(null).orElseThrow();
                clock.now += served[i % DRAWN];
                listener.onSuccess();
            }
        };
    }

    static Loop cycleWithClock(Limit limit) {
        Limiter<Void> limiter = SimpleLimiter.newBuilder().limit(limit).build();
        return turns -> {
            for (int i = 0; i < turns; i++) {
                limiter.acquire(null).orElseThrow().onSuccess();
            }
        };
    }

    static Loop refusal(Limit limit) {
        Limiter<Void> limiter = SimpleLimiter.newBuilder().limit(limit).build();
        while (limiter.acquire(null).isPresent()) {
            // Until it is full.
        }
        return turns -> {
            for (int i = 0; i < turns; i++) {
                if (limiter.acquire(null).isPresent()) {
                    throw new IllegalStateException("admitted");
                }
            }
        };
    }

    static long sink;

    static Loop clockRead() {
        return turns -> {
            for (int i = 0; i < turns; i++) {
                sink ^= System.nanoTime();
            }
        };
    }

    /** Processing times of requests of eleven classes, in nanoseconds. */
    static long[] traffic() {
        Random random = new Random(1);
        long[] served = new long[DRAWN];
        for (int i = 0; i < DRAWN; i++) {
            double mean = 0.5e6 * Math.pow(50, random.nextInt(CLASSES) / (CLASSES - 1.0));
            served[i] = (long) (mean * Math.exp(SIGMA * random.nextGaussian() - SIGMA * SIGMA / 2)) + 1;
        }
        return served;
    }

    /** Lets the compiler do its work in loops as long as the measured ones; returns the turns that fill a round. */
    static int warmUp(Loop loop) {
        int turns = 1_000;
        long took = 1;
        for (long began = System.nanoTime(); System.nanoTime() - began < WARM_UP_NS; ) {
            took = Math.max(1, time(loop, turns));
            turns = (int) Math.max(1_000, Math.min(turns * ROUND_NS / took, 1e9));
        }
        return turns;
    }

    static long time(Loop loop, int turns) {
        long began = System.nanoTime();
        loop.run(turns);
        return System.nanoTime() - began;
    }

    static double quantile(double[] sorted, double share) {
        return sorted[(int) Math.round((sorted.length - 1) * share)];
    }
}
