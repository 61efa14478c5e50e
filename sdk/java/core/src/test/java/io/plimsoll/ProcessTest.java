package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Whole processes: the README's first example, how a ledger goes away, and that nobody has to allow anything. */
@Timeout(300) // each starts a JVM or two, which a busy machine takes its time for
class ProcessTest {
    @TempDir
    Path directory;

    /** A program in one file, run by itself. */
    private Process run(String name, String source) throws IOException {
        Path file = Files.writeString(directory.resolve(name + ".java"), source);
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        ProcessBuilder builder = new ProcessBuilder(java, "-cp", Path.of("target/classes").toAbsolutePath().toString(), file.toString());
        builder.environment().put("PLIMSOLL_DIR", directory.toString());
        return builder.redirectErrorStream(true).start();
    }

    private static String output(Process process) throws Exception {
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(process.waitFor(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
        return said;
    }

    private List<Path> ledgers() throws IOException {
        try (var all = Files.list(directory)) {
            return all.filter(path -> path.toString().endsWith(".ledger")).toList();
        }
    }

    @Test
    void theFirstExampleOfTheReadmeRuns() throws Exception {
        String readme = Files.readString(Path.of("../README.md"));
        Matcher example = Pattern.compile("```java\n(.*?)```\n.*?```\n(.*?)```", Pattern.DOTALL).matcher(readme);
        assertTrue(example.find(), "README.md has no example");
        Process process = run("Example", example.group(1));
        assertEquals(example.group(2), output(process));
        assertEquals(0, process.exitValue());
        assertEquals(List.of(), ledgers());
    }

    /** Only root can be somebody else. */
    @Test
    void anAgentOfAnotherUserIsNotListenedTo() throws Exception {
        assumeTrue(Own.uid() == 0, "this test must be run by root");
        Files.setPosixFilePermissions(directory, PosixFilePermissions.fromString("rwxrwxr-x"));
        Files.setAttribute(directory, "unix:gid", 65_534);
        Path file = Files.writeString(directory.resolve("Listener.java"), """
                import java.net.*;
                import java.nio.channels.*;

                public class Listener {
                    public static void main(String[] words) throws Exception {
                        ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX).bind(UnixDomainSocketAddress.of(words[0]));
                        System.out.println("ready");
                        while (true) {
                            System.out.println("read " + server.accept().read(java.nio.ByteBuffer.allocate(100)));
                        }
                    }
                }
                """);
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        Process listener = new ProcessBuilder("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", java, file.toString(),
                directory.resolve("agent.sock").toString()).redirectErrorStream(true).start();
        Plimsoll app = null;
        try {
            assertEquals("ready", listener.inputReader().readLine());
            app = Plimsoll.of("peer").directory(directory).open();
            // It is hung up on without a word.
            assertEquals("read -1", listener.inputReader().readLine());
            while (!app.say.hasSaid("peer")) {
                Thread.sleep(1);
            }
            assertFalse(app.isConnected());
        } finally {
            if (app != null) {
                app.close();
            }
            listener.destroyForcibly();
            listener.waitFor();
        }
    }

    @Test
    void theLedgerGoesWithAProcessThatEndsInOrder() throws Exception {
        Process process = run("Orderly", """
                import io.plimsoll.*;

                public class Orderly {
                    public static void main(String[] words) {
                        Plimsoll plimsoll = Plimsoll.open("orderly");
                        plimsoll.task("never ends").begin();
                        System.out.println(java.nio.file.Files.exists(plimsoll.file()));
                        System.exit(3);
                    }
                }
                """);
        assertEquals("true\n", output(process));
        assertEquals(3, process.exitValue());
        assertEquals(List.of(), ledgers());
    }

    @Test
    void theLedgerOfAProcessThatIsKilledIsLeftToTheAgent() throws Exception {
        Process process = run("Killed", """
                import io.plimsoll.*;

                public class Killed {
                    public static void main(String[] words) throws Exception {
                        Plimsoll.open("killed").task("never ends").key(7).begin();
                        System.out.println("ready");
                        Thread.sleep(100_000);
                    }
                }
                """);
        assertEquals("ready", process.inputReader().readLine());
        process.destroyForcibly();
        assertTrue(process.waitFor(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
        assertEquals(1, ledgers().size());
        String dump = Dump.of(Files.readAllBytes(ledgers().get(0)));
        assertTrue(dump.contains("pid=" + process.pid() + " ") && dump.contains(" turn=1 key=7 "), dump);
        assertFalse(process.isAlive());
    }
}
