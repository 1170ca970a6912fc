//! Any bytes are commands or an error, and the same ones however they are split.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (commands, bytes) = sluicegate_server::wire::resp::commands_in(input);
    // The bytes that were read parse to the same commands without those after them.
    assert_eq!(sluicegate_server::wire::resp::commands_in(&input[..bytes]), (commands, bytes));
});
