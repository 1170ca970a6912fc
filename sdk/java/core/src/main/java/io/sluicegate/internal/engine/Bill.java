package io.sluicegate.internal.engine;

import io.sluicegate.internal.kernel.Usage;
import java.security.SecureRandom;
import java.util.Base64;

/**
 * Permits that Redis is to charge before it decides.
 *
 * @param id under which Redis charges it once, however often it is sent
 * @param permits owed of each rule
 * @param used what was in use when the bill was made
 */
record Bill(String id, long[] permits, Usage used) {
    private static final SecureRandom RANDOM = new SecureRandom();

    static Bill of(String id, long[] permits, Usage used) {
        return new Bill(id, permits, used.copy());
    }

    static String newId() {
        byte[] id = new byte[16];
        RANDOM.nextBytes(id);
        return Base64.getUrlEncoder().withoutPadding().encodeToString(id);
    }
}
