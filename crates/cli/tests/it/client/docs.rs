//! The output in `docs/cli.md` is that of the program.

use std::iter::zip;

use super::{Server, sluicegate};

const PAGE: &str = include_str!("../../../../../docs/cli.md");
const EXAMPLES: &str = include_str!("../../../../../examples/policies.yaml");

#[test]
fn what_the_page_shows_is_printed() {
    let server = Server::start_with(EXAMPLES, &[]);
    let mut commands = 0;
    for block in PAGE.split("```console\n$ ").skip(1) {
        let (block, _) = block.split_once("\n```").expect("a block ends");
        let (command, shown) = block.split_once('\n').expect("a command and what it prints");
        let command = command.strip_prefix("sluicegate ").expect("it is ours");
        let to = match command.split(' ').collect::<Vec<_>>()[..] {
            ["health", ..] => &server.admin,
            ["bench", "resp", ..] => &server.resp,
            ["bench", "rls", ..] => &server.rls,
            _ => &server.http,
        };
        let ran = sluicegate(&format!("{command} --to {to}")).output();
        let (said, is_bench) = (super::finish(ran), command.starts_with("bench"));
        let said = format!("{}{}", said.out, said.err);
        if is_bench {
            // Figures depend on the machine, as does the hint that it was busy.
            let lines = |text: &str| text.lines().map(first_word).collect::<Vec<_>>();
            let words = |text: &str| lines(text.split("\nit may be slower").next().expect("one"));
            assert_eq!(words(&said), words(shown), "{command}");
        } else {
            for (said, shown) in zip(said.lines(), shown.lines()) {
                assert_eq!(said, shown, "{command}");
            }
            assert_eq!(said.lines().count(), shown.lines().count(), "{command}: {said}");
        }
        commands += 1;
    }
    assert!(commands >= 8, "{commands} commands");
}

fn first_word(line: &str) -> String {
    line.split_whitespace().next().unwrap_or_default().to_owned()
}
