package io.plimsoll;

import java.util.Set;

/**
 * What the agent says. Read strictly: a line that does not say exactly what {@code docs/ledger.md} lays down is not understood, and is nothing.
 */
sealed interface AgentLine {
    /** The ledger is being read. */
    record Welcome(String mode) implements AgentLine {}

    /** It is not, and the agent closes. */
    record Refused(String text) implements AgentLine {}

    /** Cancel a task. {@code id} and {@code turn} are unsigned. */
    record Cancel(long id, int task, long turn, int resource, String text) implements AgentLine {}

    /** Run once more what {@code id} cancelled. */
    record Rerun(long id) implements AgentLine {}

    /** Do not. */
    record Drop(long id) implements AgentLine {}

    /** A line without its end; null if it is not understood. */
    static AgentLine read(String line) {
        try {
            Words words = new Words(line);
            return switch (words.word()) {
                case "welcome" -> {
                    if (words.number(0xffff_ffffL) < 0) {
                        yield null;
                    }
                    String mode = words.word();
                    yield Set.of("off", "shadow", "enforce").contains(mode) ? new Welcome(mode) : null;
                }
                case "refused" -> new Refused(words.text());
                case "cancel" -> new Cancel(words.number(-1), (int) words.number(131_071), words.number(-1), (int) words.number(255), words.text());
                case "rerun" -> new Rerun(words.number(-1));
                case "drop" -> new Drop(words.number(-1));
                default -> null;
            };
        } catch (IllegalArgumentException e) {
            return null;
        }
    }

    /** The words of a line, from its first on. */
    final class Words {
        private String rest;

        Words(String line) {
            rest = line;
        }

        /** The next word, which must be there. */
        String word() {
            if (rest == null) {
                throw new IllegalArgumentException("a word is missing");
            }
            int end = rest.indexOf(' ');
            String word = end < 0 ? rest : rest.substring(0, end);
            rest = end < 0 ? null : rest.substring(end + 1);
            if (word.isEmpty()) {
                throw new IllegalArgumentException("a word is missing, or a space too much");
            }
            return word;
        }

        /** A decimal number up to {@code most}, both unsigned. */
        long number(long most) {
            String word = word();
            if (!word.chars().allMatch(c -> c >= '0' && c <= '9')) {
                throw new IllegalArgumentException(word + " is no number");
            }
            long number = Long.parseUnsignedLong(word);
            if (Long.compareUnsigned(number, most) > 0) {
                throw new IllegalArgumentException(word + " is too large");
            }
            return number;
        }

        /** All that is left. */
        String text() {
            String text = rest == null ? "" : rest;
            rest = null;
            return text;
        }
    }
}
