//! Policies and their versions. Each belongs to one app, whose owners change it; its `apps` are the apps that
//! may use it. Names are unique among all.

/// The columns of a policy, in its order.
macro_rules! policies {
    ($which:literal) => {
        concat!(
            "SELECT name, app, state, version, document, created_at, created_by, updated_at, ",
            "updated_by, revision FROM policies WHERE ",
            $which
        )
    };
}

mod apply;
mod diff;
mod document;
mod limits;
mod list;
mod warnings;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use sluicegate_policy::Policy;
use sluicegate_policy::limits::POLICIES_MAX;
use utoipa::ToSchema;
use utoipa::openapi::schema::RefBuilder;
use utoipa::openapi::{RefOr, Schema};

use super::apps::locked;
use super::change::{Change, begin, is_version};
use super::policy_apps::{named_apps, write_apps};
use super::{Catalog, ChangeContext, Page};
use crate::access::Action;
use crate::audit::AuditTarget;
use crate::db::Row;
use crate::error::{Error, PlacedFinding};
use crate::limits::POLICIES_OF_APP_MAX;
use sluicegate_policy::finding;

pub use apply::{Applied, AppliedAll, Wanted};
pub use diff::{Diff, changes};
use document::{canonical, read};
pub use limits::PolicyLimit;
pub use list::{PolicyFilter, PolicySort, PolicySummaries, PolicySummary};
use warnings::warnings;

/// The state of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = State)]
pub enum PolicyState {
    /// Counts what it would refuse, refuses nothing.
    Shadow,
    /// Enforced.
    Active,
    /// Deleted.
    Deleted,
}

/// A policy, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Policy)]
pub struct PolicyView {
    /// Unique among all apps.
    pub name: String,
    /// The owning app.
    pub app: String,
    /// The state of the policy.
    pub state: PolicyState,
    /// Number of the latest change, from 1.
    pub version: i64,
    /// The policy, as in `policies[]` of a policy document.
    #[schema(schema_with = policy_schema)]
    pub document: Json,
    /// Creation time, in milliseconds since 1970.
    pub created_at: i64,
    /// Creator.
    pub created_by: String,
    /// Time of the latest change.
    pub updated_at: i64,
    /// Author of the latest change.
    pub updated_by: String,
    /// Catalog revision of the latest change: it is in force at a node that uses this revision or a later one.
    pub revision: i64,
}

/// A policy of an app, at the version that the author of a change has read, or restores.
#[derive(Clone, Copy, Debug)]
pub struct PolicyAt<'a> {
    app: &'a str,
    policy: &'a str,
    version: i64,
}

impl<'a> PolicyAt<'a> {
    /// Returns the `policy` of `app`, at `version`.
    pub const fn new(app: &'a str, policy: &'a str, version: i64) -> Self {
        Self { app, policy, version }
    }
}

/// A version of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Version)]
pub struct PolicyVersion {
    /// Version number.
    pub version: i64,
    /// The state from this version on.
    pub state: PolicyState,
    /// The policy in this version.
    #[schema(schema_with = policy_schema)]
    pub document: Json,
    /// Author of the version.
    pub author: String,
    /// The reason given.
    pub reason: String,
    /// Time, in milliseconds since 1970.
    pub at: i64,
}

const NOT_FOUND: Error = Error::NotFound("policy");

/// Name of the schema of a policy document's policy in the description of the API.
pub(crate) const POLICY_SCHEMA: &str = "Document";

/// Returns a reference to this schema.
pub(crate) fn policy_schema() -> RefOr<Schema> {
    let of_policy = RefBuilder::new().ref_location_from_schema_name(POLICY_SCHEMA);
    let what = "The policy, as in `policies[]` of a policy document.";
    of_policy.description(Some(what)).build().into()
}

impl Catalog {
    /// Returns the policies of an app by name: those in this state, or all but deleted ones.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn policies(
        &self,
        app: &str,
        state: Option<PolicyState>,
        page: &Page,
    ) -> Result<Vec<PolicyView>, Error> {
        self.app(app).await?;
        let states = match state {
            None => [PolicyState::Active, PolicyState::Shadow],
            Some(state) => [state, state],
        };
        let [one, other] = states.map(|state| state.name().into());
        let sql = policies!("app = ? AND state IN (?, ?) AND name > ? ORDER BY name LIMIT ?");
        let values =
            [app.into(), one, other, page.after().into(), page.limit_of_documents().into()];
        let rows = self.db.rows(sql, &values).await?;
        rows.iter().map(PolicyView::of).collect()
    }

    /// Returns the policy of an app with this name.
    ///
    /// # Errors
    /// [`Error::NotFound`], also if it is deleted or another app's.
    pub async fn policy(&self, app: &str, policy: &str) -> Result<PolicyView, Error> {
        let sql = policies!("app = ? AND name = ? AND state <> 'deleted'");
        let row = self.db.row(sql, &[app.into(), policy.into()]).await?;
        PolicyView::of(&row.ok_or(NOT_FOUND)?)
    }

    /// Returns the versions of a policy of an app, deleted or not, the newest first.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`] for an invalid cursor.
    pub async fn policy_versions(
        &self,
        app: &str,
        policy: &str,
        page: &Page,
    ) -> Result<Vec<PolicyVersion>, Error> {
        let before = page.after.as_deref().map_or(Ok(i64::MAX), str::parse);
        let before = before
            .map_err(|_| Error::invalid("/after", finding!("bad_cursor", "invalid cursor")))?;
        let sql = "SELECT v.version, v.state, v.document, v.author, v.reason, v.at \
                   FROM policy_versions v JOIN policies p ON p.name = v.policy \
                   WHERE p.app = ? AND p.name = ? AND v.version < ? \
                   ORDER BY v.version DESC LIMIT ?";
        let limit = page.limit_of_documents().into();
        let values = [app.into(), policy.into(), before.into(), limit];
        let rows = self.db.rows(sql, &values).await?;
        if rows.is_empty() && page.after.is_none() {
            return Err(NOT_FOUND);
        }
        rows.iter().map(PolicyVersion::of).collect()
    }

    /// Returns one version of a policy of an app.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn policy_version(
        &self,
        app: &str,
        policy: &str,
        version: i64,
    ) -> Result<PolicyVersion, Error> {
        let sql = "SELECT v.version, v.state, v.document, v.author, v.reason, v.at \
                   FROM policy_versions v JOIN policies p ON p.name = v.policy \
                   WHERE p.app = ? AND p.name = ? AND v.version = ?";
        let row = self.db.row(sql, &[app.into(), policy.into(), version.into()]).await?;
        PolicyVersion::of(&row.ok_or(Error::NotFound("version"))?)
    }

    /// Creates a policy of an app, which is enforced at once or in shadow mode.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Taken`], [`Error::Warned`], [`Error::TooMany`].
    pub async fn create_policy(
        &self,
        by: &ChangeContext,
        app: &str,
        document: &Json,
        state: PolicyState,
    ) -> Result<PolicyView, Error> {
        // Parsed before the lock, for which others wait.
        let policy = read(document)?;
        let mut change = begin!(self, by);
        locked(&mut change, app).await?;
        let made = create(
            &mut change,
            app,
            &PolicyTarget { document, state, policy: Some(&policy), key: None },
        )
        .await?;
        change.commit(made).await
    }

    /// Returns the current policy of `app` that `document` would replace (none: it would be new), and the
    /// warnings about the change. Changes nothing, and takes no lock.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Taken`].
    pub async fn judge_policy(
        &self,
        app: &str,
        document: &Json,
        state: Option<PolicyState>,
    ) -> Result<(Option<PolicyView>, Vec<PlacedFinding>), Error> {
        let policy = read(document)?;
        self.app(app).await?;
        let row = self.db.row(policies!("name = ?"), &[policy.name().into()]).await?;
        let before = row.map(|row| PolicyView::of(&row)).transpose()?;
        if before.as_ref().is_some_and(|before| before.app != app) {
            return Err(Error::Taken);
        }
        let before = before.filter(|before| before.state != PolicyState::Deleted);
        for named in policy.named_apps() {
            match self.app(named).await {
                Err(Error::NotFound(_)) => return Err(no_app(document, named)),
                found => found?,
            };
        }
        let was = before.as_ref().filter(|before| before.state == PolicyState::Active);
        let was = was.and_then(|before| read(&before.document).ok());
        let state = before.as_ref().map_or(state, |before| Some(before.state));
        let warnings = warnings(app, was.as_ref(), &policy, state.unwrap_or(PolicyState::Active));
        Ok((before, warnings))
    }

    /// Replaces the document of a policy, if it is still at the version that its author has read.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotFound`], [`Error::Stale`], [`Error::Warned`].
    pub async fn change_policy(
        &self,
        by: &ChangeContext,
        at: &PolicyAt<'_>,
        document: &Json,
    ) -> Result<PolicyView, Error> {
        let read = read(document)?;
        let mut change = begin!(self, by);
        let before = find(&mut change, at).await?;
        let to = PolicyTarget { document, state: before.state, policy: Some(&read), key: None };
        let after = rewrite(&mut change, Action::ChangePolicy, before, &to).await?;
        change.commit(after).await
    }

    /// Changes the document of a policy to one that has rules for `key`, until an instant. The audit names the key.
    ///
    /// # Errors
    /// As [`change_policy`](Self::change_policy).
    pub async fn boost_key(
        &self,
        by: &ChangeContext,
        at: &PolicyAt<'_>,
        key: &str,
        document: &Json,
    ) -> Result<PolicyView, Error> {
        let read = read(document)?;
        let mut change = begin!(self, by);
        let before = find(&mut change, at).await?;
        let to =
            PolicyTarget { document, state: before.state, policy: Some(&read), key: Some(key) };
        let after = rewrite(&mut change, Action::BoostKey, before, &to).await?;
        change.commit(after).await
    }

    /// Sets the state of a policy: enforced, in shadow mode, or deleted.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`], [`Error::Warned`].
    pub async fn set_policy_state(
        &self,
        by: &ChangeContext,
        at: &PolicyAt<'_>,
        state: PolicyState,
    ) -> Result<PolicyView, Error> {
        let mut change = begin!(self, by);
        let before = find(&mut change, at).await?;
        let action = match state {
            PolicyState::Active => Action::ActivatePolicy,
            PolicyState::Shadow => Action::ShadowPolicy,
            PolicyState::Deleted => Action::DeletePolicy,
        };
        let document = before.document.clone();
        // A policy that refuses nothing is not validated again: an app that it names may be gone.
        let policy = (state == PolicyState::Active).then(|| read(&document)).transpose()?;
        let to = PolicyTarget { document: &document, state, policy: policy.as_ref(), key: None };
        let after = rewrite(&mut change, action, before, &to).await?;
        change.commit(after).await
    }

    /// Restores the document of a policy from an earlier version, as a new version. The state stays as it is.
    /// For a policy that was deleted there is [`restore_policy`](Self::restore_policy).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`], [`Error::Warned`].
    pub async fn roll_back_policy(
        &self,
        by: &ChangeContext,
        at: &PolicyAt<'_>,
        to: i64,
    ) -> Result<PolicyView, Error> {
        let mut change = begin!(self, by);
        let before = find(&mut change, at).await?;
        let to = version_of(&mut change, at.policy, to).await?;
        let policy = read(&to.document)?;
        let to = PolicyTarget {
            document: &to.document,
            state: before.state,
            policy: Some(&policy),
            key: None,
        };
        let after = rewrite(&mut change, Action::RollBackPolicy, before, &to).await?;
        change.commit(after).await
    }

    /// Restores a deleted policy of an app from the version in `at`, as a new version in this state.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Taken`] if it is not deleted, [`Error::Warned`], [`Error::TooMany`].
    pub async fn restore_policy(
        &self,
        by: &ChangeContext,
        at: &PolicyAt<'_>,
        state: PolicyState,
    ) -> Result<PolicyView, Error> {
        let PolicyAt { app, policy, version } = *at;
        let mut change = begin!(self, by);
        locked(&mut change, app).await?;
        let row = change.rows.row(policies!("name = ?"), &[policy.into()]).await?;
        let before = PolicyView::of(&row.ok_or(NOT_FOUND)?)?;
        if before.app != app {
            return Err(NOT_FOUND);
        }
        if before.state != PolicyState::Deleted {
            return Err(Error::Taken);
        }
        let to = version_of(&mut change, policy, version).await?;
        let read = read(&to.document)?;
        take_place(&mut change, app).await?;
        let to = PolicyTarget { document: &to.document, state, policy: Some(&read), key: None };
        let after = rewrite(&mut change, Action::RestorePolicy, before, &to).await?;
        change.commit(after).await
    }

    /// Deletes a policy. Its name stays its app's, and its versions can be read.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Stale`].
    pub async fn delete_policy(&self, by: &ChangeContext, at: &PolicyAt<'_>) -> Result<(), Error> {
        self.set_policy_state(by, at, PolicyState::Deleted).await.map(drop)
    }
}

/// Returns a policy at this version.
async fn version_of(
    change: &mut Change<'_>,
    policy: &str,
    version: i64,
) -> Result<PolicyVersion, Error> {
    let sql = "SELECT version, state, document, author, reason, at FROM policy_versions \
               WHERE policy = ? AND version = ?";
    let row = change.rows.row(sql, &[policy.into(), version.into()]).await?;
    PolicyVersion::of(&row.ok_or(Error::NotFound("version"))?)
}

/// The content that a policy should have.
struct PolicyTarget<'t> {
    document: &'t Json,
    state: PolicyState,
    /// The parsed document; none: it is the same as before, and refuses nothing.
    policy: Option<&'t Policy>,
    /// The key that the change is for; none: it is for all.
    key: Option<&'t str>,
}

/// Creates an active policy of an app, also from a deleted one of this app and name.
pub(super) async fn add_policy(
    change: &mut Change<'_>,
    app: &str,
    document: &Json,
) -> Result<PolicyView, Error> {
    let policy = read(document)?;
    let state = PolicyState::Active;
    create(change, app, &PolicyTarget { document, state, policy: Some(&policy), key: None }).await
}

async fn create(
    change: &mut Change<'_>,
    app: &str,
    to: &PolicyTarget<'_>,
) -> Result<PolicyView, Error> {
    let PolicyTarget { document, state, policy, key: _ } = *to;
    let policy = policy.expect("what is new was read");
    let before = change.rows.row(policies!("name = ?"), &[policy.name().into()]).await?;
    let before = before.map(|row| PolicyView::of(&row)).transpose()?;
    if let Some(before) = before {
        if before.state != PolicyState::Deleted || before.app != app {
            return Err(Error::Taken);
        }
        take_place(change, app).await?;
        return rewrite(change, Action::CreatePolicy, before, to).await;
    }
    take_place(change, app).await?;
    apps_exist(change, policy, document).await?;
    change.warn(warnings(app, None, policy, state))?;
    let author = change.author().to_owned();
    let made = PolicyView {
        name: policy.name().to_owned(),
        app: app.to_owned(),
        state,
        version: 1,
        document: document.clone(),
        created_at: change.by.at,
        created_by: author.clone(),
        updated_at: change.by.at,
        updated_by: author,
        revision: change.publish(),
    };
    let new = write(change, &made).await?;
    change.audit(Action::CreatePolicy, AuditTarget::of(app, &made.name), None, Some(new));
    Ok(made)
}

/// Writes the next version of a policy.
async fn rewrite(
    change: &mut Change<'_>,
    action: Action,
    before: PolicyView,
    to: &PolicyTarget<'_>,
) -> Result<PolicyView, Error> {
    let PolicyTarget { document, state, policy, key } = *to;
    if let Some(policy) = policy {
        if policy.name() != before.name {
            let problem = finding!(
                "name_fixed",
                "expected `{name}`: the name of a policy cannot change",
                name = before.name
            );
            return Err(Error::invalid("/document/name", problem));
        }
        apps_exist(change, policy, document).await?;
        let was = read(&before.document).ok().filter(|_| before.state == PolicyState::Active);
        change.warn(warnings(&before.app, was.as_ref(), policy, state))?;
    }
    let old = audit_text(before.state, before.version, &canonical(&before.document));
    let after = PolicyView {
        state,
        version: before.version + 1,
        document: document.clone(),
        updated_at: change.by.at,
        updated_by: change.author().to_owned(),
        revision: change.publish(),
        ..before
    };
    let new = write(change, &after).await?;
    let new = match key {
        Some(key) => with_key(&new, key),
        None => new,
    };
    let target = AuditTarget::of(&after.app, &after.name);
    change.audit(action, target, Some(old), Some(new));
    Ok(after)
}

/// Writes a policy, the apps that it names and its version, and returns its text for the audit. All
/// changes of policies come here, so none omits one of the three.
async fn write(change: &mut Change<'_>, view: &PolicyView) -> Result<String, Error> {
    let text = canonical(&view.document);
    let (revision, state) = (view.revision.into(), view.state.name().into());
    let (version, document) = (view.version.into(), (&text).into());
    let (at, author) = (view.updated_at.into(), (&view.updated_by).into());
    let name = (&view.name).into();
    if view.version == 1 {
        let sql = "INSERT INTO policies (name, app, state, version, revision, document, \
                   created_at, created_by, updated_at, updated_by) \
                   VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let (app, made_at) = ((&view.app).into(), view.created_at.into());
        let made_by = (&view.created_by).into();
        let values = [name, app, state, version, revision, document, made_at, made_by, at, author];
        change.rows.run(sql, &values).await?;
    } else {
        let sql = "UPDATE policies SET state = ?, version = ?, revision = ?, document = ?, \
                   updated_at = ?, updated_by = ? WHERE name = ?";
        let values = [state, version, revision, document, at, author, name];
        change.rows.run(sql, &values).await?;
    }
    let is_deleted = view.state == PolicyState::Deleted;
    let apps = if is_deleted { BTreeSet::new() } else { named_apps(&view.document) };
    write_apps(&mut change.rows, &view.name, &apps).await?;
    keep_version(change, view, &text).await?;
    Ok(audit_text(view.state, view.version, &text))
}

async fn keep_version(change: &mut Change<'_>, view: &PolicyView, text: &str) -> Result<(), Error> {
    let sql = "INSERT INTO policy_versions (policy, version, state, document, author, reason, at) \
               VALUES (?, ?, ?, ?, ?, ?, ?)";
    let values = [
        (&view.name).into(),
        view.version.into(),
        view.state.name().into(),
        text.into(),
        (&view.updated_by).into(),
        (&change.by.reason).into(),
        view.updated_at.into(),
    ];
    change.rows.run(sql, &values).await?;
    let old = [(&view.name).into(), (view.version - change.versions).into()];
    let sql = "DELETE FROM policy_versions WHERE policy = ? AND version <= ?";
    change.rows.run(sql, &old).await?;
    Ok(())
}

/// Returns the policy within a change, if it is still at that version.
async fn find(change: &mut Change<'_>, at: &PolicyAt<'_>) -> Result<PolicyView, Error> {
    let sql = policies!("app = ? AND name = ? AND state <> 'deleted'");
    let row = change.rows.row(sql, &[at.app.into(), at.policy.into()]).await?;
    let view = PolicyView::of(&row.ok_or(NOT_FOUND)?)?;
    is_version(at.version, view.version)?;
    Ok(view)
}

/// Checks that each app that may use the policy exists: a typing mistake would lock one out.
async fn apps_exist(
    change: &mut Change<'_>,
    policy: &Policy,
    document: &Json,
) -> Result<(), Error> {
    for app in policy.named_apps() {
        if change.apps.contains(app) {
            continue;
        }
        let row = change.rows.row("SELECT name FROM apps WHERE name = ?", &[app.into()]).await?;
        if row.is_none() {
            return Err(no_app(document, app));
        }
        change.apps.insert(app.to_owned());
    }
    Ok(())
}

/// Returns the error that the `app` in `document` does not exist.
fn no_app(document: &Json, app: &str) -> Error {
    let apps = document["apps"].as_array();
    let place =
        apps.and_then(|apps| apps.iter().position(|named| named == app)).unwrap_or_default();
    Error::invalid(
        &format!("/document/apps/{place}"),
        finding!("app_not_found", "app `{app}` not found", app),
    )
}

/// Checks that `app` may have one policy more. They are counted once in a change.
async fn take_place(change: &mut Change<'_>, app: &str) -> Result<(), Error> {
    let (all, of_app) = match change.policies {
        Some(counted) => counted,
        None => count(change, app).await?,
    };
    if all >= POLICIES_MAX {
        return Err(Error::TooMany(format!("{POLICIES_MAX} policies")));
    }
    if of_app >= POLICIES_OF_APP_MAX {
        return Err(Error::TooMany(format!("{POLICIES_OF_APP_MAX} policies of this app")));
    }
    change.policies = Some((all + 1, of_app + 1));
    Ok(())
}

async fn count(change: &mut Change<'_>, app: &str) -> Result<(usize, usize), Error> {
    let all = "SELECT COUNT(*) FROM policies WHERE state <> 'deleted'";
    let all = change.rows.row(all, &[]).await?;
    let of_app = "SELECT COUNT(*) FROM policies WHERE app = ? AND state <> 'deleted'";
    let of_app = change.rows.row(of_app, &[app.into()]).await?;
    let count = |row: Option<Row>| {
        let count = row.map_or(Ok(0), |row| row.get::<i64>(0))?;
        usize::try_from(count).map_err(|_| Error::Damaged("negative count".to_owned()))
    };
    Ok((count(all)?, count(of_app)?))
}

/// Returns the text of a policy for the audit: the hash identifies the document, which the version has.
fn audit_text(state: PolicyState, version: i64, document: &str) -> String {
    let hash = Sha256::digest(document.as_bytes());
    format!(r#"{{"sha256":"{hash:x}","state":"{}","version":{version}}}"#, state.name())
}

/// Returns the text of a policy for the audit, with the key that the change is for.
fn with_key(text: &str, key: &str) -> String {
    let key = serde_json::to_string(key).expect("a text is always JSON");
    format!(r#"{{"key":{key},{}"#, text.trim_start_matches('{'))
}

impl PolicyState {
    /// Returns the name in documents and requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Active => "active",
            Self::Deleted => "deleted",
        }
    }

    pub(super) fn of(row: &Row, place: usize) -> Result<Self, Error> {
        let name: String = row.get(place)?;
        let named = [Self::Shadow, Self::Active, Self::Deleted];
        let found = named.into_iter().find(|state| state.name() == name);
        found.ok_or_else(|| Error::Damaged(format!("unknown policy state `{name}`")))
    }
}

impl PolicyView {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            name: row.get(0)?,
            app: row.get(1)?,
            state: PolicyState::of(row, 2)?,
            version: row.get(3)?,
            document: json(row, 4)?,
            created_at: row.get(5)?,
            created_by: row.get(6)?,
            updated_at: row.get(7)?,
            updated_by: row.get(8)?,
            revision: row.get(9)?,
        })
    }
}

impl PolicyVersion {
    fn of(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            version: row.get(0)?,
            state: PolicyState::of(row, 1)?,
            document: json(row, 2)?,
            author: row.get(3)?,
            reason: row.get(4)?,
            at: row.get(5)?,
        })
    }
}

fn json(row: &Row, place: usize) -> Result<Json, Error> {
    let text: String = row.get(place)?;
    serde_json::from_str(&text).map_err(|_| Error::Damaged("a document is not JSON".to_owned()))
}
