//! Examples of each command, for `--help` and the manual pages. A test parses each of them.

/// The commands with examples, by their path.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("init", &["sluicegate init", "sluicegate init limits"]),
    (
        "serve",
        &[
            "sluicegate serve --policies policies.yaml",
            "sluicegate serve --policies policies --store redis://127.0.0.1:6379",
            "sluicegate serve --catalog sqlite:sluicegate.db",
        ],
    ),
    (
        "check",
        &[
            "sluicegate check login alice",
            "sluicegate check login alice --cost 2 --max-wait 250ms",
            "sluicegate check login alice --token-file web.token",
        ],
    ),
    ("peek", &["sluicegate peek login alice", "sluicegate peek login alice --output json"]),
    (
        "explain",
        &[
            "sluicegate explain login alice",
            "sluicegate explain login alice --cost 5",
            "sluicegate explain login --at 500/s",
        ],
    ),
    ("refund", &["sluicegate refund login alice", "sluicegate refund login alice --cost 2"]),
    (
        "settle",
        &[
            "sluicegate settle llm alice --id answer-7 --charged 3000 --cost 1840",
            "sluicegate settle llm alice --id answer-8 --charged 3000 --cost 0 --output json",
        ],
    ),
    ("acquire", &["sluicegate acquire jobs nightly", "sluicegate acquire jobs nightly --id run-7"]),
    (
        "renew",
        &[
            "sluicegate renew jobs nightly --id run-7",
            "sluicegate renew jobs nightly --id run-7 --output json",
        ],
    ),
    (
        "release",
        &[
            "sluicegate release jobs nightly --id run-7",
            "sluicegate release jobs --id run-7 --to unix:/run/sluicegate.sock",
        ],
    ),
    ("reset", &["sluicegate reset login alice", "sluicegate reset login"]),
    ("health", &["sluicegate health", "sluicegate health --to https://limits.example.org:8082"]),
    ("status", &["sluicegate status", "sluicegate status --to unix:/run/sluicegate/admin.sock"]),
    ("top", &["sluicegate top login", "sluicegate top login -n 64 --output json"]),
    ("events", &["sluicegate events", "sluicegate events --policy login --result refused"]),
    (
        "bench",
        &[
            "sluicegate bench --policy site",
            "sluicegate bench resp --policy site --pipeline 16 --requests 1000000",
            "sluicegate bench rls --policy site --rate 5000 --duration 1m",
        ],
    ),
    ("config check", &["sluicegate config check", "sluicegate config check --config limits.toml"]),
    (
        "config print",
        &["sluicegate config print", "sluicegate config print --config limits.toml --listen off"],
    ),
    (
        "config schema",
        &["sluicegate config schema", "sluicegate config schema > sluicegate.schema.json"],
    ),
    (
        "replay",
        &[
            "sluicegate replay --policies policies.yaml access.log.gz",
            "sluicegate replay --policies policies.yaml --policy site --svg site.svg access.log",
        ],
    ),
    (
        "policies check",
        &["sluicegate policies check policies.yaml", "sluicegate policies check - < policies.yaml"],
    ),
    (
        "policies compile",
        &[
            "sluicegate policies compile policies.yaml > policies.json",
            "sluicegate policies compile - < policies.yaml",
        ],
    ),
    (
        "policies schema",
        &["sluicegate policies schema", "sluicegate policies schema > policies.schema.json"],
    ),
    (
        "policies export",
        &[
            "sluicegate policies export --app shop",
            "sluicegate policies export --app shop -f policies",
        ],
    ),
    (
        "policies diff",
        &[
            "sluicegate policies diff -f policies --app shop",
            "sluicegate policies diff -f policies --app shop --output json",
        ],
    ),
    (
        "policies apply",
        &[
            "sluicegate policies apply -f policies --app shop --dry-run",
            "sluicegate policies apply -f policies --app shop --reason release-42",
        ],
    ),
    (
        "policies whatif",
        &[
            "sluicegate policies whatif -f new.yaml --policies policies.yaml --log access.log",
            "sluicegate policies whatif -f new.yaml --app shop --log access.log.gz",
        ],
    ),
    (
        "login",
        &[
            "sluicegate login --setup sgsetup_00cf989378dd --name ann",
            "sluicegate login --name ann --to https://limits.example.org:8082",
            "sluicegate login --name ann --password-file password",
        ],
    ),
    ("logout", &["sluicegate logout", "sluicegate logout --to https://limits.example.org:8082"]),
    ("whoami", &["sluicegate whoami", "sluicegate whoami --json"]),
    ("apps list", &["sluicegate apps list", "sluicegate apps list --json"]),
    (
        "apps create",
        &["sluicegate apps create shop", "sluicegate apps create shop --owner bea --owner cid"],
    ),
    ("apps delete", &["sluicegate apps delete shop", "sluicegate apps delete shop --yes"]),
    (
        "members list",
        &["sluicegate members list --app shop", "sluicegate members list --app shop --json"],
    ),
    (
        "members set",
        &[
            "sluicegate members set bea --app shop --role owner",
            "sluicegate members set cid --app shop --role viewer",
        ],
    ),
    (
        "members remove",
        &[
            "sluicegate members remove cid --app shop",
            "sluicegate members remove cid --app shop --yes",
        ],
    ),
    (
        "permits list",
        &[
            "sluicegate permits list builds alice --app shop",
            "sluicegate permits list builds alice --app shop --json",
        ],
    ),
    (
        "permits release",
        &[
            "sluicegate permits release builds alice --app shop --id build-7 --reason stuck",
            "sluicegate permits release builds alice --app shop --permit 6c62272e07bb014262b821756295c58d --yes",
        ],
    ),
    (
        "tokens list",
        &["sluicegate tokens list --app shop", "sluicegate tokens list --app shop --json"],
    ),
    (
        "tokens create",
        &[
            "sluicegate tokens create --app shop --scope check --name web --output web.token",
            "sluicegate tokens create --app shop --scope policy:write --name ci --days 30 > ci.token",
        ],
    ),
    (
        "tokens revoke",
        &[
            "sluicegate tokens revoke 01a21101-e999-76b8-b9a9-5e9678ea951b --app shop",
            "sluicegate tokens revoke 01a21101-e999-76b8-b9a9-5e9678ea951b --app shop --yes",
        ],
    ),
    ("accounts list", &["sluicegate accounts list", "sluicegate accounts list --json"]),
    (
        "accounts create",
        &[
            "sluicegate accounts create bea",
            "sluicegate accounts create cid --admin --password-file password",
        ],
    ),
    (
        "accounts delete",
        &["sluicegate accounts delete bea", "sluicegate accounts delete bea --yes"],
    ),
    (
        "audit verify",
        &[
            "sluicegate audit verify --catalog sqlite:sluicegate.db",
            "sluicegate audit verify --file audit.jsonl",
        ],
    ),
    (
        "audit export",
        &[
            "sluicegate audit export --catalog sqlite:sluicegate.db > audit.jsonl",
            "sluicegate audit export --app shop --since 2026-01-31",
        ],
    ),
    (
        "import envoy",
        &[
            "sluicegate import envoy ratelimit > policies.yaml",
            "sluicegate import envoy ratelimit --descriptors > descriptors.yaml",
        ],
    ),
    (
        "import rate-limiter-info",
        &[
            "sluicegate import rate-limiter-info --csv rows.csv",
            "sluicegate import rate-limiter-info --from mysql://limits@10.0.0.5/limits",
        ],
    ),
    (
        "import nginx",
        &["sluicegate import nginx nginx.conf", "sluicegate import nginx - < nginx.conf"],
    ),
    (
        "import sentinel",
        &["sluicegate import sentinel flow.json", "sluicegate import sentinel - < flow.json"],
    ),
    (
        "redis-acl",
        &[
            "sluicegate redis-acl",
            "sluicegate redis-acl redis+sentinel://10.0.0.5:26379,10.0.0.6:26379/main",
        ],
    ),
    (
        "completions",
        &[
            "sluicegate completions bash > ~/.local/share/bash-completion/completions/sluicegate",
            "sluicegate completions fish > ~/.config/fish/completions/sluicegate.fish",
        ],
    ),
    ("man", &["sluicegate man man1", "sluicegate man /usr/local/share/man/man1"]),
];

/// Examples of the program as a whole.
const PROGRAM: [&str; 3] = [
    "sluicegate init",
    "sluicegate serve --policies policies.yaml",
    "sluicegate check login alice",
];

/// Most examples of a command with subcommands: one of each of the first.
const BELOW_MAX: usize = 3;

/// The examples of the command at `path`; of one with subcommands, the first of each of these.
pub(super) fn of(path: &str) -> Vec<&'static str> {
    if path.is_empty() {
        return PROGRAM.to_vec();
    }
    if let Some((_, lines)) = EXAMPLES.iter().find(|(of, _)| *of == path) {
        return lines.to_vec();
    }
    let is_below = |of: &str| of.strip_prefix(path).is_some_and(|rest| rest.starts_with(' '));
    let below = EXAMPLES.iter().filter(|(of, _)| is_below(of));
    below.filter_map(|(_, lines)| lines.first().copied()).take(BELOW_MAX).collect()
}
