package io.plimsoll.opensearch;

import io.plimsoll.Resource;
import io.plimsoll.Work;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.opensearch.tasks.Task;

/** Who has a thread that searches: told by that thread, when a phase of a search on a shard begins, and when it ends. */
final class SearchThreads {
    private static final Logger LOG = LogManager.getLogger(SearchThreads.class);

    private final Roots roots;
    private final Resource resource;
    private final ThreadLocal<Place> places = ThreadLocal.withInitial(Place::new);

    SearchThreads(Roots roots, Resource resource) {
        this.roots = roots;
        this.resource = resource;
    }

    /** One thread's. */
    private static final class Place {
        /** Null while it works for nobody. */
        private Work work;
        /** The number of the task on a shard that it worked for last. */
        private long last = -1;
    }

    /** This thread begins a phase. */
    void begin(Task part) {
        try {
            Place place = places.get();
            leave(place);
            Root root = part == null ? null : roots.of(part);
            if (root == null) {
                return;
            }
            place.work = root.task().enter();
            // A search on one shard alone goes from phase to phase on the same thread, and has waited once.
            if (place.last != part.getId()) {
                place.last = part.getId();
                root.task().slow(resource, 1, root.unaccountedOf(part.getStartTimeNanos(), System.nanoTime()));
            }
            root.task().get(resource, 1);
        } catch (RuntimeException e) {
            LOG.debug("a phase goes unaccounted", e);
        }
    }

    /** This thread has ended it, in whatever way. */
    void end() {
        try {
            leave(places.get());
        } catch (RuntimeException e) {
            LOG.debug("the end of a phase goes unaccounted", e);
        }
    }

    private static void leave(Place place) {
        Work work = place.work;
        if (work != null) {
            place.work = null;
            work.close(); // which gives the thread back
        }
    }
}
