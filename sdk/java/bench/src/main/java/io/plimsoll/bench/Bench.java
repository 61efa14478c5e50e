package io.plimsoll.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** Measures each thing in three processes of its own, five times in each, so that nothing is compiled with another in mind; prints the medians of the fifteen. */
public final class Bench {
    private static final int PROCESSES = 3;

    private Bench() {}

    /** None for {@link Pair}, {@code stores} for {@link Stores}; the processes' own are what to measure, and how. */
    public static void main(String[] words) throws IOException {
        if (words.length == 3 && words[0].equals("pair")) {
            Pair.measure(words[1], words[2]);
        } else if (words.length == 3 && words[0].equals("store")) {
            Stores.measure(words[1], words[2]);
        } else if (words.length == 1 && words[0].equals("stores")) {
            for (String name : List.of("fieldRelease", "fieldPlain", "constantRelease", "constantPlain")) {
                for (String arena : List.of("global", "shared", "auto")) {
                    System.out.printf(Locale.ROOT, "{\"stores\":\"%s\",\"arena\":\"%s\",\"ns\":%.1f}%n", name, arena, median("store", name, arena));
                }
            }
        } else if (words.length == 0) {
            System.out.printf(Locale.ROOT,
                    "{\"lang\":\"java\",\"calm_ns\":%.1f,\"exact_ns\":%.1f,\"task_ns\":%.1f,\"hold_calm_ns\":%.1f,\"hold_exact_ns\":%.1f,\"task_hold_calm_ns\":%.1f,"
                            + "\"further_ledger_ns\":%.1f,\"lock_ns\":%.1f,\"tracked_lock_calm_ns\":%.1f,\"tracked_lock_exact_ns\":%.1f}%n",
                    median("pair", "getFree", "calm"), median("pair", "getFree", "exact"), median("pair", "task", "calm"),
                    median("pair", "hold", "calm"), median("pair", "hold", "exact"), median("pair", "taskHold", "calm"), median("pair", "getFree", "further"),
                    median("pair", "lock", "calm"), median("pair", "trackedLock", "calm"), median("pair", "trackedLock", "exact"));
        } else {
            System.err.println("write nothing, or stores");
            System.exit(2);
        }
    }

    private static double median(String... what) throws IOException {
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", System.getProperty("java.class.path"), Bench.class.getName()));
        command.addAll(List.of(what));
        List<Double> all = new ArrayList<>();
        for (int i = 0; i < PROCESSES; i++) {
            Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).lines().map(Double::valueOf).forEach(all::add);
        }
        if (all.isEmpty()) {
            throw new IllegalStateException("nothing was measured of " + List.of(what));
        }
        all.sort(null);
        return all.get(all.size() / 2);
    }
}
