//! The token that a command sends: from a file, or from the environment.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use axum::http::{HeaderValue, Request, header};
use clap::Args;
use sluicegate_text::{private, terminal};

use super::target::Target;

/// The variable that holds a token: files of commands would be in lists of processes.
pub(crate) const TOKEN: &str = "SLUICEGATE_TOKEN";

/// Longest token file: one token and spaces.
const TOKEN_BYTES_MAX: u64 = 4 << 10;

/// A token of an app.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TokenArgs {
    /// File with a token of the app. Without it, SLUICEGATE_TOKEN is used.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl TokenArgs {
    /// As it is sent; none: there is no token.
    ///
    /// # Errors
    /// If the file cannot be read, or the token has characters that cannot be sent.
    pub(crate) fn bearer(&self) -> Result<Option<HeaderValue>> {
        let text = match &self.token_file {
            Some(file) => {
                let read = private::read_text(file, TOKEN_BYTES_MAX);
                read.with_context(|| format!("cannot read {}", file.display()))?
            }
            None => std::env::var(TOKEN).unwrap_or_default(),
        };
        let text = text.trim();
        if text.is_empty() {
            return match &self.token_file {
                Some(file) => Err(anyhow!("{} is empty", file.display())),
                None => Ok(None),
            };
        }
        let mut bearer = HeaderValue::try_from(format!("Bearer {text}"))
            .map_err(|_| anyhow!("invalid token"))?;
        bearer.set_sensitive(true);
        Ok(Some(bearer))
    }

    /// Adds the token to a request, if there is one, and warns if others can read it on its way to `to`.
    ///
    /// # Errors
    /// Those of [`bearer`](Self::bearer).
    pub(crate) fn add(&self, request: &mut Request<Vec<u8>>, to: &Target) -> Result<()> {
        if let Some(bearer) = self.bearer()? {
            warn_if_overheard(to, "token");
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        Ok(())
    }
}

/// Warns on standard error if a secret (`what`) is sent over a network without encryption.
pub(crate) fn warn_if_overheard(to: &Target, what: &str) {
    if to.is_overheard() {
        terminal::print_error_line(format_args!(
            "note: the {what} is sent to {to} unencrypted; use https://"
        ));
    }
}
