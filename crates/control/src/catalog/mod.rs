//! The catalog: what is stored, and the operations on it.
//!
//! | file | what |
//! |---|---|
//! | `change` | the one way to change something: a transaction with its entry in the audit |
//! | `audit` | the entries of the audit, and their verification |
//! | `apps`, `accounts`, `policies`, `tokens`, `sessions` | the stored objects |
//! | `external` | the accounts of people who sign in with OpenID Connect |
//! | `policy_apps` | the apps that each policy names |
//! | `published` | what nodes read: the content of the catalog, or its changes |
//! | `seed` | the content of a new catalog |
//! | `nodes`, `traffic` | the state of nodes, and their counts |
//! | `overview` | summaries of apps, and search |
//!
//! Callers check permissions first, with [`allow`](crate::allow). The time is passed in.

mod accounts;
mod apps;
mod audit;
mod change;
mod external;
mod nodes;
mod overview;
mod policies;
mod policy_apps;
mod published;
mod seed;
mod sessions;
mod tokens;
mod traffic;

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use sluicegate_kernel::ruleset::is_name;

use crate::access::Actor;
use crate::db::{Db, Url};
use crate::error::Error;
use crate::limits::{
    NAME_BYTES_MAX, PAGE, PAGE_MAX, PAGE_OF_DOCUMENTS_MAX, TEXT_CHARS_MAX, VERSIONS,
};
use sluicegate_policy::finding;

pub(crate) use accounts::is_account_name;
pub use accounts::{AccountChange, AccountView, NewAccount, PasswordChange};
pub use apps::{App, Member, RoleOrigin};
pub use external::ExternalIdentity;
pub use nodes::{Fleet, FleetNode, Node, NodeReport, StoreReport};
pub(crate) use overview::KnownNames;
pub use overview::{AppSummary, Hit};
pub use policies::{
    Applied, AppliedAll, Diff, PolicyAt, PolicyFilter, PolicyLimit, PolicySort, PolicyState,
    PolicySummaries, PolicySummary, PolicyVersion, PolicyView, Wanted, changes,
};
pub(crate) use policies::{POLICY_SCHEMA, policy_schema};
use policy_apps::fill_policy_apps;
pub use published::{PublishedCatalog, PublishedPolicy, PublishedToken};
pub(crate) use sessions::RecentAddresses;
pub use sessions::{KeptPassword, LiveSession, NewSession, SessionSpans, SessionView};
pub use tokens::{NewToken, TokenUse, TokenView};
pub use traffic::{Mark, NodeBucket, PolicyChange};

/// The catalog in a database.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) db: Db,
    /// Number of versions of a policy that are kept.
    versions: i64,
}

/// Actor, time and reason of a change.
#[derive(Clone, Debug)]
pub struct ChangeContext {
    /// The actor.
    pub actor: Actor,
    /// Address of the client.
    pub source: String,
    /// The reason, as the actor gave it.
    pub reason: String,
    /// Time, in milliseconds since 1970.
    pub at: i64,
    /// The name of this request, if it may be sent again.
    pub request: Option<Repeatable>,
    /// `true` to only return what would be done.
    pub dry_run: bool,
    /// `true` to make the change in spite of warnings.
    pub force: bool,
}

/// The name of a request that may be sent again, and is done once.
#[derive(Clone, Debug)]
pub struct Repeatable {
    /// The name that the client chose.
    pub name: String,
    /// Identifies the content of the request, as a hash in hex or a fixed text.
    pub question: String,
}

/// A part of a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Page {
    /// Cursor that came with the page before; none: the first page.
    pub after: Option<String>,
    /// Maximum number of items; none: the default.
    pub limit: Option<u32>,
}

impl Catalog {
    /// Opens the catalog in the database at `url`; its tables are created or brought up to date.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database, or a later version made its tables.
    pub async fn open(url: &Url) -> Result<Self, Error> {
        url.create()?;
        Self::open_existing(url).await
    }

    /// Opens the catalog as [`open`](Self::open) does, but does not create the file of a SQLite database.
    ///
    /// # Errors
    /// [`Error::Database`] as of [`open`](Self::open), and if there is no such file.
    pub async fn open_existing(url: &Url) -> Result<Self, Error> {
        let catalog = Self { db: Db::open(url).await?, versions: VERSIONS };
        fill_policy_apps(&catalog.db).await?;
        if catalog.id().await?.is_empty() {
            // If several nodes choose an id, the first one stays.
            let id = uuid::Uuid::new_v4().to_string();
            let sql = "UPDATE head SET id_text = ? WHERE id = 1 AND id_text = ''";
            catalog.db.run(sql, &[(&id).into()]).await?;
        }
        Ok(catalog)
    }

    /// Opens the catalog in the database at `url`, whose tables another process has created or brought up to date.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database.
    pub async fn join(url: &Url) -> Result<Self, Error> {
        Ok(Self { db: Db::connect(url).await?, versions: VERSIONS })
    }

    /// Opens the catalog in the database at `url` to read it: its tables are neither created nor brought up to
    /// date.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database, or no catalog in it.
    pub async fn open_read_only(url: &Url) -> Result<Self, Error> {
        let db = Db::open_read_only(url).await?;
        let head = db.row("SELECT id FROM head WHERE id = 1", &[]).await;
        match head.map_err(|error| error.to_string()) {
            Ok(Some(_)) => Ok(Self { db, versions: VERSIONS }),
            Ok(None) => Err(Error::Damaged("missing head".to_owned())),
            Err(problem) => Err(Error::Database(format!("no catalog in the database: {problem}"))),
        }
    }

    /// Sets the number of versions of each policy that are kept, the one in force included. Earlier ones are
    /// deleted with the next change of the policy.
    #[must_use]
    pub fn keeping_versions(self, versions: NonZeroU32) -> Self {
        Self { versions: versions.get().into(), ..self }
    }

    /// Ends all connections to the database.
    pub async fn close(&self) {
        self.db.close().await;
    }
}

impl ChangeContext {
    /// Creates the context of a change by the command line.
    pub fn operator(reason: &str, at: i64) -> Self {
        Self::new(Actor::Operator, "local", reason, at)
    }

    /// Creates the context of a change by `actor` from the address `source`, for this reason, at this time.
    pub fn new(actor: Actor, source: &str, reason: &str, at: i64) -> Self {
        let (source, reason) = (source.to_owned(), reason.to_owned());
        Self { actor, source, reason, at, request: None, dry_run: false, force: false }
    }
}

impl Page {
    /// Returns the maximum number of items, within what is permitted.
    pub(crate) fn limit(&self) -> i64 {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX).into()
    }

    /// Returns the maximum number of items with documents, within what is permitted.
    pub(crate) fn limit_of_documents(&self) -> i64 {
        self.limit().min(PAGE_OF_DOCUMENTS_MAX.into())
    }

    fn after(&self) -> &str {
        self.after.as_deref().unwrap_or_default()
    }
}

/// Returns `name`, if it is valid.
pub(crate) fn name<'n>(name: &'n str, pointer: &str) -> Result<&'n str, Error> {
    if is_name(name) && !is_path_step(name) {
        return Ok(name);
    }
    let problem = finding!(
        "bad_catalog_name",
        "expected 1 to {max} of `a-z`, `0-9`, `.`, `_` and `-`, but not `.` or `..`",
        max = NAME_BYTES_MAX
    );
    Err(Error::invalid(pointer, problem))
}

/// Returns the pattern of `LIKE ? ESCAPE '!'` for names that contain `text` in lower case.
fn containing(text: &str) -> String {
    let text = text.to_lowercase();
    format!("%{}%", text.replace('!', "!!").replace('%', "!%").replace('_', "!_"))
}

/// Returns whether a name is a step in a path, which clients remove from a URL.
fn is_path_step(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Returns whether `c` changes the direction of the text around it, so that a line misleads its reader.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `text`, if it is a valid line or paragraph.
fn text<'t>(text: &'t str, pointer: &str) -> Result<&'t str, Error> {
    let is_bad = |c: char| c.is_control() && c != '\n' || is_direction(c);
    if text.chars().count() <= TEXT_CHARS_MAX && !text.contains(is_bad) {
        return Ok(text);
    }
    let problem = finding!(
        "bad_text",
        "expected at most {max} characters, without control or text direction characters",
        max = TEXT_CHARS_MAX
    );
    Err(Error::invalid(pointer, problem))
}
