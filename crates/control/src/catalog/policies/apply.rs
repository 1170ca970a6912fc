//! Replacement of the policies of an app by those of a document, all or none: the document is the truth.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sluicegate_policy::Policy;
use utoipa::ToSchema;

use super::document::{canonical, read};
use super::{Diff, PolicyState, PolicyTarget, PolicyView, changes, create, rewrite};
use crate::access::Action;
use crate::catalog::apps::locked;
use crate::catalog::change::{Change, begin, is_version};
use crate::catalog::{Catalog, ChangeContext};
use crate::error::{Error, PlacedFinding};
use sluicegate_policy::finding;

/// A policy that an app should have.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Wanted {
    /// The policy, as in `policies[]` of a policy document.
    pub document: Json,
    /// The state; default: the current state, or `active` for a new policy.
    pub state: Option<PolicyState>,
}

/// The result for one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppliedPolicy)]
pub struct Applied {
    /// Name of the policy.
    pub policy: String,
    /// `create`, `update`, `delete` or `keep`.
    pub action: String,
    /// Its state afterwards.
    pub state: PolicyState,
    /// Its version afterwards.
    pub version: i64,
    /// Differences in its document.
    pub changes: Vec<Diff>,
}

/// The result for the policies of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Applied)]
pub struct AppliedAll {
    /// Revision of the app's policies; send it in `If-Match` to apply exactly what a dry run
    /// showed, or to fail if the policies have changed since.
    pub version: i64,
    /// The result for each policy.
    pub policies: Vec<Applied>,
}

impl Catalog {
    /// Replaces the policies of `app` by `wanted`: others are deleted. With a `version`, only if they are still
    /// at it.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the place of each that is invalid or has another app's name,
    /// [`Error::Warned`], [`Error::Stale`]. Then nothing has changed.
    pub async fn apply(
        &self,
        by: &ChangeContext,
        app: &str,
        wanted: &[Wanted],
        version: Option<i64>,
    ) -> Result<AppliedAll, Error> {
        // Parsed before the lock, for which others wait.
        let named = named(wanted)?;
        let mut change = begin!(self, by);
        locked(&mut change, app).await?;
        let AppPolicies { version: found, mut policies } =
            AppPolicies::read(&mut change, app).await?;
        is_version(version.unwrap_or(found), found)?;
        // Deleted first, so that there is room for others.
        let unwanted = policies.extract_if(.., |name, _| !named.contains_key(name)).collect();
        let mut applied = delete_all(&mut change, unwanted).await?;
        let (mut wrong, mut warnings) = (Vec::new(), Vec::new());
        if named.is_empty() && !applied.is_empty() {
            let count = applied.len();
            let all = finding!(
                "deletes_all",
                "no policies: all {count} of the app would be deleted",
                count
            );
            warnings.push(PlacedFinding::new("", all));
        }
        for (name, item) in &named {
            let place = item.place;
            match apply_one(&mut change, app, item, policies.remove(name)).await {
                Ok(one) => applied.push(one),
                Err(Error::Invalid(errors)) => wrong.extend(inside(place, errors)),
                Err(Error::Taken) => {
                    let pointer = format!("/policies/{place}/document/name");
                    let taken = finding!(
                        "name_of_other_app",
                        "`{name}` is already the name of another app's policy",
                        name
                    );
                    wrong.push(PlacedFinding::new(pointer, taken));
                }
                Err(Error::Warned(of)) => {
                    warnings.extend(inside(place, of));
                }
                Err(error) => return Err(error),
            }
        }
        if !wrong.is_empty() {
            return Err(Error::Invalid(wrong));
        }
        change.warn(warnings)?;
        applied.sort_by(|one, other| one.policy.cmp(&other.policy));
        let is_kept = by.dry_run || applied.iter().all(|one| one.action == "keep");
        let version = if is_kept { found } else { change.publish() };
        change.commit(AppliedAll { version, policies: applied }).await
    }
}

/// The policies of an app, deleted ones left out, and the revision of the latest change to any.
struct AppPolicies {
    version: i64,
    policies: BTreeMap<String, PolicyView>,
}

impl AppPolicies {
    async fn read(change: &mut Change<'_>, app: &str) -> Result<Self, Error> {
        let sql = "SELECT COALESCE(MAX(revision), 0) FROM policies WHERE app = ?";
        let row = change.rows.row(sql, &[app.into()]).await?;
        let version = row.map_or(Ok(0), |row| row.get(0))?;
        let sql = policies!("app = ? AND state <> 'deleted' ORDER BY name");
        let rows = change.rows.rows(sql, &[app.into()]).await?;
        let named = |row| PolicyView::of(row).map(|view| (view.name.clone(), view));
        let policies = rows.iter().map(named).collect::<Result<_, _>>()?;
        Ok(Self { version, policies })
    }
}

async fn delete_all(
    change: &mut Change<'_>,
    policies: BTreeMap<String, PolicyView>,
) -> Result<Vec<Applied>, Error> {
    let mut applied = Vec::new();
    for before in policies.into_values() {
        let document = before.document.clone();
        let to = PolicyTarget {
            document: &document,
            state: PolicyState::Deleted,
            policy: None,
            key: None,
        };
        let view = rewrite(change, Action::DeletePolicy, before, &to).await?;
        applied.push(Applied::of("delete", &view, changes(&document, &Json::Null)));
    }
    Ok(applied)
}

/// Creates, updates or keeps one policy.
async fn apply_one(
    change: &mut Change<'_>,
    app: &str,
    item: &WantedPolicy<'_>,
    before: Option<PolicyView>,
) -> Result<Applied, Error> {
    let WantedPolicy { wanted, policy, .. } = item;
    let state = wanted.state.or_else(|| before.as_ref().map(|view| view.state));
    let state = state.unwrap_or(PolicyState::Active);
    let to = PolicyTarget { document: &wanted.document, state, policy: Some(policy), key: None };
    Ok(match before {
        None => {
            let view = create(change, app, &to).await?;
            Applied::of("create", &view, changes(&Json::Null, &view.document))
        }
        Some(before) if is_same(&before, &to) => Applied::of("keep", &before, Vec::new()),
        Some(before) => {
            let changes = changes(&before.document, to.document);
            let view = rewrite(change, Action::ChangePolicy, before, &to).await?;
            Applied::of("update", &view, changes)
        }
    })
}

impl Applied {
    fn of(action: &str, view: &PolicyView, changes: Vec<Diff>) -> Self {
        let PolicyView { name, state, version, .. } = view;
        let (policy, action) = (name.clone(), action.to_owned());
        Self { policy, action, state: *state, version: *version, changes }
    }
}

fn is_same(before: &PolicyView, to: &PolicyTarget<'_>) -> bool {
    before.state == to.state && canonical(&before.document) == canonical(to.document)
}

/// Returns the findings about the policy at `place`, with pointers into the whole document.
fn inside(place: usize, found: Vec<PlacedFinding>) -> impl Iterator<Item = PlacedFinding> {
    found.into_iter().map(move |found| {
        let pointer = format!("/policies/{place}{}", found.pointer);
        PlacedFinding { pointer, ..found }
    })
}

/// A wanted policy, its place, and its parsed document.
struct WantedPolicy<'w> {
    place: usize,
    wanted: &'w Wanted,
    policy: Policy,
}

/// Parses the wanted policies, by name; returns all errors at once.
fn named(wanted: &[Wanted]) -> Result<BTreeMap<String, WantedPolicy<'_>>, Error> {
    let (mut named, mut wrong) = (BTreeMap::new(), Vec::new());
    for (place, item) in wanted.iter().enumerate() {
        let at = format!("/policies/{place}");
        if item.state == Some(PolicyState::Deleted) {
            let problem = finding!(
                "state_deleted",
                "expected `active` or `shadow`; to delete a policy, omit it"
            );
            wrong.push(PlacedFinding::new(format!("{at}/state"), problem));
        }
        match read(&item.document) {
            Ok(policy) => {
                let name = policy.name().to_owned();
                let problem = finding!("duplicate_name", "duplicate name `{name}`", name);
                if named.insert(name, WantedPolicy { place, wanted: item, policy }).is_some() {
                    wrong.push(PlacedFinding::new(format!("{at}/document/name"), problem));
                }
            }
            Err(Error::Invalid(errors)) => wrong.extend(inside(place, errors)),
            Err(error) => return Err(error),
        }
    }
    if wrong.is_empty() { Ok(named) } else { Err(Error::Invalid(wrong)) }
}
