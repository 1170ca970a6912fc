package io.sluicegate.http;

import java.net.http.HttpRequest;
import java.nio.ByteBuffer;
import java.util.concurrent.Flow;

/** The body of a request, which knows whether it was read: until then the server has not got it, and charges nothing. */
final class TrackedBody implements HttpRequest.BodyPublisher {
    private final HttpRequest.BodyPublisher body;
    private volatile boolean isRead;

    TrackedBody(String text) {
        this.body = HttpRequest.BodyPublishers.ofString(text);
    }

    /** {@return whether the server may have got a request} */
    static boolean isSent(HttpRequest request) {
        return !(request.bodyPublisher().orElse(null) instanceof TrackedBody tracked) || tracked.isRead;
    }

    @Override
    public long contentLength() {
        return body.contentLength();
    }

    @Override
    public void subscribe(Flow.Subscriber<? super ByteBuffer> subscriber) {
        isRead = true;
        body.subscribe(subscriber);
    }
}
