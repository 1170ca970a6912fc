//! The catalog: what is kept, and what can be done to it.
//!
//! | file | what |
//! |---|---|
//! | `change` | the one way to change something: a transaction with its entry in the audit |
//! | `apps`, `accounts`, `policies`, `tokens` | what there is |
//! | `elsewhere` | whose account it is, of who signs in elsewhere |
//! | `publish` | what nodes are told |
//! | `seed` | what a new one begins with |
//! | `nodes`, `traffic` | how nodes do, and what they counted |
//!
//! Who may do it is asked before, of [`allow`](crate::allow). The time is passed in.

mod accounts;
mod apps;
mod change;
mod external;
mod nodes;
mod overview;
mod policies;
mod publish;
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
pub use accounts::{AccountChange, AccountView, KeptPassword, NewAccount};
pub use apps::{App, Member, RoleOrigin};
pub use external::ExternalIdentity;
pub use nodes::{Fleet, FleetNode, Node, NodeReport, StoreReport};
pub(crate) use overview::KnownNames;
pub use overview::{AppSummary, Hit};
use policies::fill_policy_apps;
pub use policies::{
    Applied, AppliedAll, Diff, PolicyAt, PolicyFilter, PolicyLimit, PolicySort, PolicyState,
    PolicySummaries, PolicySummary, PolicyVersion, PolicyView, Wanted, changes,
};
pub(crate) use policies::{POLICY_SCHEMA, policy_schema};
pub use publish::{PublishedCatalog, PublishedPolicy, PublishedToken};
pub(crate) use sessions::RecentAddresses;
pub use sessions::{LiveSession, NewSession, SessionSpans, SessionView};
pub use tokens::{NewToken, TokenView};
pub use traffic::{Mark, NodeBucket, PolicyChange};

/// The catalog in a database.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub(crate) db: Db,
    /// How many versions of a policy are kept.
    versions: i64,
}

/// Who changes something, when, and why.
#[derive(Clone, Debug)]
pub struct ChangeContext {
    /// Who.
    pub actor: Actor,
    /// From where: an address.
    pub source: String,
    /// Why, in their own words.
    pub reason: String,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// The name of this request, if it may be sent again.
    pub request: Option<Repeatable>,
    /// Whether only to say what would be done.
    pub dry_run: bool,
    /// Whether to do it although somebody is locked out.
    pub force: bool,
}

/// The name of a request that may be sent again, and is done once.
#[derive(Clone, Debug)]
pub struct Repeatable {
    /// The name that the client chose.
    pub name: String,
    /// The hash of what was asked, in hex.
    pub question: String,
}

/// Which part of a list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Page {
    /// Behind this one: the cursor that came with the page before.
    pub after: Option<String>,
    /// How many at most.
    pub limit: Option<u32>,
}

impl Catalog {
    /// The catalog in the database at `url`, whose tables are made or brought up to date.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database, or a later version made its tables.
    pub async fn open(url: &Url) -> Result<Self, Error> {
        url.create()?;
        Self::open_existing(url).await
    }

    /// The same, where the file of a SQLite database is not made.
    ///
    /// # Errors
    /// [`Error::Database`] as of [`open`](Self::open), and if there is no such file.
    pub async fn open_existing(url: &Url) -> Result<Self, Error> {
        let catalog = Self { db: Db::open(url).await?, versions: VERSIONS };
        fill_policy_apps(&catalog.db).await?;
        if catalog.id().await?.is_empty() {
            // Of several that think of one the first does.
            let id = uuid::Uuid::new_v4().to_string();
            let sql = "UPDATE head SET id_text = ? WHERE id = 1 AND id_text = ''";
            catalog.db.run(sql, &[(&id).into()]).await?;
        }
        Ok(catalog)
    }

    /// The catalog in the database at `url`, whose tables somebody else has made or brought up to date.
    ///
    /// # Errors
    /// [`Error::Database`] if there is no such database.
    pub async fn join(url: &Url) -> Result<Self, Error> {
        Ok(Self { db: Db::connect(url).await?, versions: VERSIONS })
    }

    /// The catalog that is in the database at `url`, to be looked at: nothing is made or brought up to
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

    /// The same, which keeps so many versions of each policy: the latest, and the one in force. Earlier
    /// ones go with the next change of the policy.
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
    /// The command line, beside the database.
    pub fn operator(reason: &str, at: i64) -> Self {
        Self::new(Actor::Operator, "local", reason, at)
    }

    /// Somebody from somewhere, for this reason, at this time.
    pub fn new(actor: Actor, source: &str, reason: &str, at: i64) -> Self {
        let (source, reason) = (source.to_owned(), reason.to_owned());
        Self { actor, source, reason, at, request: None, dry_run: false, force: false }
    }
}

impl Page {
    /// How many at most, within what is permitted.
    pub(crate) fn limit(&self) -> i64 {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX).into()
    }

    /// The same of what has documents.
    pub(crate) fn limit_of_documents(&self) -> i64 {
        self.limit().min(PAGE_OF_DOCUMENTS_MAX.into())
    }

    fn after(&self) -> &str {
        self.after.as_deref().unwrap_or_default()
    }
}

/// `name`, if it is one.
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

/// The pattern of `LIKE ? ESCAPE '!'` for names that contain `text`, in whichever case it is written.
fn containing(text: &str) -> String {
    let text = text.to_lowercase();
    format!("%{}%", text.replace('!', "!!").replace('%', "!%").replace('_', "!_"))
}

/// Whether a name is a step in a path: clients take it away before they ask.
fn is_path_step(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Whether `c` changes the direction of the text around it: a line would not say what it seems to.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text`, if it is a line or a paragraph.
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
