package io.plimsoll.opensearch;

import java.util.Map;
import java.util.Set;
import org.opensearch.action.IndicesRequest;

/** What OpenSearch calls what is asked of it, and what people call it. */
final class Actions {
    private static final String READ = "indices:data/read/";
    private static final String WRITE = "indices:data/write/";
    /** Where the name says it badly. */
    private static final Map<String, String> WORDS = Map.of(
            "update/byquery", "update by query",
            "delete/byquery", "delete by query",
            "msearch", "multi search",
            "mget", "multi get",
            "scroll/clear", "clear scroll");
    /** Nobody waits for these. */
    private static final Set<String> BACKGROUND = Set.of("update/byquery", "delete/byquery", "reindex", "scroll/clear");
    /** What keeps a view of an index open. */
    private static final String VIEWS = "point_in_time/";
    private static final int NAMES = 3;

    private Actions() {}

    /** Whether a client can ask for it. In brackets are parts of something greater. */
    static boolean isClients(String action) {
        return (action.startsWith(READ) || action.startsWith(WRITE)) && action.indexOf('[') < 0;
    }

    /** Whether it is work that goes on by itself. */
    static boolean isBackground(String action) {
        String name = name(action);
        return BACKGROUND.contains(name) || name.startsWith(VIEWS);
    }

    /** What it is, for people, and of which indices; nothing that somebody looks for or writes. */
    static String label(String action, Object request) {
        String name = name(action);
        StringBuilder label = new StringBuilder(WORDS.getOrDefault(name, name.replace('/', ' ').replace('_', ' ')));
        String[] indices = request instanceof IndicesRequest of ? of.indices() : null;
        for (int i = 0; indices != null && i < Math.min(indices.length, NAMES); i++) {
            label.append(i == 0 ? ' ' : ',').append(indices[i]);
        }
        return label.toString();
    }

    private static String name(String action) {
        return action.substring(action.startsWith(READ) ? READ.length() : WRITE.length());
    }
}
