package io.sluicegate.jedis;

import io.sluicegate.RedisPort;
import io.sluicegate.testing.FaultContract;
import java.net.URI;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;

class JedisFaultsTest extends FaultContract {
    @Override
    protected RedisPort open(String uri) {
        URI redis = URI.create(uri);
        DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().connectionTimeoutMillis(1000).socketTimeoutMillis(1000);
        if (redis.getUserInfo() != null) {
            String[] user = redis.getUserInfo().split(":");
            config.user(user[0]).password(user[1]);
        }
        if (!redis.getPath().isEmpty()) {
            config.database(Integer.parseInt(redis.getPath().substring(1)));
        }
        return JedisPort.connect(new HostAndPort(redis.getHost(), redis.getPort()), config.build());
    }
}
