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
        // What only an application has, each under its own path, by the policy `tenant`.
        List<String> more = List.of("paths=/principal,key=principal", "paths=/bean,key=@tenants.of(#request)", "paths=/unless,key=header:X-Tenant,unless=" + admin(),
            "paths=/own,key=header:X-Tenant,status=420,body=slow down", "paths=/real,key=address,trusted-proxies=127.0.0.0/8,address-header=X-Real-IP",
            "paths=/forwarded,key=address,trusted-proxies=127.0.0.0/8,address-header=Forwarded", "paths=/all,key=header:X-None,shared=true",
            "paths=/pastes,key=header:X-Tenant", "paths=/pastes/*,key=header:X-Tenant");
        for (int place = 0; place < more.size(); place++) {
            String filter = "sluicegate.filters[" + (guards.size() + place) + "].";
            properties.add(filter + "policy=tenant");
            for (String each : more.get(place).split(",(?=[a-z-]+=)")) {
                properties.add(filter + each);
            }
        }
        context = new SpringApplicationBuilder(application).web(type).logStartupInfo(false)
            .initializers(made -> made.getBeanFactory().registerSingleton("gate", gate)).properties(properties.toArray(String[]::new)).run();
        return Integer.parseInt(context.getEnvironment().getProperty("local.server.port"));
    }

    /** {@return an expression that is true of requests with the field {@code X-Admin}} */
    protected abstract String admin();

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
    void observers_see_requests_without_their_key() throws Exception {
        List<String> seen = context.getBean(StarterTest.Notes.class).seen();
        int before = seen.size();
        assertEquals(400, get("/tenant").statusCode());
        assertEquals(400, get("/keyless").statusCode());
        assertEquals(List.of("KEY_EMPTY", "KEY_EMPTY"), seen.subList(before, seen.size()));
    }

    @Test
    void a_refused_method_is_answered_with_a_problem() throws Exception {
        HttpResponse<String> passed = get("/limited");
        assertEquals("limited", passed.body());
        assertEquals("\"fixed_window\";r=0;t=3960", field(passed, "RateLimit"));
        assertEquals("\"fixed_window\";q=1;w=3600", field(passed, "RateLimit-Policy"));
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

    @Test
    void a_collection_and_its_items_are_limited_each_by_its_filter() throws Exception {
        HttpResponse<String> collection = get("/pastes", "X-Tenant", "collection");
        assertEquals(200, collection.statusCode());
        assertEquals(1, collection.headers().allValues("RateLimit").size());
        assertEquals(429, get("/pastes/", "X-Tenant", "collection").statusCode());
        assertEquals(200, get("/pastes/1", "X-Tenant", "item").statusCode());
        assertEquals(429, get("/pastes/1/", "X-Tenant", "item").statusCode());
    }

    @Test
    void a_method_without_its_key_is_a_400() throws Exception {
        HttpResponse<String> keyless = get("/keyless");
        assertEquals(400, keyless.statusCode());
        assertTrue(keyless.body().contains("\"detail\":\"key: is missing\""), keyless.body());
    }

    @Test
    void the_key_may_be_who_is_logged_in() throws Exception {
        assertEquals(200, get("/principal", "X-User", "alice").statusCode());
        assertEquals(429, get("/principal", "X-User", "alice").statusCode());
        assertEquals(200, get("/principal", "X-User", "bob").statusCode());
        assertEquals(400, get("/principal").statusCode());
    }

    @Test
    void the_key_may_come_from_a_bean() throws Exception {
        assertEquals(200, get("/bean", "X-User", "carol").statusCode());
        assertEquals(429, get("/bean", "X-User", "carol").statusCode());
        assertEquals(400, get("/bean").statusCode());
    }

    @Test
    void a_condition_exempts_requests() throws Exception {
        for (int request = 0; request < 3; request++) {
            HttpResponse<String> exempt = get("/unless", "X-Tenant", "exempt", "X-Admin", "yes");
            assertEquals(200, exempt.statusCode());
            assertEquals("", field(exempt, "RateLimit"));
        }
        assertEquals(200, get("/unless", "X-Tenant", "exempt").statusCode());
        assertEquals(429, get("/unless", "X-Tenant", "exempt").statusCode());
    }

    @Test
    void a_filter_may_answer_in_its_own_way() throws Exception {
        assertEquals(200, get("/own", "X-Tenant", "own").statusCode());
        HttpResponse<String> refused = get("/own", "X-Tenant", "own");
        assertEquals(420, refused.statusCode());
        assertEquals("slow down", refused.body());
        assertTrue(field(refused, "Content-Type").startsWith("text/plain"), field(refused, "Content-Type"));
        assertEquals("3960", field(refused, "Retry-After"));
    }

    @Test
    void a_method_may_answer_in_its_own_way() throws Exception {
        assertEquals("answered", get("/answered").body());
        HttpResponse<String> refused = get("/answered");
        assertEquals("420 slow down", refused.statusCode() + " " + refused.body());
        assertTrue(field(refused, "Content-Type").startsWith("text/plain"), field(refused, "Content-Type"));
        assertEquals("3960", field(refused, "Retry-After"));
        assertEquals("forbidden", get("/forbidden").body());
        HttpResponse<String> problem = get("/forbidden");
        assertEquals(403, problem.statusCode());
        assertEquals("application/problem+json", field(problem, "Content-Type"));
        assertTrue(problem.body().contains("\"status\":403,\"detail\":\"retry in 3960 s\""), problem.body());
    }

    @Test
    void an_own_answer_is_not_that_of_an_outage_or_of_the_policy() throws Exception {
        assertEquals(503, get("/nobody").statusCode());
        assertEquals("passed", get("/of-the-policy").body());
        HttpResponse<String> later = get("/of-the-policy");
        assertEquals("203 later", later.statusCode() + " " + later.body());
    }

    @Test
    void another_field_of_trusted_proxies_may_have_the_address() throws Exception {
        assertEquals(200, get("/real", "X-Real-IP", "198.18.9.1").statusCode());
        assertEquals(429, get("/real", "X-Real-IP", "198.18.9.1:80", "X-Forwarded-For", "9.9.9.9").statusCode());
        assertEquals(200, get("/real", "X-Real-IP", "198.18.9.2").statusCode());
    }

    @Test
    void elements_of_rfc_7239_may_have_the_address() throws Exception {
        assertEquals(200, get("/forwarded", "Forwarded", "for=198.18.9.3;host=\"a, for=198.18.9.4\"").statusCode());
        assertEquals(429, get("/forwarded", "Forwarded", "for=198.18.9.5", "Forwarded", "For=\"198.18.9.3:80\", for=127.0.0.2").statusCode());
        assertEquals(200, get("/forwarded", "Forwarded", "for=198.18.9.4", "X-Forwarded-For", "198.18.9.3").statusCode());
    }

    @Test
    void requests_without_a_key_share_a_budget_where_a_setting_says_so() throws Exception {
        assertEquals(200, get("/all").statusCode());
        assertEquals(429, get("/all").statusCode());
        assertEquals(200, get("/all", "X-None", "a").statusCode());
    }
}
