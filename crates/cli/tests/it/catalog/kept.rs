//! The copy of a catalog, for a start without the catalog: only servers of the same catalog use it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use sluicegate_testkit::{SqlKind, SqlServer, need};
use tempfile::TempDir;

use crate::catalog::stage::{Node, Who, policy, until};
use crate::program::serve;

/// A database that cannot be reached.
const PRODUCTION: &str = "postgres://u:hunter2@127.0.0.1:1/production";

/// A node of `DIR/staging.db` with a policy and a token, which has written its copy and is killed.
fn staging() -> (Node, Who) {
    let mut node = Node::start("sqlite:DIR/staging.db", "tokens_required = 'always'\n");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 5), "state": "active" });
    assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    let new = json!({ "name": "t", "scopes": ["check"], "expires_in_days": 1 });
    let (status, made) = node.admin(&ada, "POST", "/apps/shop/tokens", &new);
    assert_eq!(status, 201, "{made}");
    let token = Who::with_token(made["secret"].as_str().unwrap());
    until(|| node.check(&token, "orders", "k").0 == 200);
    let copy = node.folder.path().join("kept.json");
    until(|| fs::read_to_string(&copy).is_ok_and(|text| text.contains("\"scopes\":[\"check\"]")));
    node.kill();
    (node, token)
}

/// The error of a server that does not start with this catalog and this copy.
fn why_not(url: &str, kept: &Path, more: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[catalog]\nurl = '{url}'\nkept = '{}'\n{more}", kept.display());
    let output = serve(&folder, &config).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_server_obeys_no_policies_and_tokens_of_the_copy_of_another_catalog() {
    let (staging, token) = staging();
    let folder = staging.folder.path().canonicalize().unwrap();
    let kept = folder.join("kept.json");
    let address = format!("sqlite:{}", folder.join("staging.db").display());
    let setting = format!("set `catalog.kept_of = \"{address}\"`");
    let mistyped = format!("sqlite:{}/nothing/staging.db", folder.display());
    for (url, named) in
        [(PRODUCTION, "postgres://127.0.0.1:1/production"), (&mistyped, mistyped.as_str())]
    {
        let told = why_not(url, &kept, "");
        assert!(told.contains(&setting), "{told}");
        assert!(told.contains(&format!("cannot read the catalog {named}, and ")), "{told}");
        assert!(
            told.contains(&format!("kept.json is a copy of {address}, and not of {named}")),
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
    }

    // An operator can permit it by the setting that the error prints.
    let more = format!(
        "kept = '{}'\nkept_of = \"{address}\"\ntokens_required = 'always'\n",
        kept.display()
    );
    let moved = Node::start_with_own_copy(tempfile::tempdir().unwrap(), PRODUCTION, &more);
    assert_eq!(moved.check(&token, "orders", "k").0, 200);
    let told = moved.told();
    assert!(told.contains("catalog postgres://127.0.0.1:1/production: unavailable ("), "{told}");
    assert!(told.contains(&format!("using {} of 20", kept.display())), "{told}");
    assert!(told.contains("Z (revision 2)"), "{told}");
}

#[test]
fn a_copy_of_an_earlier_version_names_no_catalog_and_is_used_if_the_operator_says_of_which_it_is() {
    let (staging, token) = staging();
    let folder = staging.folder.path().canonicalize().unwrap();
    let kept = folder.join("kept.json");
    let mut written: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    written.as_object_mut().unwrap().remove("of").unwrap();
    fs::write(&kept, written.to_string()).unwrap();
    let told = why_not(PRODUCTION, &kept, "");
    let setting = "set `catalog.kept_of = \"postgres://127.0.0.1:1/production\"`";
    assert!(told.contains("does not say which catalog") && told.contains(setting), "{told}");
    let more = format!(
        "kept = '{}'\nkept_of = 'postgres://127.0.0.1:1/production'\ntokens_required = 'always'\n",
        kept.display()
    );
    let node = Node::start_with_own_copy(tempfile::tempdir().unwrap(), PRODUCTION, &more);
    assert_eq!(node.check(&token, "orders", "k").0, 200);
}

#[test]
fn two_servers_of_one_folder_start_by_their_own_copies() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, limit) in [("one", 1), ("two", 2)] {
        let url = format!("sqlite:{}", at(&format!("{name}.db")).display());
        let node = Node::start_with_own_copy(tempfile::tempdir().unwrap(), &url, "");
        let ada = node.set_up();
        node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
        let new = json!({ "document": policy("orders", limit), "state": "active" });
        assert_eq!(node.admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
        let copy = at(&format!("{name}.db.kept.json"));
        until(|| fs::read_to_string(&copy).is_ok_and(|text| text.contains("orders")));
    }
    for (name, limit) in [("one", 1), ("two", 2)] {
        let database = at(&format!("{name}.db"));
        fs::remove_file(&database).unwrap();
        fs::create_dir(&database).unwrap();
        let url = format!("sqlite:{}", database.display());
        let node = Node::start_with_own_copy(tempfile::tempdir().unwrap(), &url, "");
        assert_eq!(node.limit("orders"), Some(limit), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_copy_of_a_catalog_on_a_server_is_in_the_folder_for_state_and_for_its_owner() {
    let server = need!(SqlServer::shared(SqlKind::Postgres).await);
    let node = Node::start_with_own_copy(TempDir::new().unwrap(), &server.database().unwrap(), "");
    let folder = node.folder.path().join("sluicegate");
    until(|| folder.read_dir().is_ok_and(|files| files.count() == 1));
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let copy = folder.read_dir().unwrap().next().unwrap().unwrap();
    let name = copy.file_name().into_string().unwrap();
    assert!(name.starts_with("kept-postgres-test"), "{name}");
}

#[test]
fn an_earlier_address_has_no_user_and_no_password() {
    let more = "kept_of = 'postgres://ada:hunter2@db/production'\n";
    let told = why_not(PRODUCTION, Path::new("/none/kept"), more);
    assert!(
        told.contains("catalog.kept_of: ") && told.contains("without user and password"),
        "{told}"
    );
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn a_catalog_whose_file_is_gone_is_decided_by_its_copy_and_not_begun_anew() {
    let (mut staging, token) = staging();
    let folder = staging.folder.path().to_owned();
    let (database, kept) = (folder.join("staging.db"), folder.join("kept.json"));
    let before = fs::read(&kept).unwrap();
    for end in ["", "-wal", "-shm"] {
        let file = folder.join(format!("staging.db{end}"));
        fs::rename(&file, folder.join(format!("away{end}"))).ok();
    }
    staging.start_again();
    assert_eq!(staging.check(&token, "orders", "k").0, 200);
    let told = staging.told();
    assert!(told.contains("staging.db does not exist, but "), "{told}");
    assert!(told.contains("no new catalog is made; remove the copy to begin one"), "{told}");
    assert!(!told.contains("setup token"), "{told}");
    assert!(!database.exists());
    assert_eq!(fs::read(&kept).unwrap(), before, "the copy is of when the catalog answered");
    // The volume returns.
    for end in ["-wal", "-shm", ""] {
        fs::rename(folder.join(format!("away{end}")), folder.join(format!("staging.db{end}"))).ok();
    }
    let ada = until_signed_in(&staging);
    assert_eq!(staging.admin(&ada, "GET", "/apps/shop/policies", &Value::Null).0, 200);
}

/// Signs in as soon as the admin API answers.
fn until_signed_in(node: &Node) -> Who {
    let nobody = Who::default();
    let status = || node.try_admin(&nobody, "GET", "/apps", &Value::Null).map(|answer| answer.0);
    until(|| status() == Some(401));
    node.sign_in()
}

#[test]
fn a_copy_of_another_catalog_is_not_written_over() {
    let (staging, _) = staging();
    let kept = staging.folder.path().join("kept.json");
    let before = fs::read(&kept).unwrap();
    let own = tempfile::tempdir().unwrap();
    let database = own.path().join("other.db");
    fs::File::create(&database).unwrap();
    let more = format!("kept = '{}'\n", kept.display());
    let other = Node::start_with_own_copy(own, &format!("sqlite:{}", database.display()), &more);
    other.set_up();
    until(|| other.told().contains("catalog.kept: not saved"));
    assert_eq!(fs::read(&kept).unwrap(), before);
}
