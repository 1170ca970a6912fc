//! Sign-in with OpenID Connect: the account of a person, and the rights that their groups give.
//!
//! An account is found by its subject alone, which people cannot choose: not by its name, nor by an
//! e-mail address, which they may choose. A sign-in makes all its changes as one, with their audit entries, and
//! can be used once.

use std::collections::BTreeMap;

use super::accounts::{accounts, insert, somebody_else_is_admin};
use super::apps::{locked, put_member, role};
use super::change::{Change, ChangeStart};
use super::{AccountView, Catalog, ChangeContext, NewAccount, NewSession, sessions};
use crate::access::{AccessDenied, Action, Role};
use crate::audit::AuditTarget;
use crate::error::Error;
use sluicegate_policy::finding;

/// A person whom the OpenID Connect provider has identified, with its claims about them.
#[derive(Clone, Copy, Debug)]
pub struct ExternalIdentity<'e> {
    /// Issuer and subject: `https://id.example.org|1234`.
    pub subject: &'e str,
    /// Name of the account to create if they have none; none: no account is created.
    pub name: Option<&'e str>,
    /// `true` for an administrator; none: the provider does not decide it.
    pub is_admin: Option<bool>,
    /// The role in each app for which the provider decides it; none: no role.
    pub roles: &'e BTreeMap<String, Option<Role>>,
}

impl Catalog {
    /// Signs a person in: sets the rights that the provider claims, and begins a session, all of it or nothing.
    /// `by` names the sign-in, which can be used once.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no account and none is to be created, [`Error::Denied`] if it is
    /// disabled, [`Error::Taken`] if another account has the name, [`Error::Invalid`] if that is not valid,
    /// [`Error::Conflict`] if the sign-in was used or the first account would not be an administrator,
    /// [`Error::TooMany`].
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

/// Returns the account of the person, or creates it.
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
        // With an account, setup is over, and nobody could become an administrator any more.
        let problem =
            finding!("no_admin_yet", "no accounts yet: the first account must be an administrator");
        return Err(Error::Conflict(problem));
    }
    let new = NewAccount { name, password_hash: None, subject: Some(who.subject), is_admin: false };
    insert(change, Action::CreateAccount, new).await
}

/// Sets whether the account is an administrator. The last one stays one: nobody could name another.
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

/// Sets these roles; removes the role in apps where it is none. Other apps are left as they are.
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
            // The operator has to know; the person who signs in cannot change it.
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
