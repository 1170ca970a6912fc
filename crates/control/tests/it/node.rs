//! The snapshot of a node, while the catalog changes, is unavailable, and comes back.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use sluicegate_control::catalog::{NewToken, Page, PolicyAt, PolicyState};
use sluicegate_control::identity::{Secret, SecretKind};
use sluicegate_control::node::{CatalogCopy, CatalogDelta, Follower, Presence, Tokens};
use sluicegate_control::{Catalog, CatalogAddress, ChangeContext, Scope, Url};
use sqlx::{ConnectOptions as _, Executor as _};
use tempfile::TempDir;

const NOW: i64 = 1_800_000_000_000;

struct Stage {
    dir: TempDir,
    catalog: Catalog,
}

impl Stage {
    async fn set() -> Self {
        let dir = TempDir::with_prefix("sluicegate-node-").expect("a folder for the test");
        let catalog = Catalog::open(&url(&dir)).await.expect("the tables can be made");
        catalog.create_app(&by(), "shop", "", &[]).await.expect("an app can be made");
        Self { dir, catalog }
    }

    fn kept(&self) -> PathBuf {
        self.dir.path().join("held.json")
    }

    fn copy(&self) -> CatalogCopy {
        CatalogCopy::new(self.kept(), &url(&self.dir))
    }

    fn follower(&self) -> (Follower, CatalogDelta) {
        let mut follower = Follower::new(url(&self.dir), self.copy());
        let news = follower.restore().expect("there is no file, or a good one");
        (follower, news)
    }

    async fn policy(&self, name: &str, state: PolicyState) {
        let document = json!({ "name": name, "rules": [{ "token_bucket": { "rate": "1/s" } }] });
        self.catalog.create_policy(&by(), "shop", &document, state).await.expect("it makes sense");
    }
}

fn url(dir: &TempDir) -> Url {
    format!("sqlite:{}", dir.path().join("catalog.db").display()).parse().expect("it is a URL")
}

fn by() -> ChangeContext {
    ChangeContext::operator("because", NOW)
}

fn names(news: &CatalogDelta) -> Vec<&str> {
    news.changed.iter().map(sluicegate_policy::Policy::name).collect()
}

#[tokio::test]
async fn a_node_learns_what_changed_and_says_what_it_holds() {
    let stage = Stage::set().await;
    let (mut follower, nothing) = stage.follower();
    assert!(nothing.changed.is_empty() && nothing.tokens.is_none());
    stage.policy("a", PolicyState::Active).await;
    stage.policy("b", PolicyState::Shadow).await;
    let news = follower.poll(NOW).await.unwrap().expect("there is news");
    assert_eq!(names(&news), ["a", "b"]);
    assert!(news.changed[1].overflow() == &sluicegate_policy::Overflow::Shadow);
    assert!(follower.poll(NOW).await.unwrap().is_none());
    let mut presence = Presence::new("n1", "0.0.0", NOW);
    presence.report(&stage.catalog, follower.held().revision(), NOW).await.unwrap();
    let nodes = stage.catalog.nodes(&Page::default()).await.unwrap();
    assert_eq!((nodes[0].name.as_str(), nodes[0].revision), ("n1", 2));

    stage.catalog.delete_policy(&by(), &PolicyAt::new("shop", "a", 1)).await.unwrap();
    let news = follower.poll(NOW).await.unwrap().expect("there is news");
    assert_eq!((names(&news), news.gone.as_slice()), (vec![], &["a".to_owned()][..]));
    // It reports its presence now and then.
    for at in [NOW, NOW + 9_999, NOW + 20_000] {
        presence.report(&stage.catalog, follower.held().revision(), at).await.unwrap();
    }
    assert_eq!(stage.catalog.nodes(&Page::default()).await.unwrap()[0].seen_at, NOW + 20_000);
}

#[tokio::test]
async fn a_node_starts_with_what_it_held_while_the_catalog_is_away() {
    let stage = Stage::set().await;
    stage.policy("a", PolicyState::Active).await;
    let secret = Secret::new(SecretKind::Token);
    let hash = secret.hash();
    let scopes = [Scope::Check];
    let new = NewToken { name: "t", scopes: &scopes, expires_at: NOW + 1_000, hash: &hash };
    let token = stage.catalog.create_token(&by(), "shop", new).await.unwrap();
    let (mut follower, _) = stage.follower();
    follower.poll(NOW).await.unwrap();
    follower.held().write_in_background(&stage.copy()).await.unwrap();
    assert!(!fs::read_to_string(stage.kept()).unwrap().contains(secret.expose()));

    let away = stage.dir.path().join("away.db");
    fs::rename(stage.dir.path().join("catalog.db"), &away).unwrap();
    let in_its_way = stage.dir.path().join("catalog.db");
    fs::create_dir(&in_its_way).unwrap();
    let mut alone = Follower::new(url(&stage.dir), stage.copy());
    let news = alone.restore().unwrap();
    assert_eq!(names(&news), ["a"]);
    let is_good = |tokens: &Tokens, scope, at| {
        let token = tokens.of_secret(secret.expose().as_bytes())?;
        (token.is_good(at) && token.may(scope)).then(|| token.app().to_owned())
    };
    let tokens = news.tokens.unwrap();
    assert_eq!(is_good(&tokens, Scope::Check, NOW), Some("shop".to_owned()));
    assert_eq!(is_good(&tokens, Scope::Refund, NOW), None);
    assert_eq!(is_good(&tokens, Scope::Check, NOW + 1_000), None, "it has ended");
    assert!(tokens.of_secret(b"sgt_other").is_none());
    assert!(alone.poll(NOW).await.is_err());
    assert_eq!(alone.held().revision(), 2);

    fs::remove_dir(&in_its_way).unwrap();
    fs::rename(&away, in_its_way).unwrap();
    stage.catalog.revoke_token(&by(), "shop", &token.id).await.unwrap();
    let (mut back, _) = stage.follower();
    let news = back.poll(NOW).await.unwrap().expect("there is news");
    assert!(news.tokens.unwrap().is_empty());
}

#[tokio::test]
async fn a_copy_of_another_catalog_is_refused_by_name_with_its_policies_and_tokens() {
    let stage = Stage::set().await;
    stage.policy("a", PolicyState::Active).await;
    let (mut follower, _) = stage.follower();
    follower.poll(NOW).await.unwrap();
    follower.held().write_in_background(&stage.copy()).await.unwrap();

    let production: Url = "postgres://u:hunter2@127.0.0.1:1/production".parse().unwrap();
    let mut copy = CatalogCopy::new(stage.kept(), &production);
    let mut other = Follower::new(production.clone(), copy.clone());
    let refused = other.restore().unwrap_err().to_string();
    let staging = CatalogAddress::of(&url(&stage.dir));
    let setting = format!("set `catalog.kept_of = \"{staging}\"`");
    assert!(refused.contains(&setting), "{refused}");
    assert!(refused.contains("not of postgres://127.0.0.1:1/production"), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
    assert_eq!((other.held().revision(), other.held().policies().count()), (0, 0));
    assert!(other.held().tokens().is_empty());

    // The setting as it is printed.
    copy.of_before = Some(staging.to_string().parse().unwrap());
    let mut moved = Follower::new(production.clone(), copy.clone());
    assert_eq!(names(&moved.restore().unwrap()), ["a"]);
    copy.of_before = Some("postgres://elsewhere/production".parse().unwrap());
    assert!(Follower::new(production, copy).restore().is_err(), "another one is still refused");
}

#[tokio::test]
async fn a_copy_that_names_no_catalog_is_read_only_if_the_operator_says_of_which_it_is() {
    let stage = Stage::set().await;
    stage.policy("a", PolicyState::Active).await;
    let (mut follower, _) = stage.follower();
    follower.poll(NOW).await.unwrap();
    follower.held().write_in_background(&stage.copy()).await.unwrap();
    // As an earlier version wrote it.
    let mut written: serde_json::Value =
        serde_json::from_slice(&fs::read(stage.kept()).unwrap()).unwrap();
    written.as_object_mut().unwrap().remove("of").unwrap();
    fs::write(stage.kept(), written.to_string()).unwrap();

    let mut copy = stage.copy();
    let mut follower = Follower::new(url(&stage.dir), copy.clone());
    let refused = follower.restore().unwrap_err().to_string();
    let setting = format!("set `catalog.kept_of = \"{}\"`", copy.of);
    assert!(refused.contains("earlier version") && refused.contains(&setting), "{refused}");
    assert_eq!(follower.held().revision(), 0);
    copy.of_before = Some(copy.of.clone());
    let mut follower = Follower::new(url(&stage.dir), copy.clone());
    assert_eq!(names(&follower.restore().unwrap()), ["a"]);
    // The next copy names its catalog.
    follower.held().write_in_background(&copy).await.unwrap();
    assert_eq!(names(&stage.follower().1), ["a"]);
}

#[tokio::test]
async fn a_catalog_that_was_taken_back_is_followed_there() {
    let stage = Stage::set().await;
    stage.policy("a", PolicyState::Active).await;
    stage.policy("b", PolicyState::Active).await;
    let (mut follower, _) = stage.follower();
    follower.poll(NOW).await.unwrap();
    follower.held().write_in_background(&stage.copy()).await.unwrap();

    let earlier = Stage::set().await;
    earlier.policy("c", PolicyState::Active).await;
    // A backup that was restored elsewhere: the operator says that it is the same catalog.
    let mut copy = CatalogCopy::new(stage.kept(), &url(&earlier.dir));
    copy.of_before = Some(CatalogAddress::of(&url(&stage.dir)));
    let mut follower = Follower::new(url(&earlier.dir), copy);
    let news = follower.restore().unwrap();
    assert_eq!(names(&news), ["a", "b"]);
    let news = follower.poll(NOW).await.unwrap().expect("there is news");
    assert_eq!(
        (names(&news), news.gone.as_slice()),
        (vec!["c"], &["a".to_owned(), "b".to_owned()][..])
    );
}

#[tokio::test]
async fn a_file_that_is_not_what_was_written_is_told_of_and_a_policy_nobody_can_read_is_left_out() {
    let stage = Stage::set().await;
    for text in ["", "{", r#"{"format":2,"published":{"revision":1,"policies":[],"tokens":[]}}"#] {
        fs::write(stage.kept(), text).unwrap();
        let mut follower = Follower::new(url(&stage.dir), stage.copy());
        assert!(follower.restore().unwrap_err().to_string().contains("held.json"), "{text}");
    }
    fs::write(stage.kept(), r#"{"format":2,"of":"tomorrow"}"#).unwrap();
    let mut follower = Follower::new(url(&stage.dir), stage.copy());
    let other = follower.restore().unwrap_err().to_string();
    assert!(other.contains("held.json has format 2, expected 1: another version"), "{other}");
    assert!(!other.contains("damaged"), "{other}");
    let of = CatalogAddress::of(&url(&stage.dir));
    let later = json!({ "format": 1, "of": of, "published": { "revision": 9, "tokens": [], "policies": [
        { "name": "p", "app": "shop", "state": "active", "version": 1, "document": "{\"name\":\"p\",\"of\":\"tomorrow\"}" },
    ] } });
    fs::write(stage.kept(), later.to_string()).unwrap();
    let (_, news) = stage.follower();
    assert_eq!((names(&news), news.refused[0].0.as_str()), (vec![], "p"));
}

#[tokio::test]
async fn a_policy_that_was_valid_when_the_catalog_took_it_stays_in_force_and_so_do_the_others() {
    let stage = Stage::set().await;
    stage.policy("jobs", PolicyState::Active).await;
    stage.policy("orders", PolicyState::Active).await;
    // Earlier versions took this document.
    let jobs = r#"{"name":"jobs","rules":[{"concurrency":{"limit":2,"ttl":"1m"}}],"overflow":{"queue":{"max_wait":"1s"}},"match":{"method":["POST"]}}"#;
    let Url::Sqlite(database) = url(&stage.dir) else { panic!("it is a file") };
    let mut database = database.connect().await.unwrap();
    let kept = format!("UPDATE policies SET document = '{jobs}' WHERE name = 'jobs'");
    database.execute(sqlx::AssertSqlSafe(kept)).await.unwrap();
    let (mut follower, _) = stage.follower();
    let news = follower.poll(NOW).await.unwrap().expect("it is all new");
    assert_eq!((names(&news), news.refused.as_slice()), (vec!["jobs", "orders"], &[][..]));
    let held = &news.changed[0];
    assert_eq!((held.matcher(), held.overflow()), (None, &sluicegate_policy::Overflow::Reject));
    // Its author gets the error with the next change.
    let document = serde_json::from_str(jobs).unwrap();
    let at = PolicyAt::new("shop", "jobs", 1);
    let error = stage.catalog.change_policy(&by(), &at, &document).await.unwrap_err();
    assert!(format!("{error:?}").contains("/document/overflow"), "{error:?}");
}

#[tokio::test]
async fn another_catalog_is_taken_over_whole_whatever_its_revision() {
    let stage = Stage::set().await;
    stage.policy("a", PolicyState::Active).await;
    let other = Stage::set().await;
    for name in ["b", "c"] {
        other.policy(name, PolicyState::Active).await;
    }
    let (one, another) = (stage.catalog.id().await.unwrap(), other.catalog.id().await.unwrap());
    assert_eq!((one.len(), one == another), (36, false));
    assert_eq!(Catalog::open(&url(&stage.dir)).await.unwrap().id().await.unwrap(), one);
    let (mut follower, _) = stage.follower();
    follower.poll(NOW).await.unwrap();
    assert_eq!(follower.held().catalog(), one);
    follower.held().write_in_background(&stage.copy()).await.unwrap();

    // The database is another one from one look to the next, with a later revision.
    let Url::Sqlite(database) = url(&stage.dir) else { panic!("it is a file") };
    let mut database = database.connect().await.unwrap();
    let other = format!("UPDATE head SET id_text = '{another}', revision = 7");
    database.execute(sqlx::AssertSqlSafe(other)).await.unwrap();
    database.execute("UPDATE policies SET state = 'deleted'").await.unwrap();
    let news = follower.poll(NOW).await.unwrap();
    assert!(news.is_some_and(|news| news.gone == ["a"]), "although it is of revision 1");
    assert_eq!(follower.held().catalog(), another);
    // What was kept is of a catalog that is not there any more.
    let refused = follower.restore().unwrap_err().to_string();
    assert!(refused.contains("it belongs to another catalog"), "{refused}");
    fs::remove_file(stage.kept()).unwrap();
    assert!(follower.restore().unwrap().is_empty(), "where no file is, nothing is");
    assert_eq!((follower.held().catalog(), follower.held().revision()), (&*another, 7));
}

#[tokio::test]
async fn files_of_those_who_were_killed_while_they_wrote_are_removed() {
    let stage = Stage::set().await;
    stage.policy("a", PolicyState::Active).await;
    let left = stage.dir.path().join("held.json.0198c0de000040008000000000000000.new");
    let (mine, dir) = (stage.dir.path().join("held.json.notes.new"), stage.dir.path());
    fs::write(&left, "half").unwrap();
    fs::write(&mine, "notes").unwrap();
    let (mut follower, _) = stage.follower();
    assert!(!left.exists() && mine.exists());
    follower.poll(NOW).await.unwrap();
    follower.held().write_in_background(&stage.copy()).await.unwrap();
    let news = fs::read_dir(dir).unwrap().flatten();
    let news = news.filter(|entry| entry.path().extension().is_some_and(|end| end == "new"));
    assert_eq!(news.count(), 1, "only the one that is somebody else's");
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_made_anew_by_no_connection() {
    let stage = Stage::set().await;
    stage.policy("a", PolicyState::Active).await;
    let path = url(&stage.dir).file().unwrap();
    let away = path.with_extension("away");
    fs::rename(&path, &away).unwrap();
    let error = Catalog::open_existing(&url(&stage.dir)).await.unwrap_err().to_string();
    assert!(error.contains("there is no such file"), "{error}");
    assert!(Catalog::join(&url(&stage.dir)).await.is_err());
    assert!(!path.exists());
    fs::rename(&away, &path).unwrap();
    let (mut follower, _) = stage.follower();
    assert_eq!(names(&follower.poll(NOW).await.unwrap().unwrap()), ["a"]);
}
