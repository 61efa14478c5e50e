package io.plimsoll.opensearch;

import io.plimsoll.Kind;
import io.plimsoll.Plimsoll;
import io.plimsoll.Resource;

/** What requests hold up one another at. They are called as they are where the agent looks at a node from outside. */
record Resources(Resource heap, Resource processors, Resource searchThreads) {
    static Resources of(Plimsoll app, int searchThreads) {
        Runtime runtime = Runtime.getRuntime();
        return new Resources(
                app.resource(Kind.MEMORY, "heap", runtime.maxMemory()),
                app.resource(Kind.CPU, "processors", runtime.availableProcessors()),
                app.resource(Kind.QUEUE, "search threads", searchThreads));
    }
}
