package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The test vectors that all SDKs share; {@code PLIMSOLL_VECTORS} names their directory where it is not {@code sdk/vectors}. */
class VectorsTest {
    private static Path vectors() {
        String asked = System.getenv("PLIMSOLL_VECTORS");
        return asked != null && !asked.isEmpty() ? Path.of(asked) : Path.of("../../vectors").toAbsolutePath().normalize();
    }

    private static Stream<String> named(String ending) throws IOException {
        List<String> names;
        try (Stream<Path> all = Files.list(vectors())) {
            names = all.map(path -> path.getFileName().toString()).filter(name -> name.endsWith(ending))
                    .map(name -> name.substring(0, name.length() - ending.length())).sorted().toList();
        }
        assertTrue(!names.isEmpty(), "there is no *" + ending + " in " + vectors() + "; PLIMSOLL_VECTORS must name the directory of the test vectors");
        return names.stream();
    }

    private static byte[] bytes(String name) throws IOException {
        return Files.readAllBytes(vectors().resolve(name));
    }

    static Stream<String> scripts() throws IOException {
        return named(".script");
    }

    static Stream<String> dumps() throws IOException {
        return named(".dump");
    }

    static Stream<String> errors() throws IOException {
        return named(".error");
    }

    @ParameterizedTest
    @MethodSource("scripts")
    void script(String name, @TempDir Path directory) throws Exception {
        try (Plimsoll app = Script.play(Files.readAllLines(vectors().resolve(name + ".script")), directory)) {
            byte[] expected = bytes(name + ".ledger");
            byte[] written = Files.readAllBytes(app.file());
            assertEquals(Dump.of(expected), Dump.of(written));
            assertArrayEquals(expected, written);
        }
    }

    @ParameterizedTest
    @MethodSource("dumps")
    void dump(String name) throws Exception {
        assertEquals(new String(bytes(name + ".dump"), StandardCharsets.UTF_8), Dump.of(bytes(name + ".ledger")));
    }

    @ParameterizedTest
    @MethodSource("errors")
    void error(String name) throws IOException {
        byte[] ledger = bytes(name + ".ledger");
        LedgerException why = assertThrows(LedgerException.class, () -> Dump.of(ledger));
        assertEquals(new String(bytes(name + ".error"), StandardCharsets.UTF_8).strip(), why.word());
    }

    static Stream<Arguments> control() throws IOException {
        List<Arguments> pairs = new ArrayList<>();
        String line = null;
        for (String next : Files.readAllLines(vectors().resolve("control.txt"))) {
            if (next.startsWith("agent ") || next.startsWith("sdk ")) {
                line = next;
            } else if (next.startsWith("= ") && line != null) {
                pairs.add(arguments(line, next.substring(2)));
                line = null;
            }
        }
        assertTrue(pairs.size() > 20, "only " + pairs.size() + " lines in control.txt");
        return pairs.stream();
    }

    @ParameterizedTest
    @MethodSource("control")
    void control(String line, String says) {
        if (line.startsWith("agent ")) {
            assertEquals(says, says(AgentLine.read(line.substring(6))));
        } else if (!says.equals("ignored")) {
            assertEquals(line.substring(4) + "\n", written(says));
        }
    }

    private static String says(AgentLine line) {
        return switch (line) {
            case AgentLine.Welcome(String mode) -> "welcome version=1 mode=" + mode;
            case AgentLine.Refused(String text) -> "refused text=" + text;
            case AgentLine.Cancel c -> "cancel id=" + Long.toUnsignedString(c.id()) + " task=" + c.task() + " turn="
                    + Long.toUnsignedString(c.turn()) + " resource=" + c.resource() + " text=" + c.text();
            case AgentLine.Rerun(long id) -> "rerun id=" + Long.toUnsignedString(id);
            case AgentLine.Drop(long id) -> "drop id=" + Long.toUnsignedString(id);
            case null -> "ignored";
        };
    }

    /** What the SDK writes to say this: {@code outcome id=8 word=gone text=}. */
    private static String written(String says) {
        String[] parts = says.split(" (?=\\w+=)");
        StringBuilder words = new StringBuilder(parts[0]);
        String text = "";
        for (int i = 1; i < parts.length; i++) {
            String value = parts[i].substring(parts[i].indexOf('=') + 1);
            if (parts[i].startsWith("text=")) {
                text = value;
            } else {
                words.append(' ').append(value);
            }
        }
        return new String(Lines.line(words.toString(), text), StandardCharsets.UTF_8);
    }
}
