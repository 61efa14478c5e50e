package io.plimsoll;

/** A task waits for a resource until it gets some of it, or this is closed. */
public final class Wait implements AutoCloseable {
    private final Account account;

    Wait(Account account) {
        this.account = account;
        account.await();
    }

    @Override
    public void close() {
        account.endWait();
    }
}
