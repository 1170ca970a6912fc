//! Permissions: `allow` decides which actor can do which action, for every caller.
//!
//! Each operation is an [`Action`] with an [`AccessRule`]. Permissions have no other source, so the table in
//! `docs/roles.md`, which is generated from these, is complete.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of an account in an app.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Can view.
    Viewer,
    /// Can change, delete and manage members.
    Owner,
}

/// Scope of a token within its app.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum Scope {
    /// Request decisions.
    #[serde(rename = "check")]
    Check,
    /// Give permits back and reset usage.
    #[serde(rename = "refund")]
    Refund,
    /// Read policies.
    #[serde(rename = "policy:read")]
    PolicyRead,
    /// Change policies.
    #[serde(rename = "policy:write")]
    PolicyWrite,
}

/// The author of a request: an account, a token, or a part of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Not authenticated.
    Nobody,
    /// A person.
    Account(Account),
    /// A machine.
    Token(Token),
    /// The command line, which opens the database directly.
    Operator,
    /// The OpenID Connect provider, which sets accounts and roles at sign-in.
    Provider,
}

/// A person, with the fields that permissions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Identifier, which never changes.
    pub id: String,
    /// Account name.
    pub name: String,
    /// `true` for an administrator, who can do everything.
    pub is_admin: bool,
    /// The role in each app, by app name.
    pub roles: BTreeMap<String, Role>,
}

/// A machine, with the fields that permissions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Identifier, which never changes.
    pub id: String,
    /// Token name.
    pub name: String,
    /// The app that the token belongs to.
    pub app: String,
    /// The scopes that the token has.
    pub scopes: Vec<Scope>,
}

/// The actors that can do an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    /// Everybody, signed in or not.
    Everybody,
    /// Every account, to itself.
    SignedIn,
    /// Accounts with this role in the app, or tokens of the app with this scope.
    InApp(Role, Option<Scope>),
    /// Administrators.
    Admin,
}

/// The reason why an actor cannot do an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenied {
    /// The actor is not authenticated.
    #[error("authentication required: sign in or send a token")]
    Unknown,
    /// The actor does not have the permission.
    #[error("permission denied")]
    Forbidden,
    /// The token is of the app, but lacks this scope.
    #[error("permission denied: the token lacks the scope `{}`", .0.name())]
    Scope(Scope),
}

/// Defines the actions and their table.
macro_rules! actions {
    ($($(#[doc = $doc:literal])+ $action:ident $name:literal $kind:ident $rule:expr;)+) => {
        /// An operation that needs permission.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action { $($(#[doc = $doc])+ $action,)+ }

        impl Action {
            /// All actions.
            pub const ALL: &[Self] = &[$(Self::$action),+];

            /// Returns the name in the audit.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$action => $name,)+ }
            }

            /// Returns a summary of one sentence.
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$action => concat!($($doc),+).trim_ascii(),)+ }
            }

            /// Returns which actors can do it.
            pub const fn rule(self) -> AccessRule {
                match self { $(Self::$action => $rule,)+ }
            }

            /// Returns whether the action changes something; denied attempts at such actions are audited.
            pub const fn writes(self) -> bool {
                match self { $(Self::$action => ActionKind::$kind.writes(),)+ }
            }
        }
    };
}

enum ActionKind {
    Read,
    Write,
}

impl ActionKind {
    const fn writes(self) -> bool {
        matches!(self, Self::Write)
    }
}

const VIEWER: AccessRule = AccessRule::InApp(Role::Viewer, None);
const OWNER: AccessRule = AccessRule::InApp(Role::Owner, None);
const POLICY_READ: AccessRule = AccessRule::InApp(Role::Viewer, Some(Scope::PolicyRead));
const POLICY_WRITE: AccessRule = AccessRule::InApp(Role::Owner, Some(Scope::PolicyWrite));

actions! {
    /// Get the API description.
    Describe "describe" Read AccessRule::Everybody;
    /// Get what a sign-in page needs: whether setup is due, and where to sign in.
    SeeMeta "meta" Read AccessRule::Everybody;
    /// Create the first account, using the setup token.
    SetUp "setup" Write AccessRule::Everybody;
    /// Sign in.
    SignIn "session.create" Write AccessRule::Everybody;
    /// Sign in with OpenID Connect.
    SignInElsewhere "session.oidc" Read AccessRule::Everybody;
    /// Get your own profile.
    SeeSession "session.read" Read AccessRule::SignedIn;
    /// Sign out of this session or of all sessions.
    SignOut "session.delete" Write AccessRule::SignedIn;
    /// Change your own password.
    ChangePassword "session.password" Write AccessRule::SignedIn;
    /// List or get accounts.
    SeeAccounts "account.read" Read AccessRule::Admin;
    /// Create an account.
    CreateAccount "account.create" Write AccessRule::Admin;
    /// Update an account: admin rights, disabled state or password.
    ChangeAccount "account.update" Write AccessRule::Admin;
    /// Delete an account.
    DeleteAccount "account.delete" Write AccessRule::Admin;
    /// End all sessions of an account.
    EndSessions "account.sessions" Write AccessRule::Admin;
    /// Find the accounts that share an app with you; administrators find all.
    FindPeople "account.find" Read AccessRule::SignedIn;
    /// List the apps you have a role in; administrators see all apps.
    ListApps "app.list" Read AccessRule::SignedIn;
    /// List the latest changes of policies in the apps you have a role in; administrators see those of all apps.
    SeeChanges "policy.changes" Read AccessRule::SignedIn;
    /// Find apps and policies by a part of their name.
    Search "search" Read AccessRule::SignedIn;
    /// Get an app.
    SeeApp "app.read" Read POLICY_READ;
    /// Create an app.
    CreateApp "app.create" Write AccessRule::Admin;
    /// Update the description of an app.
    ChangeApp "app.update" Write OWNER;
    /// Delete an app without policies.
    DeleteApp "app.delete" Write AccessRule::Admin;
    /// List the members of an app.
    SeeMembers "member.read" Read VIEWER;
    /// Add, change or remove a member of an app.
    ChangeMembers "member.update" Write OWNER;
    /// List or get the policies of an app and their versions.
    SeePolicies "policy.read" Read POLICY_READ;
    /// Validate a policy and show what it would change.
    ValidatePolicy "policy.validate" Read POLICY_READ;
    /// Show the policies that a configuration of another rate limiter becomes.
    ImportPolicies "policy.import" Read POLICY_READ;
    /// Compare the policies of an app with a draft, on the requests of a log.
    WhatIf "policy.whatif" Read POLICY_READ;
    /// Create a policy.
    CreatePolicy "policy.create" Write POLICY_WRITE;
    /// Update a policy.
    ChangePolicy "policy.update" Write POLICY_WRITE;
    /// Enforce a policy.
    ActivatePolicy "policy.activate" Write POLICY_WRITE;
    /// Put a policy into shadow mode: it counts what it would refuse and refuses nothing.
    ShadowPolicy "policy.shadow" Write POLICY_WRITE;
    /// Restore an earlier version of a policy.
    RollBackPolicy "policy.rollback" Write POLICY_WRITE;
    /// Restore a deleted policy.
    RestorePolicy "policy.restore" Write POLICY_WRITE;
    /// Delete a policy.
    DeletePolicy "policy.delete" Write POLICY_WRITE;
    /// Replace all policies of an app with those of a document, atomically.
    ApplyPolicies "policy.apply" Write POLICY_WRITE;
    /// Explain what a request would meet now, rule by rule, without charging it.
    ExplainKey "key.explain" Read VIEWER;
    /// Get the remaining budget of a key.
    SeeKey "key.read" Read VIEWER;
    /// List the permits of a key that are held.
    SeePermits "key.permits" Read VIEWER;
    /// Send one request for a key: it is decided, counted and charged as any other.
    TryKey "key.try" Write OWNER;
    /// Reset the usage of a key.
    ResetKey "key.reset" Write OWNER;
    /// Give permits back to a key.
    GrantKey "key.grant" Write OWNER;
    /// Release a permit of a key that a client holds.
    ReleasePermit "key.release" Write OWNER;
    /// Give a key rules of its own until an instant: a new version of the policy, with an override that ends.
    BoostKey "key.boost" Write POLICY_WRITE;
    /// List the tokens of an app, without secrets.
    SeeTokens "token.read" Read VIEWER;
    /// List the tokens that expire soon, of the apps you have a role in; administrators see those of all apps.
    SeeEndingTokens "token.ending" Read AccessRule::SignedIn;
    /// Create a token.
    CreateToken "token.create" Write OWNER;
    /// Revoke a token.
    RevokeToken "token.revoke" Write OWNER;
    /// List the audit entries of an app.
    SeeAppAudit "audit.app" Read VIEWER;
    /// List all audit entries.
    SeeAudit "audit.read" Read AccessRule::Admin;
    /// Get traffic over time, and the keys that were refused most.
    SeeTraffic "traffic.read" Read VIEWER;
    /// Watch traffic as it happens (`text/event-stream`).
    Watch "traffic.stream" Read VIEWER;
    /// Get the latest traffic of the apps you have a role in; administrators see all apps.
    SeeOverview "traffic.overview" Read AccessRule::SignedIn;
    /// Get the state of all nodes, and the catalog revision that each uses.
    SeeFleet "fleet.read" Read AccessRule::SignedIn;
    /// List the nodes.
    SeeNodes "node.read" Read AccessRule::Admin;
    /// Get the configuration of the node that answers, without secrets.
    SeeSettings "settings.read" Read AccessRule::Admin;
}

/// Checks that `actor` can do `action`, in `app` if it is an action within an app.
///
/// # Errors
/// [`AccessDenied`], the same whether or not the app exists: an actor without rights in an app does not
/// learn of it.
pub fn allow(actor: &Actor, action: Action, app: Option<&str>) -> Result<(), AccessDenied> {
    let may = match (action.rule(), actor) {
        (AccessRule::Everybody, _) | (_, Actor::Operator) => true,
        (_, Actor::Nobody) => return Err(AccessDenied::Unknown),
        (AccessRule::SignedIn, Actor::Account(_)) => true,
        (_, Actor::Account(account)) if account.is_admin => true,
        (AccessRule::InApp(role, _), Actor::Account(account)) => {
            app.and_then(|app| account.roles.get(app)).is_some_and(|own| *own >= role)
        }
        (AccessRule::InApp(_, Some(scope)), Actor::Token(token))
            if app == Some(token.app.as_str()) =>
        {
            // The holder of a token knows its app.
            return if token.scopes.contains(&scope) {
                Ok(())
            } else {
                Err(AccessDenied::Scope(scope))
            };
        }
        _ => false,
    };
    if may { Ok(()) } else { Err(AccessDenied::Forbidden) }
}

impl Role {
    /// Returns the name in documents and requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Owner => "owner",
        }
    }

    /// Returns the role with this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Viewer, Self::Owner].into_iter().find(|role| role.name() == name)
    }
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Check, Self::Refund, Self::PolicyRead, Self::PolicyWrite];

    /// Returns the name in documents and requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Refund => "refund",
            Self::PolicyRead => "policy:read",
            Self::PolicyWrite => "policy:write",
        }
    }

    /// Returns the scope with this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl Action {
    /// Returns whether the API offers a dry run of the action.
    pub const fn can_be_shown(self) -> bool {
        self.writes()
            && !matches!(self, Self::SetUp | Self::SignIn | Self::SignOut | Self::ChangePassword)
    }
}

impl Actor {
    /// Returns an identifier of this actor that no other has, even one that gets the same name later.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Account(account) => format!("account:{}", account.id),
            Self::Token(token) => format!("token:{}", token.id),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Actor {
    /// Writes the actor's name in the audit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Account(account) => write!(f, "account:{}", account.name),
            // Two tokens can share a name.
            Self::Token(token) => write!(f, "token:{}/{}#{}", token.app, token.name, token.id),
            Self::Operator => f.write_str("operator"),
            Self::Provider => f.write_str("provider"),
        }
    }
}
