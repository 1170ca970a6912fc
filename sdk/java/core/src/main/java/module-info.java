/** Limits that many programs share: the interface, the decisions without Redis, the policies. It requires nothing but Java. */
module io.sluicegate {
    exports io.sluicegate;
    exports io.sluicegate.internal to io.sluicegate.http, io.sluicegate.jedis, io.sluicegate.ktor, io.sluicegate.lettuce,
        io.sluicegate.servlet, io.sluicegate.spring, io.sluicegate.test, io.sluicegate.webflux;
    exports io.sluicegate.internal.json to io.sluicegate.http, io.sluicegate.spring;
}
