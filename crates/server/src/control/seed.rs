//! The policies of a new catalog.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;
use sluicegate_control::catalog::ChangeContext;
use sluicegate_control::{Catalog, Error, Url};
use sluicegate_text::documents::DocumentSource;
use tokio::time::timeout;

use super::sync_state::{LOOK_WAIT_MAX, now};

/// The app of the policies in a new catalog.
const APP: &str = "demo";

/// Writes the policies of `file` to the catalog at `url`, if it is new. A catalog that does not answer is skipped.
///
/// # Errors
/// What is wrong with the file.
pub(super) async fn run(url: &Url, file: &Path) -> Result<()> {
    let policies = policies(file)?;
    let seeded = timeout(LOOK_WAIT_MAX, async {
        let catalog = Catalog::open(url).await?;
        let by = ChangeContext::operator("seed", now());
        let seeded = match catalog.seed(&by, APP, "Policies to try.", &policies).await {
            Ok(true) => Ok(None),
            Ok(false) => catalog.policy_count().await.map(Some),
            Err(error) => Err(error),
        };
        catalog.close().await;
        seeded
    });
    match seeded.await {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(count))) => {
            let noun = if count == 1 { "policy" } else { "policies" };
            tracing::info!(
                "catalog.seed: {} was not used: the catalog is not new and has {count} {noun}",
                file.display()
            );
        }
        Ok(Err(wrong @ Error::Invalid(_))) => {
            return Err(wrong).context(file.display().to_string());
        }
        Ok(Err(error)) => tracing::warn!("catalog.seed: ignored: {error}"),
        Err(_) => tracing::warn!("catalog.seed: ignored: no answer in time"),
    }
    Ok(())
}

/// The policies of `file`.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn policies(file: &Path) -> Result<Vec<Json>> {
    match DocumentSource::new(file.to_owned()).written()? {
        Ok(files) => Ok(files.into_iter().flat_map(|(_, policies)| policies).collect()),
        Err(wrong) => {
            let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
            bail!("{}", wrong.join("\n"))
        }
    }
}
