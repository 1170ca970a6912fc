/** A gate in memory with a clock of its own, for tests. */
module io.sluicegate.test {
    requires transitive io.sluicegate;
    requires static transitive org.junit.jupiter.api;

    exports io.sluicegate.test;
}
