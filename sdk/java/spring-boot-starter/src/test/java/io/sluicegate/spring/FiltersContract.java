package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Gate;
import io.sluicegate.testing.MiddlewareContract;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/** Filters by configuration, and {@code @RateLimit} at a controller, in an application of Spring Boot. */
abstract class FiltersContract extends MiddlewareContract {
    private final Class<?> application;
    private final WebApplicationType type;
    private ConfigurableApplicationContext context;

    FiltersContract(Class<?> application, WebApplicationType type) {
        this.application = application;
        this.type = type;
    }

    @Override
    protected int serve(Gate gate, List<Guard> guards) {
        List<String> properties = new ArrayList<>(List.of("spring.main.banner-mode=off", "server.port=0", "server.address=127.0.0.1",
            "logging.level.root=error"));
        for (int place = 0; place < guards.size(); place++) {
            Guard guard = guards.get(place);
            String filter = "sluicegate.filters[" + place + "].";
            properties.add(filter + "policy=" + guard.policy());
            properties.add(filter + "paths=/none," + guard.path() + "/**");
            properties.add(filter + "key=" + (guard.header() == null ? "address" : "header:" + guard.header()));
            properties.add(filter + "trusted-proxies=" + String.join(",", guard.trusted()));
        }
        context = new SpringApplicationBuilder(application).web(type).logStartupInfo(false)
            .initializers(made -> made.getBeanFactory().registerSingleton("gate", gate)).properties(properties.toArray(String[]::new)).run();
        return Integer.parseInt(context.getEnvironment().getProperty("local.server.port"));
    }

    @Override
    protected void end() {
        context.close();
    }

    @Test
    void observers_see_what_filters_ask() throws Exception {
        List<String> seen = context.getBean(StarterTest.Notes.class).seen();
        int before = seen.size();
        assertEquals(200, get("/tenant", "X-Tenant", "observed").statusCode());
        assertEquals(List.of("check"), seen.subList(before, seen.size()));
    }

    @Test
    void a_refused_method_is_answered_with_a_problem() throws Exception {
        assertEquals("limited", get("/limited").body());
        HttpResponse<String> refused = get("/limited");
        assertEquals(429, refused.statusCode());
        assertEquals("3960", field(refused, "Retry-After"));
        assertEquals("application/problem+json", field(refused, "Content-Type"));
        assertTrue(refused.body().contains("#quota-exceeded"));
    }

    @Test
    void a_method_that_nobody_can_decide_is_a_503() throws Exception {
        HttpResponse<String> undecided = get("/undecided");
        assertEquals(503, undecided.statusCode());
        assertEquals("1", field(undecided, "Retry-After"));
        assertTrue(undecided.body().contains("#temporary-reduced-capacity"));
    }

    @Test
    void patterns_cover_what_is_below() throws Exception {
        assertTrue(get("/tenant/a/b?c", "X-Tenant", "below").headers().firstValue("RateLimit").isPresent());
    }
}
