package io.plimsoll;

/** Why there is no ledger: one word for it, as the test vectors name it, and what would be right. Never leaves the SDK. */
final class LedgerException extends Exception {
    private static final long serialVersionUID = 1;

    private final String word;

    LedgerException(String word, String message) {
        super(message);
        this.word = word;
    }

    String word() {
        return word;
    }
}
