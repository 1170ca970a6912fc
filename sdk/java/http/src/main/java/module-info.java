/** Asks a server. */
module io.sluicegate.http {
    requires transitive io.sluicegate;
    requires java.net.http;

    exports io.sluicegate.http;
}
