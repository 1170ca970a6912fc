package io.sluicegate.spring;

import java.util.Set;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.expression.Expression;
import org.springframework.expression.ParseException;
import org.springframework.expression.spel.SpelNode;
import org.springframework.expression.spel.ast.BeanReference;
import org.springframework.expression.spel.ast.FunctionReference;
import org.springframework.expression.spel.ast.VariableReference;
import org.springframework.expression.spel.standard.SpelExpression;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.expression.spel.support.StandardEvaluationContext;

/** Expressions of Spring (SpEL) in settings: over {@code #request}, and over beans by {@code @NAME}. */
final class Expressions {
    private static final SpelExpressionParser PARSER = new SpelExpressionParser();

    /** The names in expressions about requests. */
    private static final Set<String> KNOWN = Set.of("#request", "#root", "#this");

    private final BeanFactory beans;
    private final BeanFactoryResolver resolver;

    Expressions(BeanFactory beans) {
        this.beans = beans;
        this.resolver = new BeanFactoryResolver(beans);
    }

    /** {@return the expression of a property; a mistake in it names the property} */
    Expression parse(String property, String text) {
        SpelExpression expression;
        try {
            expression = PARSER.parseRaw(text);
        } catch (ParseException | IllegalArgumentException | IllegalStateException e) {
            throw new IllegalArgumentException(property + ": `" + text + "` is not an expression: " + reason(e));
        }
        String name = unknownName(expression.getAST(), KNOWN);
        if (name != null) {
            throw new IllegalArgumentException(property + ": `" + text + "`: `" + name + "` is unknown; expected `#request`");
        }
        String unknown = unknownBean(expression.getAST(), beans);
        if (unknown != null) {
            throw new IllegalArgumentException(property + ": `" + text + "`: there is no bean `" + unknown + "`");
        }
        return expression;
    }

    /** {@return the value for a request} */
    Object value(Expression expression, Object request) {
        return expression.getValue(context(request));
    }

    /** {@return whether it is true of a request} */
    boolean isTrue(Expression expression, Object request) {
        return Boolean.TRUE.equals(expression.getValue(context(request), Boolean.class));
    }

    private StandardEvaluationContext context(Object request) {
        StandardEvaluationContext context = new StandardEvaluationContext(request);
        context.setBeanResolver(resolver);
        context.setVariable("request", request);
        return context;
    }

    /** {@return why the parser does not accept a text; at some of them it stumbles} */
    static String reason(RuntimeException refused) {
        return refused instanceof ParseException parsed ? parsed.getSimpleMessage() : refused.getMessage();
    }

    /** {@return the first variable or function of an expression that is not known; null if all are} */
    static String unknownName(SpelNode node, Set<String> names) {
        return nodes(node).filter(each -> each instanceof VariableReference || each instanceof FunctionReference)
            .map(each -> each.toStringAST().replaceFirst("\\(.*", "")).filter(name -> !names.contains(name)).findFirst().orElse(null);
    }

    /** {@return the name of a bean that an expression needs and that is not there; else null} */
    static String unknownBean(SpelNode node, BeanFactory beans) {
        return nodes(node).filter(BeanReference.class::isInstance).map(each -> each.toStringAST().replaceFirst("^[@&]+", "").replaceAll("^'|'$", ""))
            .filter(name -> !beans.containsBean(name)).findFirst().orElse(null);
    }

    private static Stream<SpelNode> nodes(SpelNode node) {
        return Stream.concat(Stream.of(node), IntStream.range(0, node.getChildCount()).mapToObj(node::getChild).flatMap(Expressions::nodes));
    }
}
