/** Decides in Redis through Jedis, whose module is an automatic one. */
module io.sluicegate.jedis {
    requires transitive io.sluicegate;
    requires transitive redis.clients.jedis;

    exports io.sluicegate.jedis;
}
