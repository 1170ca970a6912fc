//! `login`, `logout`, `whoami`, `apps`, `members`, `permits`, `tokens`, `accounts`: the real program as client and server.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluicegate_control::catalog::NewAccount;
use sluicegate_control::identity::Passwords;

use crate::catalog::stage::Node;
use crate::catalog_cli::stage::{self as catalog_cli, Ran, by, finish};
use crate::program::{EXAMPLES, program};
use crate::server::Server;
use crate::terminal::on_terminal;

const PASSWORD: &str = "correct horse battery staple";

/// A client of a server that is not a node.
fn login_to(url: &str, password: &Path) -> Ran {
    let mut login = program();
    login.args(["login", "--name", "ann", "--to", url, "--password-file"]).arg(password);
    finish(&mut login)
}

/// A node, and a home directory for its clients.
struct Stage {
    node: Node,
}

impl Stage {
    fn start() -> Self {
        let node = Node::start("sqlite:DIR/catalog.db", "");
        fs::write(node.folder.path().join("password"), PASSWORD).unwrap();
        fs::set_permissions(node.folder.path().join("password"), PermissionsExt::from_mode(0o600))
            .unwrap();
        Self { node }
    }

    /// A stage with the account `ann`, signed in.
    fn signed_in() -> Self {
        let stage = Self::start();
        let setup = stage.node.setup_token();
        stage.run(&format!("login --setup {setup} --name ann --password-file password")).ok();
        stage
    }

    fn command(&self, command: &str) -> Command {
        let mut program = program();
        program
            .args(command.split_whitespace())
            .current_dir(self.node.folder.path())
            .stdin(Stdio::null())
            .env("XDG_CONFIG_HOME", self.config())
            .env("SLUICEGATE_ADMIN_URL", format!("http://{}", self.node.address("admin")))
            .env("SLUICEGATE_URL", format!("http://{}", self.node.address("http")))
            .env_remove("SLUICEGATE_TOKEN");
        program
    }

    fn run(&self, command: &str) -> Ran {
        finish(&mut self.command(command))
    }

    fn config(&self) -> PathBuf {
        self.node.folder.path().join("config")
    }

    /// The file with the login.
    fn login(&self) -> PathBuf {
        let logins = self.config().join("sluicegate/logins");
        let mut files = fs::read_dir(logins).unwrap().map(|entry| entry.unwrap().path());
        let file = files.next().expect("a login");
        assert!(files.next().is_none(), "nothing is left beside it");
        file
    }

    /// Ends all sessions of `ann`, as another client with the same account.
    fn end_sessions(&self) {
        let other = self.config().join("other");
        let run = |command: &str| {
            let mut program = self.command(command);
            finish(program.env("XDG_CONFIG_HOME", &other)).ok()
        };
        run("login --name ann --password-file password");
        let mut logins = fs::read_dir(other.join("sluicegate/logins")).unwrap();
        let login = fs::read(logins.next().unwrap().unwrap().path()).unwrap();
        let cookie: Value = serde_json::from_slice(&login).unwrap();
        let who = crate::catalog::stage::Who::with_cookie(cookie["cookie"].as_str().unwrap());
        assert_eq!(self.node.admin(&who, "DELETE", "/sessions", &Value::Null).0, 204);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn five_commands_lead_from_the_setup_token_to_a_check_with_a_token() {
    let stage = Stage::start();
    let setup = stage.node.setup_token();
    let first = format!("login --setup {setup} --name ann --password-file password");
    let said = stage.run(&first).ok();
    assert!(said.starts_with("signed in: ann (administrator) at 127.0.0.1:"), "{said}");
    assert_eq!(stage.run("apps create shop").ok(), "created the app shop\n");
    let applied = stage.run(&format!("policies apply -f {EXAMPLES} --app shop")).ok();
    assert!(applied.contains("+ login (active)\n"), "{applied}");
    let made = stage.run("tokens create --app shop --scope check --name web --output web.token");
    assert!(made.ok().ends_with("; its secret is in web.token\n"));
    let checked = stage.run("check login alice --token-file web.token").ok();
    assert!(checked.contains("4 of 5 left"), "{checked}");
}

#[test]
fn the_login_is_for_its_owner_only_and_has_no_password() {
    let stage = Stage::signed_in();
    let login = stage.login();
    assert_eq!(mode(&login), 0o600);
    assert_eq!(mode(login.parent().unwrap()), 0o700);
    let stored = fs::read_to_string(&login).unwrap();
    assert!(!stored.contains(PASSWORD) && stored.contains("sgs_"), "{stored}");
    fs::set_permissions(&login, PermissionsExt::from_mode(0o644)).unwrap();
    let refused = stage.run("apps list");
    assert!(refused.status == Some(1) && refused.err.contains("mode 0644"), "{refused:?}");
}

#[test]
fn the_secret_of_a_token_is_alone_on_standard_output_or_in_a_file_of_its_owner() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    let printed = stage.run("tokens create --app shop --scope check --scope refund --name web");
    let secret = printed.out.strip_suffix('\n').unwrap();
    assert!(secret.starts_with("sgt_") && !secret.contains(char::is_whitespace), "{printed:?}");
    assert!(
        printed.err.starts_with("created the token web of shop (check, refund), which expires ")
    );
    stage.run("tokens create --app shop --scope check --name web --output web.token").ok();
    let file = stage.node.folder.path().join("web.token");
    assert_eq!(mode(&file), 0o600);
    assert!(fs::read_to_string(file).unwrap().starts_with("sgt_"));
    let told = stage.run("tokens create --app shop --scope check --name two --json").json();
    assert!(told["secret"].as_str().unwrap().starts_with("sgt_"), "{told}");
    let unwritable = "tokens create --app shop --scope check --name two --output none/web.token";
    let failed = stage.run(unwritable);
    assert!(failed.err.contains("--output: cannot write to none/web.token"), "{failed:?}");

    let listed = stage.run("tokens list --app shop --json").json();
    assert_eq!(listed.as_array().unwrap().len(), 3, "no token is made whose secret would be lost");
    assert!(!listed.to_string().contains("sgt_"), "{listed}");
    let id = listed[0]["id"].as_str().unwrap();
    let revoked = stage.run(&format!("tokens revoke {id} --app shop --yes")).ok();
    assert_eq!(revoked, format!("revoked the token {id} of shop\n"));
    let table = stage.run("tokens list --app shop").ok();
    assert!(table.starts_with("ID  ") && table.lines().count() == 4, "{table}");
}

#[test]
fn a_permit_that_is_held_is_listed_and_released_by_its_id_or_its_name() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    let slots = "policies: [{ name: slots, rules: [{ concurrency: { limit: 5, ttl: 1h } }] }]";
    fs::write(stage.node.folder.path().join("slots.yaml"), slots).unwrap();
    stage.run("policies apply -f slots.yaml --app shop").ok();
    stage.run("tokens create --app shop --scope check --name web --output web.token").ok();
    for (job, cost) in [("job-1", 1), ("job-2", 3)] {
        let acquire =
            format!("acquire slots alice --id {job} --cost {cost} --token-file web.token");
        stage.run(&acquire).ok();
    }
    let table = stage.run("permits list slots alice --app shop").ok();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("PERMIT ") && lines[0].ends_with("  COST  LAPSES IN"), "{table}");
    assert_eq!((lines.len(), lines[3]), (4, "held: 4 by 2 ids; requests that wait: 0"));
    let listed = stage.run("permits list slots alice --app shop --json").json();
    assert_eq!((&listed["total"], &listed["items"][1]["cost"]), (&json!(2), &json!(3)));
    let permit = listed["items"][0]["permit"].as_str().unwrap();
    let release = format!("permits release slots alice --app shop --permit {permit}");
    let asked = stage.run(&release);
    assert!(asked.err.contains("without a terminal, add --yes"), "{asked:?}");
    let released = stage.run(&format!("{release} --yes --reason stuck")).ok();
    assert_eq!(released, format!("released the permit {permit} of slots\n"));
    let again = stage.run(&format!("{release} --yes"));
    assert!(again.status == Some(1) && again.err.contains("is not held"), "{again:?}");
    let by_name = stage.run("permits release slots alice --app shop --id job-2 --yes").ok();
    assert_eq!(by_name, "released the permit job-2 of slots\n");
    let none = stage.run("permits list slots alice --app shop").ok();
    assert!(none.ends_with("held: 0 by 0 ids; requests that wait: 0\n"), "{none}");
    for wrong in ["--permit abc", "", "--permit a --id b"] {
        let refused = stage.run(&format!("permits release slots alice --app shop --yes {wrong}"));
        assert!(refused.status != Some(0), "{refused:?}");
    }
}

#[test]
fn a_token_is_listed_with_its_last_use_and_revoked_once_by_its_id() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    stage.run("tokens create --app shop --scope policy:read,check --name web --output web").ok();
    stage.run("policies export --app shop --token-file web").ok();
    let listed = stage.run("tokens list --app shop --json").json();
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(listed[0]["scopes"], json!(["check", "policy:read"]));
    let table = stage.run("tokens list --app shop").ok();
    let row: Vec<_> = table.lines().nth(1).unwrap().split("  ").map(str::trim).collect();
    assert!(row[4].ends_with(" UTC") && row[5] == "-", "{table}");

    let named = stage.run("tokens revoke web --app shop --yes");
    let expected = format!(
        "error: `web` is the name of a token, not its ID: run `sluicegate tokens revoke {id} --app shop`\n"
    );
    assert_eq!((named.status, named.err), (Some(1), expected));
    let revoke = format!("tokens revoke {id} --app shop --yes");
    stage.run(&revoke).ok();
    let again = stage.run(&revoke);
    let expected = format!("error: the token {id} of shop was revoked at 20");
    assert!(again.status == Some(1) && again.err.starts_with(&expected), "{again:?}");
    let unknown = stage.run("tokens revoke 0 --app shop --yes");
    assert_eq!(unknown.err, "error: token not found\n");
}

#[test]
fn what_is_in_the_way_of_an_app_is_named() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    let again = stage.run("apps create shop");
    let expected = "error: cannot create the app shop: the name already exists; `sluicegate apps list` shows all apps\n";
    assert_eq!((again.status, again.err.as_str()), (Some(1), expected));
    stage.run(&format!("policies apply -f {EXAMPLES} --app shop")).ok();
    let used = stage.run("apps delete shop --yes");
    let expected = "error: the app still has policies or versions of deleted policies, which stay as its history, so that it \
                    cannot be deleted; delete its policies and revoke its tokens instead\n";
    assert_eq!((used.status, used.err.as_str()), (Some(1), expected));
}

#[test]
fn a_command_without_a_token_names_the_ways_to_send_one() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    stage.run(&format!("policies apply -f {EXAMPLES} --app shop")).ok();
    let none = stage.run("check login alice");
    let expected = "error: app: policy `login` is not available to a caller without an app; name an app with --app, or send \
                    its token with --token-file or SLUICEGATE_TOKEN\n";
    assert_eq!((none.status, none.err.as_str()), (Some(2), expected));
    stage.run("check login alice --app shop").ok();
    for (text, problem) in [
        ("TOKEN=sgt_0", "begins with `TOKEN=`; expected the token alone"),
        ("sgt_0\nsgt_1\n", "has 2 lines; expected one token"),
    ] {
        let file = stage.node.folder.path().join("wrong.token");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let wrong = stage.run("check login alice --token-file wrong.token");
        assert_eq!(wrong.err, format!("error: wrong.token: {problem}\n"));
    }
}

#[test]
fn a_login_that_was_ended_is_reported_with_the_command_that_helps() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    stage.end_sessions();
    for command in ["apps list", "whoami", "policies export --app shop"] {
        let refused = stage.run(command);
        assert_eq!(refused.status, Some(1), "{refused:?}");
        assert!(
            refused.err.contains("has expired or was ended: run `sluicegate login --name ann`")
        );
    }
    stage.run("login --password-file password").ok();
    assert!(stage.run("whoami").ok().starts_with("ann (administrator) at 127.0.0.1:"));
    let wrong = stage.node.folder.path().join("wrong");
    fs::write(&wrong, "another horse battery").unwrap();
    fs::set_permissions(&wrong, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(stage.run("login --password-file wrong").err, "error: wrong account or password\n");
    assert!(stage.run("whoami").status == Some(0), "the earlier login stays");
}

#[test]
fn logout_ends_the_session_and_removes_the_login() {
    let stage = Stage::signed_in();
    let login = stage.login();
    assert!(stage.run("logout").ok().starts_with("signed out of 127.0.0.1:"));
    assert!(!login.exists());
    let none = stage.run("apps list");
    assert!(none.err.contains("no login for 127.0.0.1:"), "{none:?}");
    let none = stage.run("policies export --app shop");
    assert!(none.err.contains("no token and no login for 127.0.0.1:"), "{none:?}");
}

#[test]
fn logout_removes_a_login_that_cannot_be_used_and_one_whose_session_has_ended() {
    let stage = Stage::signed_in();
    let login = stage.login();
    for damage in ["other users can read it", "it is damaged"] {
        match damage {
            "it is damaged" => fs::write(&login, "x").unwrap(),
            _ => fs::set_permissions(&login, PermissionsExt::from_mode(0o644)).unwrap(),
        }
        let told = stage.run("logout");
        assert!(told.status == Some(1) && told.err.contains("was removed here"), "{told:?}");
        assert!(!login.exists(), "{damage}");
        stage.run("login --name ann --password-file password").ok();
    }
    fs::write(&login, "x").unwrap();
    stage.run("login --name ann --password-file password").ok();
    assert_eq!(mode(&login), 0o600, "a new login replaces one that is damaged");
    stage.end_sessions();
    assert!(stage.run("logout").ok().starts_with("signed out of 127.0.0.1:"));
    assert!(!login.exists());
}

#[test]
fn the_setup_token_may_be_in_a_file() {
    let stage = Stage::start();
    let setup = stage.node.folder.path().join("setup");
    fs::write(&setup, stage.node.setup_token() + "\n").unwrap();
    fs::set_permissions(&setup, PermissionsExt::from_mode(0o600)).unwrap();
    stage.run("login --setup-file setup --name ann --password-file password").ok();
    assert!(stage.run("whoami").ok().starts_with("ann (administrator) at "));
}

#[test]
fn a_token_whose_secret_cannot_be_printed_is_named_to_be_revoked() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    let mut create = stage.command("tokens create --app shop --scope check --name web");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let lost = create.stdout(full).output().unwrap();
    let (told, list) = (String::from_utf8(lost.stderr).unwrap(), "tokens list --app shop --json");
    let id = stage.run(list).json()[0]["id"].as_str().unwrap().to_owned();
    let expected = format!("run `sluicegate tokens revoke {id} --app shop`");
    assert!(!lost.status.success() && told.contains(&expected), "{told}");
}

#[test]
fn control_c_at_a_password_leaves_the_terminal_as_it_was() {
    let stage = Stage::start();
    let (_, said) = on_terminal(stage.command("login --name ann"), &["secret\u{3}"]);
    assert!(said.ends_with("error: cancelled\n"), "{said}");
}

#[test]
fn the_name_of_an_account_cannot_write_to_the_terminal() {
    let stage = Stage::signed_in();
    let login = stage.login();
    let stored = fs::read_to_string(&login).unwrap().replace("\"ann\"", r#""a\u001b[31m""#);
    fs::write(&login, stored).unwrap();
    let (_, said) = on_terminal(stage.command("login"), &[PASSWORD]);
    assert!(said.starts_with("password of a\\u{1b}[31m at 127.0.0.1:"), "{said}");
}

#[test]
fn a_token_comes_before_the_login() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    let mut export = stage.command("policies export --app shop");
    let refused = finish(export.env("SLUICEGATE_TOKEN", "sgt_none"));
    assert!(refused.status == Some(1) && !refused.err.contains("sluicegate login"), "{refused:?}");
    assert_eq!(
        stage.run("policies export --app shop --output json").json(),
        json!({"policies": []})
    );
}

#[test]
fn deleting_asks_or_takes_yes() {
    let stage = Stage::signed_in();
    stage.run("apps create shop --description Shop").ok();
    let asked = stage.run("apps delete shop");
    assert!(asked.err.contains("without a terminal, add --yes"), "{asked:?}");
    assert_eq!(stage.run("apps list --json").json()[0]["description"], "Shop");
    assert_eq!(stage.run("apps delete shop --yes").ok(), "deleted the app shop\n");
    assert_eq!(stage.run("apps list --json").json(), json!([]));
}

#[test]
fn accounts_become_members_and_the_last_owner_leaves_only_by_force() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    let new = "accounts create bea@example.org --password-file password";
    assert_eq!(stage.run(new).ok(), "created the account bea@example.org\n");
    let set = stage.run("members set bea@example.org --app shop --role owner").ok();
    assert_eq!(set, "bea@example.org is now an owner of shop\n");
    let members = stage.run("members list --app shop").ok();
    assert!(members.contains("\nbea@example.org  owner  "), "{members}");
    assert_eq!(stage.run("accounts list --json").json()[1]["name"], "bea@example.org");
    let last = stage.run("members remove bea@example.org --app shop --yes");
    assert!(last.status == Some(1) && last.err.contains("last owner"), "{last:?}");
    stage.run("members remove bea@example.org --app shop --yes --force").ok();
    assert_eq!(stage.run("members list --app shop --json").json(), json!([]));
    let deleted = stage.run("accounts delete bea@example.org --yes").ok();
    assert_eq!(deleted, "deleted the account bea@example.org\n");
    assert_eq!(stage.run("accounts list --json").json().as_array().map(Vec::len), Some(1));
}

#[test]
fn a_refused_field_is_reported_by_its_name() {
    let stage = Stage::start();
    let setup = stage.node.setup_token();
    let short = stage.node.folder.path().join("short");
    fs::write(&short, "short").unwrap();
    fs::set_permissions(&short, PermissionsExt::from_mode(0o600)).unwrap();
    let refused = stage.run(&format!("login --setup {setup} --name ann --password-file short"));
    assert!(refused.err.starts_with("error: password: "), "{refused:?}");
    let unknown = stage.run("login --setup sgsetup_0 --name ann --password-file password");
    assert!(unknown.err.starts_with("error: token: invalid, used or expired"), "{unknown:?}");
}

#[test]
fn a_password_is_asked_for_on_the_terminal_without_echo() {
    let stage = Stage::start();
    let setup = stage.node.setup_token();
    let command = stage.command(&format!("login --setup {setup} --name ann"));
    let (shown, said) = on_terminal(command, &[PASSWORD, PASSWORD]);
    assert!(shown.contains("signed in: ann") && !shown.contains("horse"), "{shown}{said}");
    assert!(said.starts_with("password of ann at 127.0.0.1:") && said.contains("the same again: "));

    let command = stage.command("accounts create bea");
    let (shown, said) = on_terminal(command, &[PASSWORD, "something else"]);
    assert!(said.ends_with("error: the passwords differ\n") && !shown.contains("else"), "{said}");
}

#[test]
fn a_question_on_the_terminal_is_answered_no_unless_it_is_yes() {
    let stage = Stage::signed_in();
    stage.run("apps create shop").ok();
    let (_, said) = on_terminal(stage.command("apps delete shop"), &["n"]);
    assert!(said.starts_with("delete the app shop of 127.0.0.1:"), "{said}");
    assert!(said.ends_with("error: nothing was changed\n"), "{said}");
    let (shown, _) = on_terminal(stage.command("apps delete shop"), &["yes"]);
    assert!(shown.contains("deleted the app shop"), "{shown}");
}

#[test]
fn an_address_without_an_admin_api_is_reported_with_the_one_that_has_it() {
    let stage = Stage::start();
    let password = stage.node.folder.path().join("password");
    let http = format!("http://{}", stage.node.address("http"));
    let wrong = login_to(&http, &password);
    assert!(
        wrong.err.contains("`--to` is the admin address of a server with a catalog"),
        "{wrong:?}"
    );
    let files = Server::start("");
    let admin = format!("http://{}", files.address("admin"));
    let none = login_to(&admin, &password);
    assert!(none.err.starts_with("error: no catalog is configured"), "{none:?}");
}

#[test]
fn a_list_has_all_items_of_all_pages() {
    let stage = catalog_cli::Stage::start();
    let hash = stage.wait(Passwords::default().hash(PASSWORD)).unwrap();
    let ann = NewAccount { name: "ann", password_hash: Some(&hash), subject: None, is_admin: true };
    stage.wait(stage.catalog.create_account(&by(), ann)).unwrap();
    for n in 0..1_000 {
        stage.wait(stage.catalog.create_app(&by(), &format!("a{n}"), "", &[])).unwrap();
    }
    stage.file("password", PASSWORD);
    let run = |command: &str| {
        let config = stage.folder.path().join("config");
        finish(stage.command(command).env("XDG_CONFIG_HOME", config))
    };
    run("login --name ann --password-file password").ok();
    // Two exist from the beginning.
    assert_eq!(run("apps list --json").json().as_array().map(Vec::len), Some(1_002));
}
