//! Who signs in elsewhere: which account is theirs, and what their groups give them.
//!
//! An account is theirs by its subject alone, which they cannot choose: not by its name, nor by an
//! address of mail, which they may. All that a sign-in changes is one change with its entries in the
//! audit, and a sign-in changes something once.

use std::collections::BTreeMap;

use super::accounts::{accounts, insert, somebody_else_is_admin};
use super::apps::{locked, put_member, role};
use super::change::{Change, ChangeStart};
use super::{AccountView, Catalog, ChangeContext, NewAccount, NewSession, sessions};
use crate::access::{AccessDenied, Action, Role};
use crate::audit::AuditTarget;
use crate::error::Error;
use sluicegate_policy::finding;

/// Who signed in elsewhere, and what the provider says of them.
#[derive(Clone, Copy, Debug)]
pub struct ExternalIdentity<'e> {
    /// Issuer and subject: `https://id.example.org|1234`.
    pub subject: &'e str,
    /// What their account is to be called, if there is none yet; none: none is made.
    pub name: Option<&'e str>,
    /// Whether they are an administrator; none: that is not for the provider to say.
    pub is_admin: Option<bool>,
    /// Their role in each app of which the provider says; none: they have none there.
    pub roles: &'e BTreeMap<String, Option<Role>>,
}

impl Catalog {
    /// Notes that somebody signed in elsewhere, gives them what the provider says, and begins their
    /// session: all of it or nothing. `by` names the sign-in, which is used once.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such account and none is to be made, [`Error::Denied`] if it
    /// may not sign in, [`Error::Taken`] if the name is another one's, [`Error::Invalid`] if it is none,
    /// [`Error::Conflict`] if the sign-in was used or this would be the first account and not be an
    /// administrator's, [`Error::TooMany`].
    pub async fn sign_in_elsewhere(
        &self,
        by: &ChangeContext,
        who: ExternalIdentity<'_>,
        session: NewSession<'_>,
    ) -> Result<(), Error> {
        let mut change = match self.begin::<()>(by).await? {
            ChangeStart::Change(change) => change,
            ChangeStart::Answered(()) => {
                return Err(Error::Conflict(finding!(
                    "sign_in_used",
                    "this sign-in was already used"
                )));
            }
        };
        let account = account(&mut change, &who).await?;
        if let Some(is_admin) = who.is_admin {
            set_admin(&mut change, &account, is_admin).await?;
        }
        set_roles(&mut change, &account, who.roles).await?;
        sessions::begin(&mut change, &account.id, session).await?;
        change.audit(Action::SignInElsewhere, AuditTarget::alone(&account.name), None, None);
        change.commit(()).await
    }
}

/// Theirs, or one that is made for them.
async fn account(
    change: &mut Change<'_>,
    who: &ExternalIdentity<'_>,
) -> Result<AccountView, Error> {
    let known = accounts!("subject = ?");
    if let Some(row) = change.rows.row(known, &[who.subject.into()]).await? {
        let account = AccountView::of(&row)?;
        return if account.is_disabled { Err(AccessDenied::Forbidden.into()) } else { Ok(account) };
    }
    let name = who.name.ok_or(Error::NotFound("account"))?;
    let sql = "SELECT id FROM accounts WHERE name = ?";
    if change.rows.row(sql, &[name.into()]).await?.is_some() {
        return Err(Error::Taken);
    }
    let somebody = change.rows.row("SELECT id FROM accounts LIMIT 1", &[]).await?;
    if somebody.is_none() && who.is_admin != Some(true) {
        // There would be accounts, so that nobody could be made an administrator any more.
        let problem =
            finding!("no_admin_yet", "no accounts yet: the first account must be an administrator");
        return Err(Error::Conflict(problem));
    }
    let new = NewAccount { name, password_hash: None, subject: Some(who.subject), is_admin: false };
    insert(change, Action::CreateAccount, new).await
}

/// Makes them an administrator or not. The last one stays one: nobody could name another.
async fn set_admin(
    change: &mut Change<'_>,
    account: &AccountView,
    is_admin: bool,
) -> Result<(), Error> {
    if account.is_admin == is_admin {
        return Ok(());
    }
    if !is_admin && let Err(error) = somebody_else_is_admin(change, account).await {
        let Error::Conflict(problem) = error else { return Err(error) };
        tracing::warn!("the account `{}` stays an administrator: {problem}", account.name);
        return Ok(());
    }
    let sql = "UPDATE accounts SET is_admin = ?, version = version + 1 WHERE id = ?";
    change.rows.run(sql, &[is_admin.into(), (&account.id).into()]).await?;
    let after = AccountView { is_admin, ..account.clone() };
    let (before, after) = (account.audit_text(false), after.audit_text(false));
    change.audit(
        Action::ChangeAccount,
        AuditTarget::alone(&account.name),
        Some(before),
        Some(after),
    );
    Ok(())
}

/// Gives them these roles, and none in apps where it says none. Others are left as they are.
async fn set_roles(
    change: &mut Change<'_>,
    account: &AccountView,
    roles: &BTreeMap<String, Option<Role>>,
) -> Result<(), Error> {
    if roles.is_empty() {
        return Ok(());
    }
    let sql = "SELECT app, role FROM members WHERE account = ?";
    let rows = change.rows.rows(sql, &[(&account.id).into()]).await?;
    let own = rows.iter().map(|row| Ok((row.get(0)?, role(row, 1)?)));
    let own = own.collect::<Result<BTreeMap<String, Role>, Error>>()?;
    for (app, wanted) in roles {
        if own.get(app) == wanted.as_ref() {
            continue;
        }
        let put = match locked(change, app).await {
            Ok(_) => put_member(change, app, &account.id, &account.name, *wanted).await,
            Err(error) => Err(error),
        };
        match put {
            // Who runs the server has to know; who signs in cannot help it.
            Err(Error::NotFound(_) | Error::TooMany(_)) => {
                tracing::warn!(
                    "no role granted in app `{app}`: app not found or member limit reached"
                );
            }
            put => put?,
        }
    }
    Ok(())
}
