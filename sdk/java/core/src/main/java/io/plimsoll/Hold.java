package io.plimsoll;

/** Units of a resource that a task has until this is closed, by the thread that took them. Closing it twice is closing it once. */
public final class Hold implements AutoCloseable {
    private final Account account;
    private long n;

    Hold(Account account, long n) {
        this.account = account;
        this.n = n;
    }

    @Override
    public void close() {
        long held = n;
        n = 0;
        account.free(held);
    }
}
