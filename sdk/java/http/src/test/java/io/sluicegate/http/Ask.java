package io.sluicegate.http;

import io.sluicegate.Decision;
import io.sluicegate.Limiter;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.json.Json;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;
import java.util.Map;

/** Asks a server what it reads, a line of JSON each: the program of this SDK for sdk/agree/charged.py. */
public final class Ask {
    private Ask() {}

    /** Reads requests until there are no more. */
    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Map<?, ?> first = (Map<?, ?>) Json.read(in.readLine().getBytes(StandardCharsets.UTF_8));
        URI server = URI.create((String) first.get("server"));
        try (HttpGate gate = HttpGate.remote(server).timeout(Duration.ofMillis(number(first, "deadline_ms"))).warmUp(false).build()) {
            out.println("{}");
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                out.println(answer(gate, (Map<?, ?>) Json.read(line.getBytes(StandardCharsets.UTF_8))));
            }
        }
    }

    private static String answer(HttpGate gate, Map<?, ?> request) {
        try {
            return "{\"allowed\":" + ask(gate, request).allowed() + "}";
        } catch (SluicegateException e) {
            return "{\"error\":\"" + e.code().name().toLowerCase(Locale.ROOT) + "\",\"charged\":\""
                + e.charged().name().toLowerCase(Locale.ROOT) + "\"}";
        }
    }

    private static Decision ask(HttpGate gate, Map<?, ?> request) {
        String policy = (String) request.get("policy");
        boolean shared = request.get("key") == null;
        String key = shared ? "" : (String) request.get("key");
        Limiter limiter = shared ? gate.policy(policy).shared() : gate.policy(policy);
        String id = (String) request.get("id");
        return switch ((String) request.get("op")) {
            case "check" -> limiter.check(key, number(request, "cost"));
            case "refund" -> limiter.refund(key, number(request, "cost"));
            case "release" -> limiter.release(key, id);
            case "settle" -> gate.settle(shared ? Check.shared(policy, number(request, "charged")) : new Check(policy, key, number(request, "charged")),
                id, number(request, "cost")).decision();
            default -> throw new IllegalArgumentException("unknown op");
        };
    }

    private static long number(Map<?, ?> request, String name) {
        return (Long) request.get(name);
    }
}
