import com.sun.management.OperatingSystemMXBean;
import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.proxy.ProxyManager;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.sluicegate.Carry;
import io.sluicegate.DirectGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.Sluicegate;
import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.kernel.Usage;
import io.sluicegate.lettuce.LettucePort;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.time.Clock;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * The cost of a decision in CPU time of this process and of Redis, beside the peer of Java, bucket4j on Lettuce. Rounds
 * alternate between the cases; each prints a line of JSON, and at the end the least of each figure.
 *
 * <ul>
 * <li>{@code sluicegate}: a check of one bucket, by 1,000 keys in turn, one after the other
 * <li>{@code bare}: an {@code EVALSHA} of a script that returns 1, with arguments as long as those of a check
 * <li>{@code bucket4j}: the same bucket by compare and swap, with its default options
 * <li>{@code sluicegate 16 threads}, {@code bucket4j 16 threads}: one key that sixteen threads ask for at a time
 * <li>{@code denied}: a key that was refused is asked for again
 * <li>{@code kernel}: the arithmetic of one bucket alone; {@code memory}: a check by the gate in memory
 * </ul>
 */
public final class Bench {
    private static final int THREADS = 16;
    private static final int KEYS = 1000;
    /** Cases without Redis take nanoseconds, so they are repeated so many times more. */
    private static final int FAST = 100;
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final RedisCommands<byte[], byte[]> redis;
    private final Map<String, Case> cases = new LinkedHashMap<>();

    /** A call of one thread; its number is given. */
    private interface Call {
        void run(int number);
    }

    private record Case(Call call, int threads, int times) {}

    private record Figures(double clientUs, double redisUs, double perSecond) {
        Figures least(Figures other) {
            return new Figures(Math.min(clientUs, other.clientUs), Math.min(redisUs, other.redisUs), Math.max(perSecond, other.perSecond));
        }

        String line(String name, int calls) {
            return String.format(Locale.ROOT,
                "{\"sdk\":\"java\",\"case\":\"%s\",\"calls\":%d,\"client_us\":%.3f,\"redis_us\":%.2f,\"allocs\":null,\"per_second\":%.0f}",
                name, calls, clientUs, redisUs, perSecond);
        }
    }

    private Bench(int port) {
        RedisClient client = RedisClient.create("redis://127.0.0.1:" + port);
        StatefulRedisConnection<byte[], byte[]> connection = client.connect(ByteArrayCodec.INSTANCE);
        redis = connection.sync();
        DirectGate gate = Sluicegate.direct(LettucePort.connect("redis://127.0.0.1:" + port)).deadline(Duration.ofSeconds(5)).build();
        Limiter bucket = gate.limit("bench", Limit.tokenBucket(1_000_000, Duration.ofSeconds(1)).burst(1_000_000));
        while (bucket.peek("0", 1).mode() != Mode.STORE) {
            Thread.onSpinWait();
        }
        String[] keys = new String[KEYS];
        byte[][][] bareKeys = new byte[KEYS][][];
        for (int place = 0; place < KEYS; place++) {
            keys[place] = "user-" + place;
            bareKeys[place] = new byte[][] {("bare:{user-and-a-hash-" + place + "}").getBytes(StandardCharsets.US_ASCII)};
        }
        cases.put("sluicegate", new Case(number -> expect(bucket.check(keys[number % KEYS]).allowed()), 1, 1));

        String sha = redis.scriptLoad("return 1".getBytes(StandardCharsets.US_ASCII));
        byte[] rules = new byte[60];
        byte[] request = new byte[24];
        cases.put("bare", new Case(number -> redis.evalsha(sha, ScriptOutputType.INTEGER, bareKeys[number % KEYS], rules, request), 1, 1));

        ProxyManager<byte[]> manager = Bucket4jLettuce.casBasedBuilder(client.connect(ByteArrayCodec.INSTANCE)).build();
        BucketConfiguration same = BucketConfiguration.builder()
            .addLimit(Bandwidth.builder().capacity(1_000_000).refillGreedy(1_000_000, Duration.ofSeconds(1)).build()).build();
        byte[][] peerKeys = new byte[KEYS][];
        for (int place = 0; place < KEYS; place++) {
            peerKeys[place] = ("bucket4j:user-" + place).getBytes(StandardCharsets.US_ASCII);
        }
        cases.put("bucket4j", new Case(number ->
            expect(manager.builder().build(peerKeys[number % KEYS], () -> same).tryConsumeAndReturnRemaining(1).isConsumed()), 1, 1));

        cases.put("sluicegate 16 threads", new Case(number -> expect(bucket.check("hot").allowed()), THREADS, 1));
        byte[] hot = "bucket4j:hot".getBytes(StandardCharsets.US_ASCII);
        cases.put("bucket4j 16 threads", new Case(number ->
            expect(manager.builder().build(hot, () -> same).tryConsumeAndReturnRemaining(1).isConsumed()), THREADS, 1));

        Limiter full = gate.limit("full", Limit.fixedWindow(1, Duration.ofDays(366)));
        full.check("k");
        cases.put("denied", new Case(number -> expect(!full.check("k").allowed()), 1, FAST));

        RuleSet one = new RuleSet(Carry.USAGE, List.of(Rules.tokenBucket("r", new Rules.Rate(1_000_000, 1_000_000), 1_000_000, 1_000_000, false)));
        Usage usage = new Usage();
        long began = System.currentTimeMillis() * 1000;
        long[][] windows = one.windowsAround(began);
        cases.put("kernel", new Case(number ->
            expect(usage.decide(one, new Usage.Ask(Verb.CHECK, 1, Numbers.NO_WAIT_GIVEN, null, began + number, windows)).allowed()), 1, FAST));
        Limiter memory = Sluicegate.inMemory(Clock.systemUTC()).limit("memory", Limit.tokenBucket(1_000_000_000, Duration.ofSeconds(1)));
        cases.put("memory", new Case(number -> expect(memory.check("k").allowed()), 1, FAST));
    }

    private static void expect(boolean said) {
        if (!said) {
            throw new IllegalStateException("a decision is not what it should be");
        }
    }

    private double redisCpuUs() {
        double seconds = 0;
        for (String line : redis.info("cpu").split("\r\n")) {
            if (line.startsWith("used_cpu_sys:") || line.startsWith("used_cpu_user:")) {
                seconds += Double.parseDouble(line.substring(line.indexOf(':') + 1));
            }
        }
        return seconds * 1e6;
    }

    private static void repeat(Case one, int calls) throws Exception {
        if (one.threads == 1) {
            for (int number = 0; number < calls; number++) {
                one.call.run(number);
            }
            return;
        }
        ExecutorService pool = Executors.newFixedThreadPool(one.threads);
        List<Future<?>> all = new ArrayList<>();
        for (int thread = 0; thread < one.threads; thread++) {
            all.add(pool.submit(() -> {
                for (int number = 0; number < calls / one.threads; number++) {
                    one.call.run(number);
                }
            }));
        }
        for (Future<?> each : all) {
            each.get();
        }
        pool.shutdown();
    }

    private Figures measure(Case one, int calls) throws Exception {
        int times = calls * one.times / one.threads * one.threads;
        double redisBefore = redisCpuUs();
        long cpu = SYSTEM.getProcessCpuTime();
        long began = System.nanoTime();
        repeat(one, times);
        double seconds = (System.nanoTime() - began) / 1e9;
        double clientUs = (SYSTEM.getProcessCpuTime() - cpu) / 1e3 / times;
        return new Figures(clientUs, (redisCpuUs() - redisBefore) / times, times / seconds);
    }

    /**
     * Measures.
     *
     * @param arguments {@code --rounds N}, {@code --calls N}, {@code --case NAME}, {@code --redis PORT}
     */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new LinkedHashMap<>(Map.of("--rounds", "7", "--calls", "20000", "--case", ""));
        for (int place = 0; place + 1 < arguments.length; place += 2) {
            options.put(arguments[place], arguments[place + 1]);
        }
        int rounds = Integer.parseInt(options.get("--rounds"));
        int calls = Math.max(Integer.parseInt(options.get("--calls")), THREADS);
        Bench bench = new Bench(Integer.parseInt(options.get("--redis")));
        bench.cases.keySet().removeIf(name -> !options.get("--case").isEmpty() && !name.equals(options.get("--case")));
        for (Case each : bench.cases.values()) {
            repeat(each, calls * Math.min(each.times, 10));
        }
        // What the compiler still does belongs to no case.
        TimeUnit.SECONDS.sleep(1);
        Map<String, Figures> least = new LinkedHashMap<>();
        for (int round = 0; round < rounds; round++) {
            for (Map.Entry<String, Case> each : bench.cases.entrySet()) {
                Figures figures = bench.measure(each.getValue(), calls);
                System.out.println(figures.line(each.getKey(), calls));
                least.merge(each.getKey(), figures, Figures::least);
            }
        }
        System.out.println();
        least.forEach((name, figures) -> System.out.println(figures.line(name, calls)));
        System.exit(0);
    }
}
