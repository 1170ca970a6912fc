package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Limit;
import io.sluicegate.test.TestGate;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;

/** Filters by configuration before static files, which Spring finds under many spellings of their paths. */
class StaticFilesTest {
    private static final List<String> SPELLINGS = List.of("/files/a.txt", "//files/a.txt", "///files//a.txt", "/.;/files/a.txt", "/%2e/files/a.txt",
        "/./files/a.txt", "/x/../files/a.txt", "/x/%2e%2e/files/a.txt", "/;x/files/a.txt", "/files;x/a.txt", "/%66iles/a.txt", "/files%2fa.txt",
        "/%2ffiles/a.txt", "/%5cfiles/a.txt", "/files%5ca.txt", "/files/a.txt/", "/files/./a.txt", "/%2e%2e/files/a.txt");

    @TempDir
    private Path folder;

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Application {}

    @Test
    void no_spelling_passes_by_a_filter_of_servlets() throws Exception {
        noSpellingPasses(WebApplicationType.SERVLET, "", "server.port=0");
        noSpellingPasses(WebApplicationType.SERVLET, "/shop", "server.servlet.context-path=/shop");
    }

    @Test
    void no_spelling_passes_by_a_filter_of_webflux() throws Exception {
        noSpellingPasses(WebApplicationType.REACTIVE, "", "server.port=0");
        noSpellingPasses(WebApplicationType.REACTIVE, "/shop", "spring.webflux.base-path=/shop");
    }

    private void noSpellingPasses(WebApplicationType type, String base, String property) throws Exception {
        Files.createDirectories(folder.resolve("files"));
        Files.writeString(folder.resolve("files/a.txt"), "a");
        Files.writeString(folder.resolve("free.txt"), "free");
        try (TestGate gate = new TestGate()) {
            gate.policy("files", Limit.fixedWindow(1000, Duration.ofHours(1)));
            try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Application.class).web(type).logStartupInfo(false)
                .initializers(made -> made.getBeanFactory().registerSingleton("gate", gate))
                .properties("spring.main.banner-mode=off", "server.port=0", "server.address=127.0.0.1", "logging.level.root=error", property,
                    "spring.web.resources.static-locations=" + folder.toUri(),
                    "sluicegate.filters[0].policy=files", "sluicegate.filters[0].paths=/files/*").run()) {
                String root = "http://127.0.0.1:" + context.getEnvironment().getProperty("local.server.port") + base;
                for (String spelling : SPELLINGS) {
                    HttpResponse<String> response = get(root + spelling);
                    boolean served = response.statusCode() == 200;
                    assertTrue(!served || response.headers().firstValue("RateLimit").isPresent(), spelling + " was served without a limit");
                }
                assertEquals("a", get(root + "/files/a.txt").body());
                HttpResponse<String> free = get(root + "/free.txt");
                assertEquals("free", free.body());
                assertFalse(free.headers().firstValue("RateLimit").isPresent());
            }
        }
    }

    private static HttpResponse<String> get(String uri) throws Exception {
        return HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(uri)).build(), HttpResponse.BodyHandlers.ofString());
    }
}
