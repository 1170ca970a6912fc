/** Decides in Redis through Lettuce, whose module is an automatic one; it finds those of Netty by this one. */
module io.sluicegate.lettuce {
    requires transitive io.sluicegate;
    requires transitive lettuce.core;
    requires io.netty.common;
    requires io.netty.transport;
    requires io.netty.handler;
    requires io.netty.resolver.dns;
    requires reactor.core;

    exports io.sluicegate.lettuce;
}
