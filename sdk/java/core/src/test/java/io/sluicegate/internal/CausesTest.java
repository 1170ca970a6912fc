package io.sluicegate.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.ConnectException;
import java.net.SocketException;
import java.nio.channels.ClosedChannelException;
import org.junit.jupiter.api.Test;

class CausesTest {
    @Test
    void a_connection_that_fails_has_the_cause_that_the_system_gives() {
        Throwable unreachable = new ConnectException("Network is unreachable: /192.0.2.1:6379").initCause(new SocketException("Network is unreachable"));
        assertEquals("Network is unreachable", Causes.text(unreachable, each -> null));
        assertEquals("connection refused", Causes.text(new ConnectException("Connection refused: /192.0.2.1:6379"), each -> null));
        // The client of the JDK has no text.
        assertEquals("connection refused", Causes.text(new ConnectException().initCause(new ClosedChannelException()), each -> null));
    }
}
