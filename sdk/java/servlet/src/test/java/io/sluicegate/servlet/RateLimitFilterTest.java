package io.sluicegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.ClientAddress;
import io.sluicegate.Gate;
import io.sluicegate.Limiter;
import io.sluicegate.testing.MiddlewareContract;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.http.HttpResponse;
import java.util.EnumSet;
import java.util.List;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.Test;

class RateLimitFilterTest extends MiddlewareContract {
    private final Server server = new Server();

    static final class Hello extends HttpServlet {
        private static final long serialVersionUID = 1;

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.getWriter().write("hello");
        }
    }

    @Override
    protected int serve(Gate gate, List<Guard> guards) throws Exception {
        ServerConnector connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new Hello()), "/*");
        for (Guard guard : guards) {
            add(context, guard.path(), filter(gate.policy(guard.policy()), guard));
        }
        add(context, "/cost", RateLimitFilter.byKey(gate.policy("tenant"), request -> "cost").costing(request -> 2));
        server.setHandler(context);
        server.start();
        return connector.getLocalPort();
    }

    private static RateLimitFilter filter(Limiter limiter, Guard guard) {
        return guard.header() == null
            ? RateLimitFilter.byAddress(limiter, ClientAddress.behind(guard.trusted().toArray(String[]::new)))
            : RateLimitFilter.byHeader(limiter, guard.header());
    }

    private static void add(ServletContextHandler context, String path, RateLimitFilter filter) {
        context.addFilter(new FilterHolder(filter), path, EnumSet.of(DispatcherType.REQUEST));
    }

    @Override
    protected void end() throws Exception {
        server.stop();
    }

    @Test
    void a_cost_that_never_fits_has_no_retry() throws Exception {
        HttpResponse<String> refused = get("/cost");
        assertEquals(429, refused.statusCode());
        assertEquals("", field(refused, "Retry-After"));
    }
}
