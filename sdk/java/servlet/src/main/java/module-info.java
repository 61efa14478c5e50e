/** Plimsoll's servlet filter: every request is a task. */
module io.plimsoll.servlet {
    requires transitive io.plimsoll;
    requires transitive jakarta.servlet;

    exports io.plimsoll.servlet;
}
