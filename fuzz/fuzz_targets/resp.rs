//! Any bytes are commands or an error, and the same ones however they are split.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (commands, bytes) = sluicegate_server::wire::resp::commands_in(input);
    // What was read is read again, and nothing behind it is looked at.
    assert_eq!(sluicegate_server::wire::resp::commands_in(&input[..bytes]), (commands, bytes));
});
