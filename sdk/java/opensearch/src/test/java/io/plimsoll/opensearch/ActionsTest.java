package io.plimsoll.opensearch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.opensearch.action.IndicesRequest;
import org.opensearch.action.support.IndicesOptions;

class ActionsTest {
    /** One that says what it looks for, too. */
    private record Query(String[] indices, String words) implements IndicesRequest {
        @Override
        public IndicesOptions indicesOptions() {
            return null;
        }
    }

    @Test
    void aLabelSaysWhatOfWhichIndicesAndNoMore() {
        Query query = new Query(new String[] {"items"}, "my secret");
        assertEquals("search items", Actions.label("indices:data/read/search", query));
        assertEquals("update by query items", Actions.label("indices:data/write/update/byquery", query));
        assertEquals("field caps", Actions.label("indices:data/read/field_caps", new Object()));
        assertEquals("get", Actions.label("indices:data/read/get", new Query(null, "id")));
        assertEquals("search a,b,c", Actions.label("indices:data/read/search", new Query("a b c d e".split(" "), "")));
    }

    @Test
    void aClientAsksForWholeThings() {
        assertTrue(Actions.isClients("indices:data/read/get"));
        assertTrue(Actions.isClients("indices:data/write/bulk"));
        for (String action : new String[] {"indices:data/read/search[phase/query]", "indices:data/write/bulk[s]", "indices:admin/refresh", "cluster:monitor/tasks/lists"}) {
            assertFalse(Actions.isClients(action), action);
        }
    }

    @Test
    void nobodyWaitsForWhatGoesOnByItself() {
        for (String action : new String[] {"write/update/byquery", "write/delete/byquery", "write/reindex", "read/scroll/clear", "read/point_in_time/delete"}) {
            assertTrue(Actions.isBackground("indices:data/" + action), action);
        }
        assertFalse(Actions.isBackground("indices:data/read/scroll"));
        assertFalse(Actions.isBackground("indices:data/write/bulk"));
    }
}
