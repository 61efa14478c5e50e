package io.plimsoll;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** What there is to say: at most one line a cause, to the logger {@code io.plimsoll} of {@link System.Logger}. */
final class Say {
    private static final System.Logger LOGGER = System.getLogger("io.plimsoll");

    private final Set<String> said = ConcurrentHashMap.newKeySet();
    private final String app;

    Say(String app) {
        this.app = app;
    }

    /** Causes are words of the SDK's own, so there are only so many. */
    void once(String cause, String line) {
        if (said.add(cause)) {
            try {
                LOGGER.log(System.Logger.Level.WARNING, "plimsoll, application " + app + ": " + line);
            } catch (RuntimeException e) {
                // A logger that throws is nothing that the application should hear of from here.
            }
        }
    }

    boolean hasSaid(String cause) {
        return said.contains(cause);
    }
}
