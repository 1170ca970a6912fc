package io.sluicegate;

import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * Keys made of attributes of a request, as gateways make them by the {@code key} of a policy. The values come in the
 * spelling of the page "Keys made of attributes"; {@link ClientAddress} spells addresses so.
 */
public final class AttributeKey {
    private AttributeKey() {}

    /**
     * Makes a key.
     *
     * @param attributes 1 to 8 names, such as {@code remote_ip}, {@code method} or {@code header:x-tenant}, in any case
     * @param values the value of each attribute, by its name in any case; one that is missing is empty
     * @return the key; it may be empty, of which {@link Limiter#shared()} makes the budget that all share, as gateways do
     */
    public static String of(List<String> attributes, Map<String, String> values) {
        Map<String, String> byLowerCase = new HashMap<>();
        values.forEach((name, value) -> byLowerCase.put(name.toLowerCase(Locale.ROOT), value));
        boolean alone = attributes.size() == 1;
        return attributes.stream().map(attribute -> byLowerCase.getOrDefault(attribute.toLowerCase(Locale.ROOT), ""))
            .map(value -> alone ? value : value.replace("\\", "\\\\").replace("|", "\\|")).collect(Collectors.joining("|"));
    }
}
