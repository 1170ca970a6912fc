//! The one way to change something.
//!
//! A change locks the head of the catalog, so that changes come one after the other; writes its rows;
//! and is [committed](Change::commit) in one transaction with its audit entries, which name the actor.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::{Catalog, ChangeContext, Repeatable, is_direction, name, text};
use crate::access::Action;
use crate::audit::{AuditEntry, AuditEvent, AuditOutcome, AuditTarget, BrokenChain};
use crate::db::Transaction;
use crate::error::{Error, PlacedFinding};
use crate::limits::{ANSWER_MS, ANSWERS_MAX, IDEMPOTENCY_KEY_BYTES_MAX, TEXT_CHARS_MAX};
use sluicegate_policy::finding;

/// Longest address of a client, and longest name of a target that was denied, in characters, as there is
/// room for in the audit.
const SOURCE_CHARS_MAX: usize = 100;
const TARGET_CHARS_MAX: usize = 300;

/// Locks the head of the catalog until the transaction ends, on every database.
pub(super) const LOCK_HEAD: &str = "UPDATE head SET audit_seq = audit_seq WHERE id = 1";

/// Parts of 32 bytes of the row that tests whether the database takes changes: 64 KiB, as the largest change of a
/// policy.
const TRIED_PARTS: usize = 2_048;

/// A change in progress, which is rolled back if it is dropped.
pub(super) struct Change<'b> {
    pub(super) rows: Transaction,
    pub(super) by: &'b ChangeContext,
    actor: String,
    revision: i64,
    audit_seq: i64,
    audit_hash: String,
    published: bool,
    events: Vec<AuditEvent>,
    /// Number of versions of a policy that are kept.
    pub(super) versions: i64,
    /// Number of policies of all apps and of the one that is changed, once they were counted.
    pub(super) policies: Option<(usize, usize)>,
    /// Apps that are known to exist.
    pub(super) apps: BTreeSet<String>,
    /// Codes of the warnings that `force` overrides.
    forced: BTreeSet<&'static str>,
}

/// A new change, or the stored answer of a request that was made before.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
pub(super) enum ChangeStart<'b, T> {
    Change(Change<'b>),
    Answered(T),
}

/// Begins a change. If the request was made before, returns its stored answer from the calling function.
macro_rules! begin {
    ($catalog:expr, $by:expr) => {
        match $catalog.begin($by).await? {
            $crate::catalog::change::ChangeStart::Change(change) => change,
            $crate::catalog::change::ChangeStart::Answered(answer) => return Ok(answer),
        }
    };
}
pub(super) use begin;

impl Catalog {
    pub(super) async fn begin<'b, T: DeserializeOwned>(
        &self,
        by: &'b ChangeContext,
    ) -> Result<ChangeStart<'b, T>, Error> {
        text(&by.reason, "/reason")?;
        let mut rows = self.db.begin().await?;
        rows.run(LOCK_HEAD, &[]).await?;
        let head = "SELECT revision, audit_seq, audit_hash FROM head WHERE id = 1";
        let head = rows.row(head, &[]).await?;
        let head = head.ok_or_else(|| Error::Damaged("missing head".to_owned()))?;
        let actor = by.actor.to_string();
        if let Some(request) = &by.request
            && let Some(answer) = answered(&mut rows, &by.actor.key(), request).await?
        {
            let answer = serde_json::from_str(&answer);
            let answer =
                answer.map_err(|_| Error::Damaged("a stored answer is not JSON".to_owned()))?;
            return Ok(ChangeStart::Answered(answer));
        }
        Ok(ChangeStart::Change(Change {
            rows,
            by,
            actor,
            revision: head.get(0)?,
            audit_seq: head.get(1)?,
            audit_hash: head.get(2)?,
            published: false,
            events: Vec::new(),
            versions: self.versions,
            policies: None,
            apps: BTreeSet::new(),
            forced: BTreeSet::new(),
        }))
    }

    /// Audits that `by` was denied `action` on `target`. Text from the client is cut to what can be stored, so
    /// that a long one does not prevent the entry.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit_denied(
        &self,
        by: &ChangeContext,
        action: Action,
        target: AuditTarget<'_>,
    ) -> Result<(), Error> {
        self.audit_denied_after(by, action, target, 0).await
    }

    /// Audits a denial, behind `unnoted` others that were only counted.
    pub(crate) async fn audit_denied_after(
        &self,
        by: &ChangeContext,
        action: Action,
        target: AuditTarget<'_>,
        unnoted: u64,
    ) -> Result<(), Error> {
        let (source, reason) = (cut(&by.source, SOURCE_CHARS_MAX), cut(&by.reason, TEXT_CHARS_MAX));
        let by = ChangeContext { source, reason, request: None, dry_run: false, ..by.clone() };
        let mut change: Change<'_> = match self.begin::<()>(&by).await? {
            ChangeStart::Change(change) => change,
            ChangeStart::Answered(()) => return Ok(()),
        };
        change.events.push(AuditEvent {
            action: action.name(),
            app: target.app().filter(|app| name(app, "").is_ok()).map(str::to_owned),
            target: cut(target.name(), TARGET_CHARS_MAX),
            outcome: AuditOutcome::Denied,
            before: None,
            after: (unnoted > 0).then(|| format!(r#"{{"unnoted_before":{unnoted}}}"#)),
        });
        change.commit(()).await
    }

    /// Audits a change of the live budget of a key, which is not in the catalog; `after` describes it. Returns
    /// `false` if this request made the change before.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn audit_key_change(
        &self,
        by: &ChangeContext,
        action: Action,
        target: AuditTarget<'_>,
        after: &serde_json::Value,
    ) -> Result<bool, Error> {
        let mut change: Change<'_> = match self.begin::<()>(by).await? {
            ChangeStart::Change(change) => change,
            ChangeStart::Answered(()) => return Ok(false),
        };
        change.audit(action, target, None, Some(after.to_string()));
        change.commit(()).await?;
        Ok(true)
    }

    /// Returns whether the request of `by` made its change before.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn was_made(&self, by: &ChangeContext) -> Result<bool, Error> {
        Ok(by.request.is_some() && matches!(self.begin::<()>(by).await?, ChangeStart::Answered(())))
    }

    /// Audits that a change of the live budget of a key was not made, since the store did not answer; `after`
    /// describes it.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn audit_key_failed(
        &self,
        by: &ChangeContext,
        action: Action,
        target: AuditTarget<'_>,
        after: &serde_json::Value,
    ) -> Result<(), Error> {
        // The same idempotency key must not get the answer of this attempt again.
        let by = ChangeContext { request: None, ..by.clone() };
        let mut change: Change<'_> = match self.begin::<()>(&by).await? {
            ChangeStart::Change(change) => change,
            ChangeStart::Answered(()) => return Ok(()),
        };
        change.audit(action, target, None, Some(after.to_string()));
        change.events.iter_mut().for_each(|event| event.outcome = AuditOutcome::Failed);
        change.commit(()).await
    }

    /// Writes a row and removes it, to test whether the database takes changes
    /// ([`is_catalog_writable`](crate::is_catalog_writable)): one that failed is tested again even without changes.
    /// The row needs as much room as a change: on a full disk PostgreSQL takes what fits into the pages that it
    /// has.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn try_write(&self) -> Result<(), Error> {
        let name = uuid::Uuid::new_v4().simple().to_string();
        // It must not become smaller when it is compressed.
        let text: String =
            (0..TRIED_PARTS).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
        let mut rows = self.db.begin().await?;
        rows.run(LOCK_HEAD, &[]).await?;
        let sql =
            "INSERT INTO answers (actor, name, question, answer, at) VALUES ('', ?, '', ?, 0)";
        rows.run(sql, &[(&name).into(), (&text).into()]).await?;
        let sql = "DELETE FROM answers WHERE actor = '' AND name = ?";
        rows.run(sql, &[(&name).into()]).await?;
        rows.commit().await
    }

    /// Forgets the request of `by`: it was not carried out, and may be sent again.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn forget_request(&self, by: &ChangeContext) -> Result<(), Error> {
        let Some(request) = &by.request else { return Ok(()) };
        let sql = "DELETE FROM answers WHERE actor = ? AND name = ?";
        self.db.run(sql, &[(&by.actor.key()).into(), (&hash_of(&request.name)).into()]).await?;
        Ok(())
    }
}

impl Change<'_> {
    /// Returns the author of the change, as it is stored with what is changed.
    pub(super) fn author(&self) -> &str {
        &self.actor
    }

    /// Publishes the change to nodes; returns the revision by which they find it.
    pub(super) fn publish(&mut self) -> i64 {
        self.published = true;
        self.revision + 1
    }

    /// Adds an audit entry about `target`.
    pub(super) fn audit(
        &mut self,
        action: Action,
        target: AuditTarget<'_>,
        before: Option<String>,
        after: Option<String>,
    ) {
        self.events.push(AuditEvent {
            action: action.name(),
            app: target.app().map(str::to_owned),
            target: target.name().to_owned(),
            outcome: AuditOutcome::Done,
            before,
            after,
        });
    }

    /// Returns the warnings as an error, unless the change is forced; then the audit has their codes.
    pub(super) fn warn(&mut self, warnings: Vec<PlacedFinding>) -> Result<(), Error> {
        if !warnings.is_empty() && !self.by.force {
            return Err(Error::Warned(warnings));
        }
        self.forced.extend(warnings.iter().map(|warning| warning.finding.code()));
        Ok(())
    }

    /// Commits the change with its audit entries, and keeps `answer` for a repeated request. A dry run is
    /// rolled back, and answered all the same.
    pub(super) async fn commit<T: Serialize>(mut self, answer: T) -> Result<T, Error> {
        if self.by.dry_run {
            self.rows.roll_back().await?;
            return Ok(answer);
        }
        for event in std::mem::take(&mut self.events) {
            self.append(event).await?;
        }
        let revision = self.revision + i64::from(self.published);
        let head = "UPDATE head SET revision = ?, audit_seq = ?, audit_hash = ? WHERE id = 1";
        let values = [revision.into(), self.audit_seq.into(), (&self.audit_hash).into()];
        self.rows.run(head, &values).await?;
        if let Some(request) = &self.by.request {
            let kept = serde_json::to_string(&answer);
            let kept = kept.map_err(|error| Error::Damaged(error.to_string()))?;
            let sql =
                "INSERT INTO answers (actor, name, question, answer, at) VALUES (?, ?, ?, ?, ?)";
            let Repeatable { name, question } = request;
            let name = hash_of(name);
            let actor = self.by.actor.key();
            let values = [
                (&actor).into(),
                (&name).into(),
                question.into(),
                (&kept).into(),
                self.by.at.into(),
            ];
            self.rows.run(sql, &values).await?;
        }
        let old = [(self.by.at - ANSWER_MS).into()];
        self.rows.run("DELETE FROM answers WHERE at < ?", &old).await?;
        self.rows.commit().await?;
        Ok(answer)
    }

    async fn append(&mut self, event: AuditEvent) -> Result<(), Error> {
        let AuditEvent { action, app, target, outcome, before, after } = event;
        let after = if self.forced.is_empty() { after } else { Some(forced(after, &self.forced)) };
        let mut entry = AuditEntry {
            seq: self.audit_seq + 1,
            at: self.by.at,
            actor: self.actor.clone(),
            source: self.by.source.clone(),
            action: action.to_owned(),
            app,
            target,
            outcome: outcome.name().to_owned(),
            reason: self.by.reason.clone(),
            before,
            after,
            hash: String::new(),
        };
        entry.hash = entry.hash_behind(&self.audit_hash);
        let sql = "INSERT INTO audit (seq, at, actor, source, action, app, target, outcome, reason, \
                   before_change, after_change, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let values = [
            entry.seq.into(),
            entry.at.into(),
            (&entry.actor).into(),
            (&entry.source).into(),
            (&entry.action).into(),
            entry.app.as_deref().into(),
            (&entry.target).into(),
            (&entry.outcome).into(),
            (&entry.reason).into(),
            entry.before.as_deref().into(),
            entry.after.as_deref().into(),
            (&entry.hash).into(),
        ];
        match self.rows.run(sql, &values).await {
            // The head is locked, so no other change wrote it.
            Err(Error::Taken) => return Err(BrokenChain::Beyond(entry.seq).into()),
            written => written?,
        };
        (self.audit_seq, self.audit_hash) = (entry.seq, entry.hash);
        Ok(())
    }
}

/// Checks that the version to change is the current one.
pub(super) const fn is_version(given: i64, is: i64) -> Result<(), Error> {
    if given == is { Ok(()) } else { Err(Error::Stale(is)) }
}

/// Adds the codes of overridden warnings to the value of an audit entry.
fn forced(after: Option<String>, warnings: &BTreeSet<&str>) -> String {
    let value = after.map(|after| serde_json::from_str(&after).unwrap_or(Json::String(after)));
    let mut noted = match value {
        Some(Json::Object(members)) => Json::Object(members),
        Some(value) => json!({ "value": value }),
        None => json!({}),
    };
    noted["forced"] = json!(warnings);
    noted.to_string()
}

/// Returns `text` without control and direction characters, and no longer than this.
fn cut(text: &str, chars_max: usize) -> String {
    text.chars().filter(|c| !c.is_control() && !is_direction(*c)).take(chars_max).collect()
}

/// Returns what is stored of the name of a request: its SHA-256 in hex.
fn hash_of(name: &str) -> String {
    format!("{:x}", Sha256::digest(name))
}

/// Returns the stored answer, if `actor` sent this request before.
async fn answered(
    rows: &mut Transaction,
    actor: &str,
    request: &Repeatable,
) -> Result<Option<String>, Error> {
    let Repeatable { name, question } = request;
    if !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&name.len()) {
        let problem = finding!(
            "bad_idempotency_key",
            "expected 1 to {max} bytes",
            max = IDEMPOTENCY_KEY_BYTES_MAX
        );
        return Err(Error::invalid("/idempotency-key", problem));
    }
    let sql = "SELECT question, answer FROM answers WHERE actor = ? AND name = ?";
    let name = hash_of(name);
    let Some(row) = rows.row(sql, &[actor.into(), (&name).into()]).await? else {
        let sql = "SELECT COUNT(*) FROM answers WHERE actor = ?";
        let kept = rows.row(sql, &[actor.into()]).await?.map_or(Ok(0), |row| row.get::<i64>(0))?;
        return if kept < ANSWERS_MAX {
            Ok(None)
        } else {
            Err(Error::TooMany(format!("{ANSWERS_MAX} idempotency keys a day")))
        };
    };
    if row.get::<String>(0)? != *question {
        return Err(Error::KeyReused);
    }
    Ok(Some(row.get(1)?))
}
