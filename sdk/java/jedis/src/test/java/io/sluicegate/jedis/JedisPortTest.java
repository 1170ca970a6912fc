package io.sluicegate.jedis;

import io.sluicegate.RedisPort;
import io.sluicegate.testing.RedisContract;
import java.net.URI;

class JedisPortTest extends RedisContract {
    @Override
    protected RedisPort open(String uri) {
        URI redis = URI.create(uri);
        return JedisPort.connect(redis.getHost(), redis.getPort());
    }
}
