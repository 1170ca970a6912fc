package io.sluicegate.lettuce;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/** Reads a reply as it comes: bytes, an integer, nothing, or a list of these and of lists. */
final class AnyOutput extends CommandOutput<byte[], byte[], Object> {
    /** The lists that are being read; the innermost first. */
    private final Deque<List<Object>> open = new ArrayDeque<>();

    AnyOutput() {
        super(ByteArrayCodec.INSTANCE, null);
    }

    private void put(Object value) {
        if (open.isEmpty()) {
            output = value;
        } else {
            open.peek().add(value);
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
        List<Object> list = new ArrayList<>();
        put(list);
        open.push(list);
    }

    @Override
    public void complete(int depth) {
        while (open.size() > depth) {
            open.pop();
        }
    }
}
