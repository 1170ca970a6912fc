package io.sluicegate.internal.redis;

import io.sluicegate.Carry;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import java.io.ByteArrayOutputStream;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Rules in short: the head of states under a limit that a caller brings along. */
final class ShortRules {
    /** The name of a rule that is alone, which is not written. */
    private static final byte[] ALONE = Rule.hashOf("limit");
    private static final int SEVERAL = 128;

    private ShortRules() {}

    static byte[] write(RuleSet set) {
        List<Rule> rules = set.rules();
        boolean alone = rules.size() == 1 && set.carry() == Carry.USAGE && Arrays.equals(rules.get(0).nameHash(), ALONE);
        ByteArrayOutputStream out = new ByteArrayOutputStream(64);
        if (!alone) {
            out.write(SEVERAL + 16 * set.carry().ordinal() + rules.size());
        }
        for (Rule rule : rules) {
            double[] numbers = rule.numbers();
            out.write(16 * rule.flags() + rule.code());
            out.write(numbers.length);
            if (!alone) {
                out.writeBytes(rule.nameHash());
            }
            for (double number : numbers) {
                write(out, number);
            }
        }
        return out.toByteArray();
    }

    private static void write(ByteArrayOutputStream out, double number) {
        if (number != Math.floor(number) || number > Numbers.UNITS_MAX) {
            out.write(0);
            out.writeBytes(ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putDouble(number).array());
            return;
        }
        long rest = (long) number + 1;
        while (rest > 127) {
            out.write((int) (128 + rest % 128));
            rest /= 128;
        }
        out.write((int) rest);
    }

    /** {@return the rules with which a state begins, or null if it does not} */
    static RuleSet read(byte[] state) {
        ByteBuffer in = ByteBuffer.wrap(state).order(ByteOrder.LITTLE_ENDIAN);
        try {
            boolean alone = state.length > 0 && (state[0] & 0xff) < SEVERAL;
            int first = alone ? 1 : in.get() & 0xff;
            Carry carry = alone ? Carry.USAGE : Carry.values()[first - SEVERAL >> 4];
            List<Rule> rules = new ArrayList<>();
            for (int left = alone ? 1 : first & 15; left > 0; left--) {
                int kind = in.get() & 0xff;
                double[] numbers = new double[in.get() & 0xff];
                byte[] name = ALONE.clone();
                if (!alone) {
                    in.get(name);
                }
                for (int place = 0; place < numbers.length; place++) {
                    numbers[place] = number(in);
                }
                rules.add(Rule.read(name, kind & 15, kind >> 4, numbers));
            }
            return new RuleSet(carry, rules);
        } catch (BufferUnderflowException | IllegalArgumentException | ArrayIndexOutOfBoundsException e) {
            return null;
        }
    }

    private static double number(ByteBuffer in) {
        long number = 0;
        for (int shift = 0; shift < 63; shift += 7) {
            int next = in.get() & 0xff;
            if (next == 0 && shift == 0) {
                return in.getDouble();
            }
            number |= (long) (next & 127) << shift;
            if (next < 128) {
                return number - 1;
            }
        }
        throw new IllegalArgumentException("a number is too long");
    }
}
