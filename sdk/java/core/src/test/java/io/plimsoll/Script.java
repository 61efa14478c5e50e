package io.plimsoll;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Plays a script of the test vectors through the SDK. */
final class Script {
    private final Map<String, Task> tasks = new HashMap<>();
    private final Map<String, Resource> resources = new HashMap<>();
    private final Map<String, Wait> waits = new HashMap<>();
    private final long[] now = new long[1];
    private Plimsoll app;

    /** The application that the script made, still open. */
    static Plimsoll play(List<String> lines, Path directory) throws IOException {
        Script script = new Script();
        for (String line : lines) {
            if (!line.isEmpty() && !line.startsWith("#")) {
                script.step(line, new AgentLine.Words(line), directory);
            }
        }
        return script.app;
    }

    private void step(String line, AgentLine.Words words, Path directory) {
        switch (words.word()) {
            case "ledger" -> open(words, directory);
            case "now" -> now[0] = words.number(-1);
            case "clock" -> Memory.put(app.ledger.memory, Layout.AT_CLOCK_NS, words.number(-1));
            case "exact" -> Memory.put(app.ledger.memory, Layout.AT_FLAGS, words.number(1));
            case "beat" -> app.ledger.beat(words.number(-1));
            case "resource" -> {
                Kind kind = Kind.valueOf(words.word());
                long capacity = words.number(-1);
                String name = words.text();
                resources.put(name, app.resource(kind, name, capacity));
            }
            case "task" -> begin(words);
            case "progress" -> task(words).progress(words.number(-1), words.number(-1));
            case "wait" -> {
                String at = words.word();
                String resource = words.word();
                waits.put(at + " " + resource, tasks.get(at).await(resources.get(resource)));
            }
            case "unwait" -> waits.get(words.text()).close();
            case "get" -> task(words).get(resources.get(words.word()), words.number(-1));
            case "free" -> task(words).free(resources.get(words.word()), words.number(-1));
            case "slow" -> task(words).slow(resources.get(words.word()), words.number(-1), words.number(-1));
            case "end" -> {
                Task task = tasks.remove(words.word());
                int lane = (int) words.number(63);
                if (words.text().equals("cancelled")) {
                    task.mark(new Cancellation(null, 0, task, "", ""));
                    task.isCancelled();
                }
                task.end(lane);
            }
            default -> throw new IllegalArgumentException(line);
        }
    }

    private Task task(AgentLine.Words words) {
        return tasks.get(words.word());
    }

    private void open(AgentLine.Words words, Path directory) {
        String name = words.word();
        Plimsoll.Builder builder = Plimsoll.of(name).directory(directory)
                .resources((int) words.number(256)).lanes((int) words.number(64))
                .tasks((int) words.number(131_072)).accounts((int) words.number(1_048_576));
        builder.clock = () -> now[0];
        builder.head = new LedgerFile.Head(name, builder.shape(), words.number(-1), words.number(-1), words.number(-1));
        builder.connects = false;
        app = builder.open();
    }

    private void begin(AgentLine.Words words) {
        String name = words.word();
        long key = words.number(-1);
        int flags = (int) words.number(15);
        int tid = (int) words.number(Integer.MAX_VALUE);
        long deadlineNs = words.number(-1);
        TaskBuilder builder = app.task(words.text()).key(key);
        builder.tid = tid;
        if ((flags & Layout.CANCELLABLE) == 0) {
            builder.uncancellable();
        }
        if ((flags & Layout.BACKGROUND) != 0) {
            builder.background();
        }
        if ((flags & Layout.RERUNNABLE) != 0) {
            builder.rerun(again -> {});
        }
        tasks.put(name, new Task(app, builder, (flags & Layout.RERUN) != 0, deadlineNs));
    }
}
