package io.sluicegate.test;

import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives each test a {@link TestGate} of its own, as a parameter of the test and of its {@code @BeforeEach} methods, and
 * closes it afterwards.
 */
public final class SluicegateExtension implements ParameterResolver, AfterEachCallback {
    private static final Namespace NAMESPACE = Namespace.create(SluicegateExtension.class);

    /** Made by JUnit. */
    public SluicegateExtension() {
        // It has no state.
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == TestGate.class && context.getTestMethod().isPresent();
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        ExtensionContext.Store store = context.getStore(NAMESPACE);
        TestGate gate = store.get(TestGate.class, TestGate.class);
        if (gate == null) {
            gate = new TestGate();
            store.put(TestGate.class, gate);
        }
        return gate;
    }

    @Override
    public void afterEach(ExtensionContext context) {
        TestGate gate = context.getStore(NAMESPACE).remove(TestGate.class, TestGate.class);
        if (gate != null) {
            gate.close();
        }
    }
}
