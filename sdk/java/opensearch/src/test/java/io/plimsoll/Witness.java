package io.plimsoll;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** What others can see of a ledger, and what an agent can do, for tests of another package. */
public final class Witness implements AutoCloseable {
    private final FakeAgent agent;

    /** An agent for this directory. */
    public Witness(Path directory) throws IOException {
        agent = new FakeAgent(directory);
    }

    /** Somebody has connected, and may be told to cancel. */
    public void welcome() throws Exception {
        agent.welcome();
    }

    /** Asks for a task to be cancelled, by the row of it. */
    public void cancel(long id, Map<String, String> task, String why) throws IOException {
        agent.send("cancel " + id + " " + task.get("index") + " " + task.get("turn") + " 0 " + why);
    }

    public String next() throws InterruptedException {
        return agent.next();
    }

    @Override
    public void close() throws IOException {
        agent.close();
    }

    /** The rows of one kind: {@code task}, {@code account}, {@code lane}, {@code resource}. Words without a name are the {@code index} and, together, the {@code label}. */
    public static List<Map<String, String>> rows(Path ledger, String kind) throws IOException {
        String text;
        try {
            text = Dump.of(Files.readAllBytes(ledger));
        } catch (LedgerException e) {
            throw new IOException(e);
        }
        return text.lines().filter(line -> line.startsWith(kind + " ")).map(Witness::row).toList();
    }

    /** Those of tasks that live. */
    public static List<Map<String, String>> tasks(Path ledger) throws IOException {
        return rows(ledger, "task").stream().filter(task -> Long.parseLong(task.get("turn")) % 2 != 0).toList();
    }

    /** A figure of all accounts of a resource together; {@code task} is the row of a task whose alone count, null for everybody's. */
    public static long sum(Path ledger, String resource, String figure, Map<String, String> task) throws IOException {
        String index = rows(ledger, "resource").stream().filter(row -> row.get("label").endsWith(resource)).findFirst().orElseThrow().get("index");
        Stream<Map<String, String>> accounts = rows(ledger, "account").stream().filter(account -> account.get("resource").equals(index));
        return accounts.filter(account -> task == null || account.get("task").equals(task.get("index"))).mapToLong(account -> Long.parseLong(account.get(figure))).sum();
    }

    private static Map<String, String> row(String line) {
        String[] words = line.split(" ");
        Map<String, String> row = new HashMap<>(Map.of("index", words[1], "label", ""));
        for (int i = 2; i < words.length; i++) {
            int at = words[i].indexOf('=');
            if (at > 0) {
                row.put(words[i].substring(0, at), words[i].substring(at + 1));
            } else {
                row.merge("label", words[i], (before, word) -> before.isEmpty() ? word : before + " " + word);
            }
        }
        return row;
    }
}
