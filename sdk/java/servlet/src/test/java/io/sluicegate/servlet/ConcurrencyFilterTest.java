package io.sluicegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.Gate;
import io.sluicegate.HttpAnswer;
import io.sluicegate.testing.ConcurrencyContract;
import io.sluicegate.testing.TestRedis;
import jakarta.servlet.AsyncContext;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.http.HttpResponse;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.Test;

class ConcurrencyFilterTest extends ConcurrencyContract {
    private final Server server = new Server();

    private final class Works extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            String path = request.getRequestURI();
            switch (path.substring(path.lastIndexOf('/') + 1)) {
                case "hold" -> response.getWriter().write(work.begin().join());
                case "later" -> later(request, response);
                case "fail" -> throw new IllegalStateException("as the test asks");
                case "stream" -> writeWithoutEnd(response.getOutputStream());
                case "never" -> request.startAsync().setTimeout(50);
                case "later-fails" -> throwLater(request);
                case "again" -> again(request, response);
                default -> response.getWriter().write("hello");
            }
        }

        private void later(HttpServletRequest request, HttpServletResponse response) {
            AsyncContext context = request.startAsync();
            work.begin().thenAccept(text -> {
                try {
                    response.getWriter().write(text);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
                context.complete();
            });
        }

        private void throwLater(HttpServletRequest request) {
            request.startAsync();
            throw new IllegalStateException("as the test asks");
        }

        // Starts, is dispatched, starts again, and is dispatched again.
        private void again(HttpServletRequest request, HttpServletResponse response) throws IOException {
            int dispatches = request.getAttribute("dispatches") == null ? 0 : (int) request.getAttribute("dispatches");
            request.setAttribute("dispatches", dispatches + 1);
            if (dispatches == 2) {
                response.getWriter().write("free: " + free("again"));
                return;
            }
            AsyncContext context = request.startAsync();
            work.begin().thenRun(context::dispatch);
        }
    }

    @Override
    protected int serve(Gate gate, List<String> policies) throws Exception {
        ServerConnector connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        ServletContextHandler context = new ServletContextHandler();
        ServletHolder holder = new ServletHolder(new Works());
        holder.setAsyncSupported(true);
        context.addServlet(holder, "/*");
        for (String policy : policies) {
            add(context, "/" + policy + "/*", ConcurrencyFilter.byHeader(gate.policy(policy), "X-Tenant"));
        }
        add(context, "/own/*", ConcurrencyFilter.byKey(gate.policy("pool"), request -> "own").costing(request -> LIMIT)
            .answering(refusal -> HttpAnswer.of(refusal).with(420)));
        server.setHandler(context);
        server.start();
        return connector.getLocalPort();
    }

    private static void add(ServletContextHandler context, String path, ConcurrencyFilter filter) {
        FilterHolder holder = new FilterHolder(filter);
        holder.setAsyncSupported(true);
        context.addFilter(holder, path, EnumSet.allOf(DispatcherType.class));
    }

    @Override
    protected void end() throws Exception {
        server.stop();
    }

    @Test
    void asynchronous_work_that_times_out_or_fails_frees_its_permit() throws Exception {
        for (String path : List.of("never", "later-fails")) {
            for (int number = 0; number < 2 * LIMIT; number++) {
                assertEquals(500, get("/pool/" + path, "X-Tenant", path).statusCode());
                becomesFree(path);
            }
        }
    }

    @Test
    void a_request_that_is_dispatched_again_holds_one_permit_until_it_ends() throws Exception {
        CompletableFuture<HttpResponse<String>> response = begin("/pool/again", "again");
        TestRedis.await("the first start", () -> work.inside() == 1);
        assertEquals(LIMIT - 1, free("again"));
        work.letGo();
        TestRedis.await("the second start", () -> work.inside() == 1);
        assertEquals(LIMIT - 1, free("again"));
        work.letGo();
        assertEquals("free: " + (LIMIT - 1), response.get(20, TimeUnit.SECONDS).body());
        becomesFree("again");
    }

    @Test
    void a_filter_has_a_cost_and_an_answer_of_its_own() throws Exception {
        CompletableFuture<HttpResponse<String>> held = begin("/own/later", "");
        TestRedis.await("one inside", () -> work.inside() == 1);
        assertEquals(0, free("own"));
        assertEquals(420, get("/own/hello").statusCode());
        work.letGo();
        assertEquals(200, held.get(20, TimeUnit.SECONDS).statusCode());
        becomesFree("own");
    }
}
