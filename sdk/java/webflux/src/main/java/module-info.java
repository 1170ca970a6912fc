/** Limits requests to WebFlux; the modules of Spring and Reactor are automatic ones. */
module io.sluicegate.webflux {
    requires transitive io.sluicegate;
    requires transitive spring.web;
    requires spring.core;
    requires transitive reactor.core;
    requires org.reactivestreams;

    exports io.sluicegate.webflux;
}
