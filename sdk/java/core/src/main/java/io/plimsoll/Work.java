package io.plimsoll;

import java.util.List;

/** A further thread works for a task until this is closed, by that thread. */
public final class Work implements AutoCloseable {
    private final Strand strand;
    private final List<Strand> others;

    Work(Strand strand, List<Strand> others) {
        this.strand = strand;
        this.others = others;
    }

    @Override
    public void close() {
        strand.leave();
        others.remove(strand);
    }
}
