/** Timers of decisions; the module of Micrometer is an automatic one. */
module io.sluicegate.micrometer {
    requires transitive io.sluicegate;
    requires transitive micrometer.core;

    exports io.sluicegate.micrometer;
}
