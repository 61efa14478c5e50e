package io.plimsoll;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;

/** Lines out of what a socket gives, and into it: never longer than 1,024 bytes, whatever comes. */
final class Lines {
    /** Their ends included. */
    static final int MOST_BYTES = 1024;

    private final byte[] line = new byte[MOST_BYTES];
    private int length;

    /** Hands on each line that is complete, without its end. False if one is too long: whoever sends that is no agent. */
    boolean take(ByteBuffer bytes, Consumer<String> to) {
        while (bytes.hasRemaining()) {
            byte next = bytes.get();
            if (next == '\n') {
                String complete = new String(line, 0, length, StandardCharsets.UTF_8);
                length = 0;
                to.accept(complete);
            } else if (length == MOST_BYTES - 1) {
                return false;
            } else {
                line[length++] = next;
            }
        }
        return true;
    }

    /** A line: its words, then a text without control characters, cut to what there is room for. */
    static byte[] line(String words, String text) {
        String whole = text.isEmpty() ? words : words + " " + text.codePoints()
                .map(c -> Character.isISOControl(c) ? ' ' : c)
                .limit(MOST_BYTES)
                .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append);
        byte[] utf8 = whole.getBytes(StandardCharsets.UTF_8);
        int end = Math.min(utf8.length, MOST_BYTES - 1);
        while (end < utf8.length && end > 0 && (utf8[end] & 0xc0) == 0x80) {
            end--;
        }
        byte[] line = java.util.Arrays.copyOf(utf8, end + 1);
        line[end] = '\n';
        return line;
    }
}
