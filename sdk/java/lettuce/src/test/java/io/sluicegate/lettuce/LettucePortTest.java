package io.sluicegate.lettuce;

import io.sluicegate.RedisPort;
import io.sluicegate.testing.RedisContract;

class LettucePortTest extends RedisContract {
    @Override
    protected RedisPort open(String uri) {
        return LettucePort.connect(uri);
    }
}
