/** Limits requests to servlets. */
module io.sluicegate.servlet {
    requires transitive io.sluicegate;
    requires transitive jakarta.servlet;

    exports io.sluicegate.servlet;
}
