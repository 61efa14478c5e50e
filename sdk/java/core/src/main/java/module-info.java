/** Plimsoll: keeps account of what tasks hold and wait for, and gives one of them up when asked to. */
module io.plimsoll {
    requires jdk.net; // who is at the other end of a Unix socket

    exports io.plimsoll;
}
