package io.sluicegate.http;

import java.io.ByteArrayOutputStream;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;

/** Reads the body of an answer up to a length, and gives up the connection of one that is longer. */
final class LimitedBody implements HttpResponse.BodySubscriber<LimitedBody.Body> {
    /** The longest body, in bytes: an answer to 100 checks that are refused with a response of 64 KiB each has room. */
    static final int BYTES_MAX = 8 << 20;

    private final ByteArrayOutputStream read = new ByteArrayOutputStream();
    private final CompletableFuture<Body> body = new CompletableFuture<>();
    private Flow.Subscription subscription;

    /** The body that was read; {@code bytes} is null if the body is longer than {@link #BYTES_MAX}. */
    record Body(byte[] bytes) {}

    @Override
    public CompletionStage<Body> getBody() {
        return body;
    }

    @Override
    public void onSubscribe(Flow.Subscription begun) {
        subscription = begun;
        begun.request(Long.MAX_VALUE);
    }

    @Override
    public void onNext(List<ByteBuffer> parts) {
        for (ByteBuffer part : parts) {
            if (body.isDone()) {
                return;
            }
            if (part.remaining() > BYTES_MAX - read.size()) {
                subscription.cancel();
                body.complete(new Body(null));
                return;
            }
            byte[] bytes = new byte[part.remaining()];
            part.get(bytes);
            read.writeBytes(bytes);
        }
    }

    @Override
    public void onError(Throwable problem) {
        body.completeExceptionally(problem);
    }

    @Override
    public void onComplete() {
        body.complete(new Body(read.toByteArray()));
    }
}
