package example;

import io.sluicegate.spring.RateLimit;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.stereotype.Service;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RestController;

/** Takes orders: the policy {@code api} limits addresses by a filter, the policy {@code orders} limits users. */
@SpringBootApplication
public class Orders {
    /**
     * Serves until it is ended.
     *
     * @param arguments properties, such as {@code --sluicegate.redis.url=redis://localhost}
     */
    public static void main(String[] arguments) {
        SpringApplication.run(Orders.class, arguments);
    }

    /** Creates orders. */
    @Service
    public static class Desk {
        /** {@return what was ordered} */
        @RateLimit(policy = "orders", key = "#user")
        public String create(String user) {
            return "ordered by " + user;
        }
    }

    /** Answers requests. */
    @RestController
    public static class Page {
        private final Desk desk;

        Page(Desk desk) {
            this.desk = desk;
        }

        /** {@return what was ordered} */
        @GetMapping("/orders/{user}")
        public String order(@PathVariable String user) {
            return desk.create(user);
        }
    }
}
