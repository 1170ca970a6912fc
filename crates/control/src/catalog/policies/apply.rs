//! The policies of an app made those of a document, all or none: what is kept with code is the truth.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::document::{canonical, read};
use super::{Diff, PolicyView, State, changes, create, rewrite};
use crate::access::Action;
use crate::catalog::apps::{is_version, locked};
use crate::catalog::change::{Change, begin};
use crate::catalog::{By, Catalog};
use crate::error::{Error, Wrong};

/// A policy that is to be.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Wanted {
    /// The policy, as in `policies[]` of a policy document.
    pub document: Json,
    /// What it is to do; what it does, or `active`, if nothing is said.
    pub state: Option<State>,
}

/// What was done to a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = AppliedPolicy)]
pub struct Applied {
    /// Which.
    pub policy: String,
    /// `create`, `update`, `delete` or `keep`.
    pub action: String,
    /// What it does from now on.
    pub state: State,
    /// Its version from now on.
    pub version: i64,
    /// What is otherwise in its document.
    pub changes: Vec<Diff>,
}

/// What was done to the policies of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Applied)]
pub struct AppliedAll {
    /// Counts the changes of the app's policies: what `If-Match` names to have applied what was shown,
    /// or nothing if they were changed meanwhile.
    pub version: i64,
    /// What was done to each.
    pub policies: Vec<Applied>,
}

impl Catalog {
    /// Makes the policies of `app` those that are `wanted`: others are deleted. With a `version` only
    /// if they are as they were then.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the place of each that makes no sense or has another app's name,
    /// [`Error::Warned`], [`Error::Stale`]. Then nothing has changed.
    pub async fn apply(
        &self,
        by: &By,
        app: &str,
        wanted: &[Wanted],
        version: Option<i64>,
    ) -> Result<AppliedAll, Error> {
        let mut change = begin!(self, by);
        locked(&mut change, app).await?;
        let named = named(wanted)?;
        let there = Found::read(&mut change, app).await?;
        let Found { version: found, mut policies } = there;
        is_version(version.unwrap_or(found), found)?;
        let mut applied = Vec::new();
        let (mut wrong, mut warnings) = (Vec::new(), Vec::new());
        for (name, (place, wanted)) in &named {
            match apply_one(&mut change, app, wanted, policies.remove(name)).await {
                Ok(one) => applied.push(one),
                Err(Error::Invalid(errors)) => wrong.extend(inside(*place, errors)),
                Err(Error::Taken) => {
                    let pointer = format!("/policies/{place}/document/name");
                    let problem = format!("`{name}` is the name of another app's policy");
                    wrong.push(Wrong { pointer, problem });
                }
                Err(Error::Warned(of)) => {
                    warnings.extend(of.into_iter().map(|warning| format!("`{name}`: {warning}")));
                }
                Err(error) => return Err(error),
            }
        }
        if !wrong.is_empty() {
            return Err(Error::Invalid(wrong));
        }
        change.warn(warnings)?;
        for before in policies.into_values() {
            let document = before.document.clone();
            let to = (&document, State::Deleted);
            let view = rewrite(&mut change, Action::DeletePolicy, before, to).await?;
            applied.push(Applied::of("delete", &view, changes(&document, &Json::Null)));
        }
        applied.sort_by(|one, other| one.policy.cmp(&other.policy));
        let is_kept = by.dry_run || applied.iter().all(|one| one.action == "keep");
        let version = if is_kept { found } else { change.publish() };
        change.commit(AppliedAll { version, policies: applied }).await
    }
}

/// The policies of an app, deleted ones left out, and the revision of the latest change to any.
struct Found {
    version: i64,
    policies: BTreeMap<String, PolicyView>,
}

impl Found {
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

/// Makes one policy what is wanted.
async fn apply_one(
    change: &mut Change<'_>,
    app: &str,
    wanted: &Wanted,
    before: Option<PolicyView>,
) -> Result<Applied, Error> {
    let state = wanted.state.or_else(|| before.as_ref().map(|view| view.state));
    let to = (&wanted.document, state.unwrap_or(State::Active));
    Ok(match before {
        None => {
            let view = create(change, app, to.0, to.1).await?;
            Applied::of("create", &view, changes(&Json::Null, &view.document))
        }
        Some(before) if is_same(&before, to) => Applied::of("keep", &before, Vec::new()),
        Some(before) => {
            let changes = changes(&before.document, to.0);
            let view = rewrite(change, Action::ChangePolicy, before, to).await?;
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

fn is_same(before: &PolicyView, (document, state): (&Json, State)) -> bool {
    before.state == state && canonical(&before.document) == canonical(document)
}

/// What is wrong with the policy at `place`, with pointers into the whole.
fn inside(place: usize, errors: Vec<Wrong>) -> impl Iterator<Item = Wrong> {
    let inside = move |Wrong { pointer, problem }| {
        let pointer = format!("/policies/{place}{pointer}");
        Wrong { pointer, problem }
    };
    errors.into_iter().map(inside)
}

/// What is wanted by name, each with its place; all that is wrong with it at once.
fn named(wanted: &[Wanted]) -> Result<BTreeMap<String, (usize, &Wanted)>, Error> {
    let (mut named, mut wrong) = (BTreeMap::new(), Vec::new());
    for (place, item) in wanted.iter().enumerate() {
        let at = format!("/policies/{place}");
        if item.state == Some(State::Deleted) {
            let problem = "expected `active` or `shadow`: what is not wanted is left out";
            let (pointer, problem) = (format!("{at}/state"), problem.to_owned());
            wrong.push(Wrong { pointer, problem });
        }
        match read(&item.document) {
            Ok(policy) => {
                if named.insert(policy.name().to_owned(), (place, item)).is_some() {
                    let problem = format!("`{}` is the name of an earlier one too", policy.name());
                    wrong.push(Wrong { pointer: format!("{at}/document/name"), problem });
                }
            }
            Err(Error::Invalid(errors)) => wrong.extend(inside(place, errors)),
            Err(error) => return Err(error),
        }
    }
    if wrong.is_empty() { Ok(named) } else { Err(Error::Invalid(wrong)) }
}
