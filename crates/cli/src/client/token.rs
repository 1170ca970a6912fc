//! The token that a command sends: from a file, or from the environment.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use axum::http::{HeaderValue, Request, header};
use clap::Args;
use sluicegate_text::{private, terminal};

use super::target::Target;

/// The variable that holds a token: an argument would be visible in lists of processes.
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
    /// Returns the value of `authorization`; `None`: there is no token.
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
        let source = || match &self.token_file {
            Some(file) => file.display().to_string(),
            None => TOKEN.to_owned(),
        };
        if text.is_empty() {
            return match &self.token_file {
                Some(file) => Err(anyhow!("{} is empty", file.display())),
                None => Ok(None),
            };
        }
        check_is_one(text).map_err(|problem| anyhow!("{}: {problem}", source()))?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {text}"))
            .map_err(|_| anyhow!("{}: invalid token", source()))?;
        bearer.set_sensitive(true);
        Ok(Some(bearer))
    }

    /// Adds the token to a request, and warns if others can read it on its way to `to`. Returns `false` if there is no
    /// token.
    ///
    /// # Errors
    /// Those of [`bearer`](Self::bearer).
    pub(crate) fn add(&self, request: &mut Request<Vec<u8>>, to: &Target) -> Result<bool> {
        let Some(bearer) = self.bearer()? else { return Ok(false) };
        warn_if_overheard(to, "token");
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
        Ok(true)
    }
}

/// Checks that `text` is one token and nothing else. The problem contains no part of it, since it is a secret.
fn check_is_one(text: &str) -> Result<(), String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    if lines > 1 {
        return Err(format!("has {lines} lines; expected one token"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("expected one token, visible ASCII characters without spaces".to_owned());
    }
    match text.split_once('=') {
        // Padding ends a token in Base64.
        Some((name, value)) if is_variable(name) && !value.trim_matches('=').is_empty() => {
            Err(format!("begins with `{name}=`; expected the token alone"))
        }
        _ => Ok(()),
    }
}

/// True for names of variables as they are written by habit: `API_TOKEN`.
fn is_variable(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(is_part)
}

/// Warns on standard error if a secret (`what`) is sent over a network without encryption.
pub(crate) fn warn_if_overheard(to: &Target, what: &str) {
    if to.is_overheard() {
        terminal::print_error_line(format_args!(
            "note: the {what} is sent to {to} unencrypted; use https://"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_more_than_a_token_is_named_without_a_part_of_the_token() {
        for token in ["sgt_0a1b", "QUJD=", "QUJD==", "a=b"] {
            assert_eq!(check_is_one(token), Ok(()), "{token}");
        }
        for (text, expected) in [
            ("sgt_1\n\nsgt_2", "has 2 lines; expected one token"),
            ("sgt_1 sgt_2", "expected one token, visible ASCII characters without spaces"),
            ("TOKEN=sgt_1", "begins with `TOKEN=`; expected the token alone"),
        ] {
            assert_eq!(check_is_one(text), Err(expected.to_owned()));
        }
    }
}
