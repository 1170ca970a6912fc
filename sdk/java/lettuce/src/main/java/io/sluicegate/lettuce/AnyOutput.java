package io.sluicegate.lettuce;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** Reads a reply as it comes: bytes, an integer, nothing, or a flat list of these. */
final class AnyOutput extends CommandOutput<byte[], byte[], Object> {
    private List<Object> list;

    AnyOutput() {
        super(ByteArrayCodec.INSTANCE, null);
    }

    private void put(Object value) {
        if (list == null) {
            output = value;
        } else {
            list.add(value);
        }
    }

    @Override
    public void set(ByteBuffer bytes) {
        put(bytes == null ? null : codec.decodeValue(bytes));
    }

    @Override
    public void set(long integer) {
        put(integer);
    }

    @Override
    public void multi(int count) {
        if (list == null) {
            list = new ArrayList<>();
            output = list;
        }
    }
}
