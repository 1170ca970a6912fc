//! The policies of an app made those of a document, all or none: what is kept with code is the truth.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::document::{canonical, read};
use super::{Diff, PolicyView, State, changes, create, rewrite};
use crate::access::Action;
use crate::catalog::apps::locked;
use crate::catalog::change::begin;
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

impl Catalog {
    /// Makes the policies of `app` those that are `wanted`: others are deleted.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the place of each that makes no sense, [`Error::Taken`],
    /// [`Error::Warned`]. Then nothing has changed.
    pub async fn apply(
        &self,
        by: &By,
        app: &str,
        wanted: &[Wanted],
    ) -> Result<Vec<Applied>, Error> {
        let mut change = begin!(self, by);
        locked(&mut change, app).await?;
        let named = named(wanted)?;
        let sql = policies!("app = ? ORDER BY name");
        let rows = change.rows.rows(sql, &[app.into()]).await?;
        let mut there = BTreeMap::new();
        for row in &rows {
            let view = PolicyView::of(row)?;
            if view.state != State::Deleted {
                there.insert(view.name.clone(), view);
            }
        }
        let mut applied = Vec::new();
        for (name, wanted) in &named {
            let before = there.remove(name);
            let state = wanted.state.or_else(|| before.as_ref().map(|view| view.state));
            let to = (&wanted.document, state.unwrap_or(State::Active));
            applied.push(match before {
                None => {
                    let view = create(&mut change, app, to.0, to.1).await?;
                    Applied::of("create", &view, changes(&Json::Null, &view.document))
                }
                Some(before) if is_same(&before, to) => Applied::of("keep", &before, Vec::new()),
                Some(before) => {
                    let changes = changes(&before.document, to.0);
                    let view = rewrite(&mut change, Action::ChangePolicy, before, to).await?;
                    Applied::of("update", &view, changes)
                }
            });
        }
        for (_, before) in there {
            let document = before.document.clone();
            let to = (&document, State::Deleted);
            let view = rewrite(&mut change, Action::DeletePolicy, before, to).await?;
            applied.push(Applied::of("delete", &view, changes(&document, &Json::Null)));
        }
        applied.sort_by(|one, other| one.policy.cmp(&other.policy));
        change.commit(applied).await
    }
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

/// What is wanted by name; all that is wrong with it at once.
fn named(wanted: &[Wanted]) -> Result<BTreeMap<String, &Wanted>, Error> {
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
                if named.insert(policy.name().to_owned(), item).is_some() {
                    let problem = format!("`{}` is the name of an earlier one too", policy.name());
                    wrong.push(Wrong { pointer: format!("{at}/document/name"), problem });
                }
            }
            Err(Error::Invalid(errors)) => {
                let inside = |Wrong { pointer, problem }| Wrong {
                    pointer: format!("{at}{pointer}"),
                    problem,
                };
                wrong.extend(errors.into_iter().map(inside));
            }
            Err(error) => return Err(error),
        }
    }
    if wrong.is_empty() { Ok(named) } else { Err(Error::Invalid(wrong)) }
}
